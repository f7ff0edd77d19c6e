"""The vectorised embedded driver against the deliberately dumb per-agent loop, and a tiny run frozen as literals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2 import Experiment, Result, Simulation
from dpp2.keys import RunKeys
from dpp2.prepared import PreparedRun, Secrets
from dpp2.problems import ProblemSection
from dpp2.weights import weight_matrix
from tests import dumb
from tests.core.programs import ETA_KEY, NOISE_KEY, assert_close, graph, problem, trace

AGENT_SECRET, ETA_SECRET, RUN_ID = b"a" * 32, b"b" * 32, "run-1"


def gradients_of(section: ProblemSection, agents: int) -> dumb.Gradient:
    """∇f_i through an objective that owns agent i alone, as an agent in a container would hold it."""
    own = [section.objective([i], agents) for i in range(agents)]
    return lambda i, x: own[i](np.array([x]))[1][0].tolist()


def per_agent(value: Any, agents: int) -> list[float]:
    return value if isinstance(value, list) else [value] * agents


def dumb_run(experiment: Experiment, x0: np.ndarray, dimension: int) -> dumb.History:
    """The resolved experiment through the dumb loop; keys derived by hand (keys.py)."""
    network, agents = experiment.network, experiment.network.agents
    algorithm, noise = experiment.algorithm.table(), experiment.noise.table()
    digest = experiment.digest.encode()
    run_key = dumb.hkdf(AGENT_SECRET, b"run key", RUN_ID.encode(), digest, b"")
    eta_key = dumb.hkdf(ETA_SECRET, b"eta key", RUN_ID.encode(), digest)
    u_w, u_e, decay = (per_agent(noise[key], agents) for key in ("u_w", "u_e", "decay"))

    def eta(k: int) -> float:
        given = algorithm["eta"]
        if given == "uniform":
            return dumb.uniform(dumb.word(eta_key, k, 0))
        return float(given[k] if isinstance(given, list) else given)

    return dumb.run(
        dumb.weight_rows(agents, [(i, j) for i, j in network.graph().edges.tolist()], network.weights),
        gradients_of(experiment.problem, agents),
        x0.tolist(),
        dumb.noise_of(run_key, "w", dimension, u_w, decay),
        dumb.noise_of(run_key, "e", dimension, u_e, decay),
        eta,
        experiment.run.rounds,
        **{key: algorithm[key] for key in ("alpha", "beta", "rho", "damping")},
    )


def assert_same_run(result: Result, by_hand: dumb.History) -> None:
    """Up to rounding, which grows with a run that diverges: a bounded gradient has the rounding of its x."""
    K = result.rounds
    largest = max(1.0, float(np.abs(by_hand.x).max()))
    assert result.observation is not None
    assert result.truth is not None
    for name in ("y", "z"):
        assert_close(result.observation[name], np.array(getattr(by_hand, name)[:K]))
    for name in ("x", "w", "e", "eta"):
        assert_close(result.truth[name], np.array(getattr(by_hand, name)[:K]))
    assert_close(result.truth["grad"], np.array(by_hand.grad[:K]), least=largest)
    assert_close(result.x, np.array(by_hand.x[K]))
    measured = [dumb.gap(x, g) for x, g in zip(by_hand.x, by_hand.grad, strict=False)]
    for column, part, source in (("consensus", 0, by_hand.x), ("stationarity", 1, by_hand.grad)):
        scale = max(largest, float(np.linalg.norm(np.array(source), axis=(1, 2)).max()))
        ours, theirs = (
            np.sqrt(result.metrics[column][:K]),
            np.sqrt([m[part] for m in measured[:K]]),
        )  # a run may end early
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11 * scale)
    np.testing.assert_array_equal(result.metrics.gap, result.metrics.consensus + result.metrics.stationarity)


PROBLEM_TABLES = st.one_of(
    st.builds(
        lambda curvature, spread: {"name": "quadratic", "curvature": curvature, "spread": spread},
        st.floats(-2, 5),
        st.floats(0, 3),
    ),
    st.builds(lambda rank: {"name": "least-squares", "samples": 3, "rank": rank, "noise": 0.5}, st.just(1)),
    st.builds(lambda tilt: {"name": "sine", "tilt": tilt}, st.floats(0, 2)),
    st.builds(lambda samples: {"name": "logistic", "samples": samples, "smoothness": 2.0}, st.integers(1, 6)),
)
TOPOLOGY = st.sampled_from(
    ["ring", "path", "star", "complete", "grid", "torus", "tree", "erdos-renyi", "small-world", "geometric"]
)


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    """Anything admissible: β is a drawn share of its bound, noise and η are on, off, scalar or per agent and round."""
    agents, rounds = draw(st.integers(2, 8)), draw(st.integers(1, 12))
    kind = draw(st.sampled_from(["metropolis", "laplacian", "plain"]))
    network = {"topology": draw(TOPOLOGY), "agents": agents}
    alpha = draw(st.floats(0.01, 0.5))
    largest = float(np.linalg.eigvalsh(weight_matrix(graph(**network), kind).toarray())[-1])  # type: ignore[arg-type]
    scale = st.one_of(st.just(0.0), st.floats(0.01, 3), st.lists(st.floats(0, 3), min_size=agents, max_size=agents))
    decay = st.one_of(st.sampled_from([0.0, 1.0]), st.lists(st.floats(0, 1), min_size=agents, max_size=agents))
    eta = st.one_of(
        st.just("uniform"), st.floats(0.01, 1), st.lists(st.floats(0.01, 1), min_size=rounds, max_size=rounds)
    )
    return Experiment.parse(
        {
            "run": {"rounds": rounds, "seed": draw(st.integers(0, 99))},
            "network": {**network, "weights": kind},
            "problem": {"dimension": draw(st.integers(1, 3)), **draw(PROBLEM_TABLES)},
            "algorithm": {
                "alpha": alpha,
                "beta": draw(st.floats(0.01, 0.99)) * alpha / largest,
                "rho": draw(st.floats(0.1, 20)),
                "damping": draw(st.one_of(st.just(0.0), st.floats(0.1, 3))),
                "eta": draw(eta),
            },
            "noise": {"u_w": draw(scale), "u_e": draw(scale), "decay": draw(decay), "grid": 0},
        }
    )


BLOCK = st.sampled_from([1, 2, 3, 5, 4096])


def check_against_the_dumb_loop(experiment: Experiment, block: int) -> None:
    simulation = Simulation(PreparedRun.of(experiment, Secrets(AGENT_SECRET, ETA_SECRET, RUN_ID)), block=block)
    assert max(len(part.state.x) for part in simulation.driver.blocks) <= block
    x0 = np.concatenate(simulation.driver.x)
    simulation.advance(simulation.remaining)
    assert_same_run(simulation.result(), dumb_run(simulation.experiment, x0, simulation.driver.dimension))


@settings(max_examples=25, deadline=None)
@given(experiments(), BLOCK)
def test_embedded_driver_equals_the_dumb_loop(experiment: Experiment, block: int) -> None:
    """Messages, truth, end and metrics agree to 1e-12 of their scale, whatever the block size."""
    check_against_the_dumb_loop(experiment, block)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(experiments(), BLOCK)
def test_embedded_driver_equals_the_dumb_loop_on_many_more_draws(experiment: Experiment, block: int) -> None:
    check_against_the_dumb_loop(experiment, block)


def test_blocks_of_any_size_compute_the_same_run() -> None:
    """Rows in two dozen blocks or in one: the same noise words, and the same iterates up to summation order."""
    experiment = Experiment.load(overrides={"run.rounds": 40, "network.agents": 24, "problem.samples": 10})
    runs = []
    for block in (1, 7, 24):
        simulation = Simulation(experiment, block=block)
        simulation.advance(40)
        runs.append(simulation.result())
    assert runs[0].truth is not None
    for other in runs[1:]:
        assert other.truth is not None
        for name in ("w", "e", "eta"):
            np.testing.assert_array_equal(other.truth[name], runs[0].truth[name])
        assert_close(other.truth.x, runs[0].truth.x)
        assert_close(other.x, runs[0].x)


def test_advancing_in_pieces_is_the_same_run() -> None:
    experiment = Experiment.load(overrides=["run.rounds=30", "network.agents=10", "network.topology=ring"])
    whole, pieces = Simulation(experiment), Simulation(experiment)
    whole.advance(30)
    for rounds in (1, 13, 1, 100):
        pieces.advance(rounds)
    assert pieces.k == 30
    np.testing.assert_array_equal(pieces.result().x, whole.result().x)
    in_pieces, at_once = pieces.result().observation, whole.result().observation
    assert in_pieces is not None
    assert at_once is not None
    np.testing.assert_array_equal(in_pieces.z, at_once.z)


def test_a_restored_state_goes_on_as_if_it_had_never_stopped() -> None:
    experiment = Experiment.load(overrides=["run.rounds=20", "network.agents=9", "network.topology=torus"])
    whole, stopped = Simulation(experiment), Simulation(experiment)
    whole.advance(20)
    stopped.advance(8)
    resumed = Simulation(experiment, block=4)
    snapshot = stopped.snapshot()
    stopped.advance(20)  # a snapshot stays as it was taken
    resumed.restore(snapshot)
    resumed.advance(20)
    assert_close(resumed.result().x, whole.result().x)
    np.testing.assert_array_equal(resumed.result().metrics.gap[:8], whole.result().metrics.gap[:8])


# A path of 3 agents, d = 2, f_i = ½c_i‖x‖² with c = (1, 2, −1), x⁰ as below, α = .1, β = .05, ρ = 10, u_w = .5,
# u_e = 1, r = .9, noise key 00…1f, η key 20…3f, 3 rounds. Origin: printed by tests/dumb.py's loop, which shares
# no code with the product, on 2026-11-16; {damping: (η, y^2, z^2, x^3)}.
GOLDEN_X0 = [[1.0, -2.0], [0.5, 0.25], [-3.0, 4.0]]
GOLDEN: dict[float, tuple[list[float], list[list[float]], list[list[float]], list[list[float]]]] = {
    0.0: (
        [0.12694095399207683, 0.619046174711768, 0.6796477275063645],
        [
            [2.057520616029045, -3.2335445111728225],
            [1.0761291449823216, -1.8736658818140053],
            [-3.0181398863039184, 3.3069594694713764],
        ],
        [
            [5.903686221335305, -6.688294531518618],
            [20.824543821256764, -37.5334629300725],
            [-24.230298369447716, 41.58257408889334],
        ],
        [
            [0.49205225853231893, -0.6052822574900069],
            [-0.33885920096232847, 1.1538519948870398],
            [0.49181532896067304, -1.91605948275873],
        ],
    ),
    1.0: (
        [0.12694095399207683, 0.619046174711768, 0.6796477275063645],
        [
            [2.3079157904868044, -3.7247836491053996],
            [1.0460238497483925, -0.6732553386281569],
            [-2.1527742789763495, 0.18324827589703307],
        ],
        [
            [6.773079628741225, -12.392342629538541],
            [13.147985626295362, -10.748981234767088],
            [-19.548558995122406, 24.683523892390536],
        ],
        [
            [0.03902819400842017, 0.0615922870041943],
            [-0.22495801315199426, 0.6115472944354183],
            [1.2358202227738544, -2.7644332821869115],
        ],
    ),
}


@pytest.mark.parametrize("damping", [0.0, 1.0])
@pytest.mark.parametrize("how", ["dumb", "vectorised", "blocks of one"])
def test_a_tiny_run_gives_the_golden_vectors(damping: float, how: str) -> None:
    section = problem("quadratic", 3, dimension=2, curvature=[1.0, 2.0, -1.0], spread=0.0)
    noise = {"u_w": 0.5, "u_e": 1.0, "decay": 0.9, "grid": 0}
    parameters = {"alpha": 0.1, "beta": 0.05, "rho": 10.0, "damping": damping}
    run: Any
    if how == "dumb":
        w, e = (dumb.noise_of(NOISE_KEY, p, 2, [u] * 3, [0.9] * 3) for p, u in (("w", 0.5), ("e", 1.0)))
        run = dumb.run(
            dumb.weight_rows(3, [(0, 1), (1, 2)], "metropolis"),
            lambda i, x: [(1.0, 2.0, -1.0)[i] * c for c in x],
            GOLDEN_X0,
            w,
            e,
            lambda k: dumb.uniform(dumb.word(ETA_KEY, k, 0)),
            3,
            **parameters,
        )
    else:
        P = weight_matrix(graph("path", 3), "metropolis")
        run = trace(P, section, np.array(GOLDEN_X0), 3, noise=noise, block=1 if "one" in how else 4096, **parameters)
    eta, y, z, x = GOLDEN[damping]
    assert_close(run.eta, eta, 1e-15)
    assert_close(run.y[2], y)
    assert_close(run.z[2], z)
    assert_close(run.x[3], x)


def test_embedded_run_keys_are_those_of_the_specification() -> None:
    """run key = HKDF(agent's key; run id, experiment, data); η key = HKDF(η key; run id, experiment)."""
    keys = RunKeys.of([AGENT_SECRET] * 2, ETA_SECRET, "id", "digest", [b"", b"data"])
    assert keys.noise == (
        dumb.hkdf(AGENT_SECRET, b"run key", b"id", b"digest", b""),
        dumb.hkdf(AGENT_SECRET, b"run key", b"id", b"digest", b"data"),
    )
    assert keys.eta == dumb.hkdf(ETA_SECRET, b"eta key", b"id", b"digest")
