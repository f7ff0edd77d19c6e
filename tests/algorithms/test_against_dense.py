"""Every baseline's program against the dense version of its equations, on random draws; agreement to 1e-10."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2.arrays import Array
from dpp2.problems.base import ProblemSection
from dpp2.weights import weight_matrix
from tests import dumb
from tests.algorithms import dense
from tests.algorithms.hosted import Tables, host, trace
from tests.core.programs import NOISE_KEY, assert_close, graph, matrix, normal, problem

DOUBLES = {"grid": 0}  # the equations are those of real numbers; the grid has tests of its own
STEP, SCALE, DECAY = st.floats(0.01, 0.2), st.floats(0, 2), st.floats(0, 1)
X_NOISE = st.fixed_dictionaries({"u_x": SCALE, "decay": DECAY})
XY_NOISE = st.fixed_dictionaries({"u_x": SCALE, "u_y": SCALE, "decay": DECAY})
WEAKENING = st.fixed_dictionaries(
    {
        "alpha": STEP,
        "alpha_power": st.floats(0, 1),
        "chi": st.floats(0.1, 1),
        "chi_power": st.floats(0, 1),
        "slowdown": st.floats(0, 1),
        "radius": st.one_of(st.none(), st.floats(0.5, 2)),
    }
)
PRIMAL_DUAL = st.fixed_dictionaries({"gamma": st.floats(0.1, 5), "omega": st.floats(0.1, 5), "eta": STEP})
COMPRESSION = st.fixed_dictionaries(
    {
        "alpha": STEP,
        "gamma": st.floats(0.1, 1),
        "psi": st.floats(0.2, 1),
        "compressor": st.sampled_from(["none", "top-k", "quantised"]),
        "keep": st.integers(1, 4),
        "bits": st.integers(2, 6),
    }
)
METHODS: dict[str, tuple[Any, st.SearchStrategy[Tables], st.SearchStrategy[Tables]]] = {
    "dgd": (dense.dgd, st.fixed_dictionaries({"alpha": STEP, "power": st.floats(0, 1)}), X_NOISE),
    "extra": (dense.extra, st.fixed_dictionaries({"alpha": STEP}), X_NOISE),
    "gradient-tracking": (dense.tracking, st.fixed_dictionaries({"alpha": STEP}), XY_NOISE),
    "diadsp": (dense.tracking, st.fixed_dictionaries({"alpha": STEP}), XY_NOISE),
    "prox-gpda": (dense.prox_gpda, st.fixed_dictionaries({"alpha": STEP, "beta": st.floats(0.1, 5)}), X_NOISE),
    "yi": (dense.primal_dual, PRIMAL_DUAL, X_NOISE),
    "ppdc": (dense.primal_dual, PRIMAL_DUAL, st.fixed_dictionaries({"u_x": SCALE, "u_v": SCALE, "decay": DECAY})),
    "pgtc": (dense.pgtc, COMPRESSION, XY_NOISE),
    "dmsp": (
        dense.dmsp,
        st.fixed_dictionaries({"c": STEP, "q": st.floats(0.1, 0.99), "radius": st.floats(0.5, 5)}),
        X_NOISE,
    ),
    "wang-nedic": (dense.weakening, WEAKENING, X_NOISE),
    "decor": (
        dense.decor,
        st.fixed_dictionaries({"gamma": STEP, "power": st.floats(0, 1)}),
        st.fixed_dictionaries({"own": SCALE, "ratio": st.floats(0, 10)}),
    ),
    "wang-basar": (dense.weakening, WEAKENING, st.fixed_dictionaries({"sigma": SCALE})),
}
PROBLEMS = st.one_of(
    st.builds(lambda c: {"name": "quadratic", "curvature": c}, st.floats(-1, 3)),
    st.just({"name": "sine"}),
    st.builds(lambda m: {"name": "logistic", "samples": m, "smoothness": 2.0}, st.integers(1, 5)),
)
TOPOLOGY = st.sampled_from(["ring", "path", "star", "complete", "grid", "tree", "geometric"])


@st.composite
def networks(draw: st.DrawFn) -> tuple[Any, ProblemSection, Array, int, int]:
    """P, a problem, x⁰, rounds and the size of a block."""
    agents, dimension = draw(st.integers(2, 7)), draw(st.integers(1, 4))
    P = matrix(draw(TOPOLOGY), agents)
    section = problem(dimension=dimension, agents=agents, **draw(PROBLEMS))
    x0 = normal(agents, dimension, draw(st.integers(0, 99)))
    return P, section, x0, draw(st.integers(1, 8)), draw(st.sampled_from([1, 2, 4096]))


def gradients(section: ProblemSection, agents: int) -> dense.Gradient:
    """Agent by agent, as containers hold them."""
    own = [section.objective([i], agents) for i in range(agents)]
    return lambda x: np.concatenate([one(x[i : i + 1])[1] for i, one in enumerate(own)])


def assert_same(ours: dict[str, Array], theirs: dense.History) -> None:
    for name, rows in theirs.items():
        assert_close(ours[name], np.array(rows), 1e-10)


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=12, deadline=None)
@given(network=networks(), data=st.data())
def test_program_equals_its_dense_equations(name: str, network: Any, data: st.DataObject) -> None:
    by_hand, parameters, noises = METHODS[name]
    P, section, x0, rounds, block = network
    chosen, noise = data.draw(parameters), {**data.draw(noises), **DOUBLES}
    algorithm = {key: value for key, value in chosen.items() if value is not None}
    ours = trace(host(name, P, section, x0, algorithm=algorithm, noise=noise, block=block), rounds)
    theirs = by_hand(P.toarray(), gradients(section, len(x0)), x0, ours, rounds, **chosen)
    assert_same(ours, theirs)


@settings(max_examples=12, deadline=None)
@given(
    agents=st.integers(2, 6),
    seed=st.integers(0, 99),
    rounds=st.integers(1, 9),
    restart=st.integers(1, 4),
    block=st.sampled_from([1, 2, 4096]),
)
def test_diff2_equals_a_server_with_one_model(agents: int, seed: int, rounds: int, restart: int, block: int) -> None:
    P, section, x0 = matrix("star", agents), problem("sine", agents, seed), normal(agents, 10, seed)
    algorithm, noise = {"eta": 0.1, "restart": restart}, {"sigma": 0.3, "sigma_difference": 0.7, **DOUBLES}
    ours = trace(host("diff2", P, section, x0, algorithm=algorithm, noise=noise, block=block), rounds)
    assert_same(ours, dense.diff2(gradients(section, agents), x0, ours, rounds, eta=0.1, restart=restart))


def test_diff2_noise_scales_with_the_last_step() -> None:
    """The same draws under σ_d = 1 and 2: twice the noise per length of the step; and none where nobody moved."""
    P, section, x0 = matrix("star", 4), problem("sine", 4), normal(4, 10)
    unit = []
    for sigma in (1.0, 2.0):
        noise = {"sigma": 0.0, "sigma_difference": sigma, **DOUBLES}
        run = trace(host("diff2", P, section, x0, algorithm={"eta": 0.1, "restart": 100}, noise=noise), 6)
        steps = np.linalg.norm(run["x"][2:6] - run["x"][1:5], axis=2)  # of rounds 2 … 5, the length of the last step
        assert not run["noise_d"][:2].any()  # handing out x⁰, then a full gradient under σ = 0
        unit.append(run["noise_d"][2:] / steps[..., None])
    assert_close(unit[1], 2 * unit[0], 1e-12)


SAMPLES = [
    {"name": "logistic", "samples": 4, "smoothness": 2.0, "lambda": 0.1},
    {"name": "least-squares", "samples": 3},
    {"name": "quadratic"},
]


@pytest.mark.parametrize("table", SAMPLES, ids=lambda table: table["name"])
@pytest.mark.parametrize("block", [1, 4096])
def test_privsgp_vr_equals_saga_by_hand(table: Tables, block: int) -> None:
    """Samples drawn by hand from the keystream, their gradients by hand from the data."""
    agents, rounds = 5, 12
    P, section, x0 = matrix("ring", agents), problem(agents=agents, dimension=3, **table), normal(agents, 3)
    parts = [section.objective([i], agents) for i in range(agents)]
    counts = [table.get("samples", 1)] * agents
    key = dumb.hkdf(NOISE_KEY, b"noise", b"sample")

    def drawn(k: int, i: int) -> int:
        return int(dumb.uniform(dumb.word(key, k, i)) * counts[i])

    noise = {"sigma": 0.2, **DOUBLES}
    ours = trace(host("privsgp-vr", P, section, x0, algorithm={"gamma": 0.1}, noise=noise, block=block), rounds)
    by_hand = dense.privsgp_vr(
        P.toarray(), lambda i, s, x: _one_sample(parts[i], s, x), counts, drawn, x0, ours, rounds, gamma=0.1
    )
    assert_same(ours, by_hand)


def _one_sample(objective: Any, s: int, x: Array) -> Array:
    """∇f_is(x), from the formula of the loss."""
    if hasattr(objective, "products"):
        a, penalty = objective.products[0, s], objective.lambda_ * objective.omega
        return np.asarray(-a / (1 + np.exp(a @ x)) + 2 * penalty * x / (1 + objective.omega * x * x) ** 2)
    if hasattr(objective, "a"):
        return np.asarray((objective.a[0, s] @ x - objective.b[0, s]) * objective.a[0, s])
    return np.asarray(objective(x[None])[1][0])  # one sample: all of f


@pytest.mark.parametrize("topology", ["ring", "complete"])
def test_prox_gpda_is_the_published_iteration_on_regular_graphs(topology: str) -> None:
    agents, beta = 6, 1.5
    drawn = graph(topology, agents)
    P = weight_matrix(drawn, "plain")
    A = np.diag(P.diagonal()) - P.toarray()
    degree = int(drawn.degrees[0])
    section, x0 = problem("sine", agents), normal(agents, 10)
    algorithm = {"alpha": 1 / (2 * beta * degree), "beta": beta}
    ours = trace(host("prox-gpda", P, section, x0, algorithm=algorithm), 20)
    assert_close(ours["x"], dense.published_prox_gpda(A, gradients(section, agents), x0, 20, beta=beta), 1e-10)


def test_pgtc_without_compression_is_diadsp() -> None:
    P, section, x0 = matrix("grid", 6), problem("sine", 6), normal(6, 10)
    noise = {"u_x": 2.0, "u_y": 5.0, "decay": 0.9}
    plain = trace(host("diadsp", P, section, x0, algorithm={"alpha": 0.05}, noise=noise), 30)
    algorithm = {"alpha": 0.05, "gamma": 1.0, "compressor": "none", "psi": 0.7}
    compressed = trace(host("pgtc", P, section, x0, algorithm=algorithm, noise=noise), 30)
    assert_close(compressed["x"], plain["x"], 1e-10)


def test_ppdc_without_noise_on_v_is_yi_with_noise() -> None:
    P, section, x0 = matrix("grid", 6), problem("sine", 6), normal(6, 10)
    algorithm = {"gamma": 2.0, "omega": 3.0, "eta": 0.1}
    yi = trace(host("yi", P, section, x0, algorithm=algorithm, noise={"u_x": 1.0}), 20)
    ppdc = trace(host("ppdc", P, section, x0, algorithm=algorithm, noise={"u_x": 1.0, "u_v": 0.0}), 20)
    np.testing.assert_array_equal(ppdc["x"], yi["x"])
