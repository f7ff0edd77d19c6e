"""Where the baselines go: fixed points, fitted rates, exactness on the paper's problem, what noise leaves behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment, Result, run
from dpp2.arrays import Array
from tests.algorithms.hosted import EXACT, NAMES, SILENT, Tables, gap, host, trace
from tests.core.programs import assert_close, fit, matrix, normal, problem

AGENTS, D = 8, 3
CURVATURES = [0.5, 1.0, 1.5, 2.0, 0.5, 1.0, 1.5, 2.0]
RING = matrix("ring", AGENTS)
CONVEX = problem("quadratic", AGENTS, dimension=D, curvature=CURVATURES)
TUNED: dict[str, Tables] = {  # for the small problem above
    "dpp2": {"damping": 0.5},
    "extra": {"alpha": 0.3},
    "gradient-tracking": {"alpha": 0.1},
    "diadsp": {"alpha": 0.1},
    "pgtc": {"alpha": 0.1},
    "prox-gpda": {"alpha": 0.2, "beta": 3.0},
    "yi": {"eta": 0.2, "gamma": 3.0, "omega": 3.0},
    "ppdc": {"eta": 0.2, "gamma": 3.0, "omega": 3.0},
}


def solution() -> tuple[Array, Array]:
    """x* of Σ ½c_i‖x − b_i‖², everybody's copy of it, and the gradients there."""
    gradient = CONVEX.objective(range(AGENTS), AGENTS)
    slope = -gradient(np.zeros((AGENTS, D)))[1]  # c_i b_i
    x = np.tile(slope.sum(axis=0) / np.sum(CURVATURES), (AGENTS, 1))
    return x, gradient(x)[1]


def at_rest(name: str, x: Array, g: Array, parameters: Tables) -> dict[str, Array]:
    """The state in which the algorithm should stay: x = x* and the duals that cancel the gradients."""
    nothing = np.zeros_like(x)
    if name == "extra":
        return {"x": x, "half": x, "grad": g}
    if name in ("gradient-tracking", "diadsp"):
        return {"x": x, "v": -g}
    if name == "prox-gpda":
        return {"x": x, "lam": -g}
    if name in ("yi", "ppdc"):
        return {"x": x, "v": -g / parameters["omega"]}
    if name == "pgtc":
        return {"x": x, "v": -g, "xc": x, "yc": nothing, "Lxc": nothing, "Lyc": nothing}
    assert name == "diff2"
    return {"x": x, "moved": nothing, "grad": g, "v": nothing}


@pytest.mark.parametrize("name", [*(name for name in EXACT if name != "dpp2"), "diff2"])
def test_started_at_the_optimum_with_its_duals_it_stays(name: str) -> None:
    x, g = solution()
    P = matrix("star", AGENTS) if name == "diff2" else RING
    parameters = TUNED.get(name, {})
    network = host(name, P, CONVEX, x, algorithm=parameters)
    network.restore(at_rest(name, x, g, parameters))
    after = trace(network, 12, first=1)  # a state in the middle of a run: round 0 has rules of its own
    assert_close(after["x"], np.tile(x, (13, 1, 1)), 1e-12)


@pytest.mark.parametrize("name", ["dgd", "wang-nedic", "dmsp", "privsgp-vr", "decor"])
def test_without_duals_the_optimum_is_no_place_to_stay(name: str) -> None:
    """Agents that agree on x* are pulled apart by their own gradients."""
    x, g = solution()
    after = trace(host(name, RING, CONVEX, x), 1)["x"][1]
    assert np.abs(after - x).max() > 1e-3 * np.abs(g).max()


def gaps_of(name: str, rounds: int, **settings: Any) -> Array:
    x0 = normal(AGENTS, D)
    run_ = trace(host(name, RING, CONVEX, x0, **settings), rounds)
    return np.array([gap(x, g) for x, g in zip(run_["x"], run_["grad"], strict=False)])


COMPRESSIONS: list[Tables] = [{"compressor": "none"}, {"compressor": "quantised"}, {"compressor": "top-k", "keep": 2}]


@pytest.mark.parametrize(
    ("name", "chosen"),
    [*((name, {}) for name in EXACT if name != "pgtc"), *(("pgtc", table) for table in COMPRESSIONS)],
)
def test_exact_methods_converge_linearly_on_a_strongly_convex_problem(name: str, chosen: Tables) -> None:
    """log gap falls along a line, from the first transient to the floor of float64."""
    gaps = gaps_of(name, 400, algorithm=TUNED[name] | chosen)
    falling = np.flatnonzero((gaps < 1e-2 * gaps[0]) & (gaps > 1e-24))
    slope, linear = fit(falling, np.log10(gaps[falling]))
    assert gaps[-1] < 1e-24
    assert -1 < slope < -0.03
    assert linear > 0.97


def test_dgd_with_a_constant_step_stops_at_a_distance_that_shrinks_with_its_square() -> None:
    floors = [gaps_of("dgd", 3000, algorithm={"alpha": alpha, "power": 0.0})[-1] for alpha in (0.01, 0.005)]
    assert floors[0] / floors[1] == pytest.approx(4, rel=0.05)


def test_dgd_with_a_shrinking_step_goes_on_slowly() -> None:
    """Gap ∝ α_k² = k^{−2·power}: a line in log–log, and no floor."""
    gaps = gaps_of("dgd", 4000, algorithm={"alpha": 0.3, "power": 0.5})
    k = np.geomspace(200, 3999, 40).astype(int)
    slope, linear = fit(np.log(k), np.log(gaps[k]))
    assert slope == pytest.approx(-1.0, abs=0.1)
    assert linear > 0.99


def test_weakening_overcomes_noise_that_does_not_decay() -> None:
    """With a constant coupling the same noise leaves a gap that does not fall."""
    noise = {"u_x": 0.3, "decay": 1.0}
    weakened = {"alpha": 0.3, "alpha_power": 1.0, "chi": 0.5, "chi_power": 0.6, "slowdown": 0.5}
    kept = weakened | {"chi_power": 0.0}
    falling, staying = (gaps_of("wang-nedic", 3000, algorithm=a, noise=noise) for a in (weakened, kept))
    assert falling[-200:].mean() < 0.25 * falling[100:300].mean()
    assert staying[-200:].mean() > 0.8 * staying[100:300].mean()


@pytest.mark.parametrize("name", ["prox-gpda", "yi", "ppdc"])
def test_primal_dual_methods_stay_exact_under_decaying_noise(name: str) -> None:
    noise = {"u_x": 1.0, "decay": 0.9} | ({"u_v": 0.0} if name == "ppdc" else {})
    assert gaps_of(name, 400, algorithm=TUNED[name], noise=noise)[-1] < 1e-24


@pytest.mark.parametrize("name", ["gradient-tracking", "diadsp", "pgtc"])
def test_tracking_ends_where_the_gradients_cancel_the_noise_that_was_added_to_y(name: str) -> None:
    """Σ y = Σ g + Σ_k Σ ξ^k is kept, and y → 0: the leak and the error of DiaDSP in one equation."""
    noise = {"u_x": 1.0, "u_y": 1.0, "decay": 0.9, "grid": 0}  # on a grid, the rounding of y adds up as well
    run_ = trace(host(name, RING, CONVEX, normal(AGENTS, D), algorithm=TUNED[name], noise=noise), 500)
    left = run_["grad"][-1].sum(axis=0) + run_["noise_y"].sum(axis=(0, 1))
    assert np.abs(run_["noise_y"].sum(axis=(0, 1))).max() > 0.1
    assert np.abs(left).max() < 1e-9


def test_noise_on_v_leaves_ppdc_off_by_its_sum() -> None:
    """Σ v is the sum of the noise added to it, and ωΣv + Σg = 0 where it rests."""
    noise = {"u_x": 1.0, "u_v": 1.0, "decay": 0.9}
    run_ = trace(host("ppdc", RING, CONVEX, normal(AGENTS, D), algorithm=TUNED["ppdc"], noise=noise), 500)
    left = run_["grad"][-1].sum(axis=0) + TUNED["ppdc"]["omega"] * run_["noise_v"].sum(axis=(0, 1))
    assert np.abs(left).max() < 1e-9


def on_paper_problem(name: str, rounds: int, algorithm: Tables | None = None, **more: Any) -> Result:
    tables: dict[str, Tables] = {
        "run": {"rounds": rounds, "telemetry": "none"},
        "algorithm": {"name": name, **(algorithm or {})},
        **more,
    }
    return run(Experiment.parse(tables), record=False)


@pytest.mark.parametrize(
    ("name", "rounds", "algorithm"),
    [
        ("dpp2", 200, {"damping": 1.0}),
        ("extra", 250, {}),
        ("gradient-tracking", 1000, {}),
        ("prox-gpda", 250, {}),
        ("yi", 300, {}),
        ("diadsp", 1000, {}),
        ("ppdc", 500, {"gamma": 65.0, "omega": 20.0, "eta": 0.02}),
        ("pgtc", 1000, {"compressor": "none"}),
        ("pgtc", 1000, {"compressor": "quantised"}),
        ("pgtc", 1000, {"compressor": "top-k"}),
    ],
)
def test_exact_methods_solve_the_papers_problem_to_1e_18(name: str, rounds: int, algorithm: Tables) -> None:
    """Without noise; the defaults are tuned for it, but for DPP² and PPDC, whose defaults are the paper's."""
    result = on_paper_problem(name, rounds, algorithm, noise=SILENT.get(name, {}))
    assert result.metrics.gap[-1] <= 1e-18


@pytest.mark.parametrize("name", NAMES)
def test_the_name_alone_is_a_run_on_the_papers_problem(name: str) -> None:
    """Nothing diverges, the gap falls, and ε or the reason for none is there."""
    result = on_paper_problem(name, 300)
    assert not result.diverged
    assert result.rounds == 300
    assert result.metrics.gap[-1] < 0.5 * result.metrics.gap[0]
    assert str(result.privacy.epsilon)
