"""Divergence is found and explained; a rise that the noise drives is not divergence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.programs import matrix, normal, problem
from dpp2 import Experiment, Result, Simulation, run
from dpp2.stability import Divergence, DivergenceDetector, Mode, explain, fastest_mode

QUADRATIC: dict[str, Any] = {
    "network.topology": "ring",
    "network.agents": 6,
    "problem.name": "quadratic",
    "problem.dimension": 2,
}
SILENT = {"noise.u_w": 0.0, "noise.u_e": 0.0}
COUNTEREXAMPLE: dict[str, Any] = {
    **SILENT,
    "network.topology": "complete",
    "network.agents": 3,
    "problem.name": "quadratic",
    "problem.dimension": 1,
    "problem.curvature": [-1.0, -1.0, 3.0],
    "problem.spread": 0.0,
}
DIVERGING: dict[str, tuple[dict[str, Any], str]] = {
    "negative curvature": (COUNTEREXAMPLE, "negative curvature"),
    "negative curvature under noise": (COUNTEREXAMPLE | {"noise.u_w": 1.0, "noise.u_e": 1.0}, "negative curvature"),
    "step too large for the curvature": (QUADRATIC | SILENT | {"problem.curvature": 30.0}, "step too large"),
    "rho too large": (QUADRATIC | SILENT | {"algorithm.rho": 150.0}, "step too large"),
    "damping too large": (QUADRATIC | {"algorithm.damping": 30.0}, "step too large"),
    "unbounded below": (QUADRATIC | SILENT | {"problem.curvature": -2.0}, "unbounded below"),
}


def divergence_of(overrides: dict[str, Any], rounds: int = 500) -> tuple[Result, Divergence]:
    result = run(Experiment.load(overrides={"run.rounds": rounds} | overrides))
    assert result.divergence is not None
    return result, result.divergence


@pytest.mark.parametrize("case", DIVERGING)
def test_divergence_is_found_and_its_cause_named(case: str) -> None:
    overrides, cause = DIVERGING[case]
    result, divergence = divergence_of(overrides)
    assert result.diverged
    assert divergence.cause == cause
    assert divergence.growth > 1
    assert f"grows by {divergence.growth:.4f} a round" in divergence.explanation


@pytest.mark.parametrize(("agents", "curvature"), [(6, -0.5), (20, -0.1), (50, -1.0)])
def test_a_sum_without_minimum_is_never_blamed_on_disagreement(agents: int, curvature: float) -> None:
    """All f_i = −½|c|x²: consensus grows by 1 + α|c|, faster than any disagreement, and no damping repairs it."""
    overrides = QUADRATIC | SILENT | {"network.agents": agents, "problem.curvature": curvature}
    _, divergence = divergence_of(overrides, rounds=1000)
    assert divergence.cause == "unbounded below"
    assert divergence.growth == pytest.approx(1 - 0.1 * curvature, rel=1e-3)


@pytest.mark.parametrize("case", DIVERGING)
def test_a_diverged_run_keeps_its_records(case: str) -> None:
    result, divergence = divergence_of(DIVERGING[case][0])
    assert result.rounds < 500
    assert result.rounds == divergence.round + 1
    assert result.observation is not None
    assert result.truth is not None
    assert len(result.observation.y) == len(result.truth.x) == result.rounds
    assert len(result.metrics.gap) == result.rounds + 1
    assert np.isfinite(result.metrics.gap[0])


@pytest.mark.parametrize("decay", [0.9, 0.99, 1.0])
def test_noise_is_no_false_alarm(decay: float) -> None:
    """The paper's experiment: the gap rises up to ten-thousand-fold, and at r = 1 stays there, without diverging."""
    simulation = Simulation(Experiment.load(overrides={"run.rounds": 400, "noise.decay": decay}), record=False)
    simulation.advance(400)
    result = simulation.result()
    assert result.divergence is None
    assert result.rounds == 400
    assert result.metrics.gap.max() > 3 * result.metrics.gap[0]


@pytest.mark.parametrize("u", [10.0, 1e3])
def test_huge_noise_is_no_false_alarm_either(u: float) -> None:
    overrides = QUADRATIC | {"noise.u_w": u, "noise.u_e": u, "run.rounds": 200, "algorithm.damping": 1.0}
    result = run(Experiment.load(overrides=overrides))
    assert result.divergence is None
    assert result.metrics.gap.max() > 50 * result.metrics.gap[0]


@pytest.mark.parametrize(
    ("damping", "u", "decay"), [(0.0, 3.0, 0.97), (0.0, 10.0, 0.9), (1.0, 30.0, 0.9), (1.0, 10.0, 0.97)]
)
def test_noise_through_negative_curvature_is_no_false_alarm(damping: float, u: float, decay: float) -> None:
    """x² + 3 sin² x is P-Ł with curvature −4 on the way: the noise throws agents there, and the run converges yet."""
    overrides = {"network.topology": "ring", "network.agents": 10, "problem.name": "sine", "run.rounds": 800}
    noise = {"algorithm.damping": damping, "noise.u_w": u, "noise.u_e": u, "noise.decay": decay}
    result = run(Experiment.load(overrides=overrides | noise), record=False)
    assert result.divergence is None
    assert result.metrics.gap[-1] < 1e-10


def test_a_start_at_the_solution_is_watched_without_a_warning() -> None:
    overrides = QUADRATIC | {"run.start": "zero", "problem.spread": 0.0, "run.rounds": 60}
    assert run(Experiment.load(overrides=overrides)).divergence is None


def test_the_advice_on_damping_works() -> None:
    """ "algorithm.damping above about X repairs it": a tenth more than X does, a tenth less does not."""
    _, divergence = divergence_of(COUNTEREXAMPLE)
    advised = float(divergence.explanation.split("above about ")[1].split()[0])
    assert advised == pytest.approx(0.1)
    divergence_of(COUNTEREXAMPLE | {"algorithm.damping": 0.9 * advised}, rounds=6000)
    repaired = run(Experiment.load(overrides=COUNTEREXAMPLE | {"run.rounds": 3000, "algorithm.damping": 1.5 * advised}))
    assert repaired.divergence is None
    assert repaired.metrics.gap[-1] < 1e-6 * repaired.metrics.gap[0]


def test_the_advice_on_the_step_works() -> None:
    overrides = DIVERGING["step too large for the curvature"][0]
    smaller = run(Experiment.load(overrides=overrides | {"algorithm.alpha": 0.05, "algorithm.beta": 0.02}))
    assert smaller.divergence is None
    assert smaller.metrics.gap[-1] < 1e-12


def test_a_run_that_overflows_ends_there() -> None:
    """Growth by 300 a round leaves the range of floats before the next look: it stops at once, without warnings."""
    result, divergence = divergence_of(QUADRATIC | SILENT | {"problem.curvature": 3000.0})
    assert divergence.cause == "step too large"
    assert divergence.round < 50
    assert result.metrics.gap[-1] > 1e90 or not np.isfinite(result.metrics.gap[-1])


def test_divergence_does_not_depend_on_the_blocks() -> None:
    causes = []
    for block in (1, 2, 4096):
        simulation = Simulation(Experiment.load(overrides=COUNTEREXAMPLE), block=block)
        simulation.advance(500)
        causes.append((simulation.divergence.round, simulation.divergence.cause) if simulation.divergence else None)
    assert causes[0] is not None
    assert len(set(causes)) == 1


# --- the mode that wins ---------------------------------------------------------------------------------------


@given(st.floats(1.5, 4), st.sampled_from(["ring", "path", "complete", "star"]), st.integers(3, 8))
@settings(max_examples=20, deadline=None)
def test_fastest_mode_of_equal_curvatures_is_the_one_the_formula_names(h: float, topology: str, agents: int) -> None:
    """−h on every agent: consensus grows by 1 + αh, the disagreement modes by √(1 + G_λh) only."""
    P = matrix(topology, agents)
    objective = problem("quadratic", agents, dimension=2, curvature=-h, spread=0.0).objective(range(agents), agents)
    mode = fastest_mode(normal(agents, 2), lambda x: objective(x)[1], P, 0.1, 0.04, 10.0, 0.0)
    assert mode.curvature == pytest.approx(-h, rel=1e-4)
    assert mode.eigenvalue == pytest.approx(0, abs=1e-4)


def test_fastest_mode_of_the_counterexample() -> None:
    """x_1 = −x_2: curvature −1, eigenvalue 1, growth √1.05."""
    section = problem("quadratic", 3, dimension=1, curvature=[-1.0, -1.0, 3.0], spread=0.0)
    objective = section.objective(range(3), 3)
    mode = fastest_mode(normal(3, 1), lambda x: objective(x)[1], matrix("complete", 3), 0.1, 0.05, 10.0, 0.0)
    assert mode.curvature == pytest.approx(-1, abs=0.02)
    assert mode.eigenvalue == pytest.approx(1, abs=1e-4)
    assert mode.growth(0.1, 0.05, 10.0, 0.0) == pytest.approx(1.05**0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("mode", "damping", "cause"),
    [
        (Mode(-1.0, 0.0, consensus=True), 0.0, "unbounded below"),
        (Mode(-1.0, 1.0), 0.0, "negative curvature"),
        (Mode(-1.0, 1.0), 0.05, "negative curvature"),
        (Mode(-1.0, 1.0), 1.0, "unexplained"),
        (Mode(1.0, 1.0), 0.0, "unexplained"),
        (Mode(1.0, 1.0), 10.0, "step too large"),
        (Mode(25.0, 0.0, consensus=True), 0.0, "step too large"),
    ],
)
def test_explanation_of_a_mode(mode: Mode, damping: float, cause: str) -> None:
    found = explain(mode, 0.1, 0.05, 10.0, damping, k=7)
    assert (found.cause, found.round) == (cause, 7)
    assert (found.growth > 1) == (cause != "unexplained")


def test_watch_without_an_analysis_still_stops_on_overflow() -> None:
    """An algorithm that offers no linearisation: the run ends when floats do, and says no more than that."""
    detector = DivergenceDetector(lambda x, k: None, lambda k, rounds: np.ones(rounds))
    x = [np.ones((2, 1))]
    detector.check(np.array([1.0]), 0, x)
    detector.check(np.array([1.0, 50.0]), 1, x)
    assert detector.divergence is None
    detector.check(np.array([1.0, 50.0, np.inf]), 2, x)
    assert detector.divergence is not None
    assert detector.divergence.cause == "unexplained"
