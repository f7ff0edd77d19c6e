"""Divergence is found and explained; a rise that the noise drives is not divergence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2 import Experiment, Result, Simulation, run
from dpp2.algorithms.modes import Mode, StepParameters, explain, fastest_mode, spectral_radius
from dpp2.arrays import Array
from dpp2.stability import Divergence, DivergenceDetector
from tests.core.programs import matrix, normal, problem

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
STEP = StepParameters(alpha=0.1, beta=0.05, rho=10.0)
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
    result, divergence = divergence_of(QUADRATIC | SILENT | {"problem.curvature": 3000.0, "run.largest_value": 1e300})
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
    mode = fastest_mode(normal(agents, 2), lambda x: objective(x)[1], P, StepParameters(0.1, 0.04, 10.0))
    assert mode.curvature == pytest.approx(-h, rel=1e-4)
    assert mode.eigenvalue == pytest.approx(0, abs=1e-4)


def test_fastest_mode_of_the_counterexample() -> None:
    """x_1 = −x_2: curvature −1, eigenvalue 1, growth √1.05."""
    section = problem("quadratic", 3, dimension=1, curvature=[-1.0, -1.0, 3.0], spread=0.0)
    objective = section.objective(range(3), 3)
    mode = fastest_mode(normal(3, 1), lambda x: objective(x)[1], matrix("complete", 3), STEP)
    assert mode.curvature == pytest.approx(-1, abs=0.02)
    assert mode.eigenvalue == pytest.approx(1, abs=1e-4)
    assert mode.growth(STEP) == pytest.approx(1.05**0.5, abs=1e-3)


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
    found = explain(mode, replace(STEP, damping=damping), k=7)
    assert (found.cause, found.round) == (cause, 7)
    assert (found.growth > 1) == (cause != "unexplained")


@given(
    st.sampled_from(["ring", "path", "complete", "star"]),
    st.integers(3, 6),
    st.sampled_from([0.0, 0.01, 1.0]),
    st.integers(0, 99),
)
@settings(max_examples=20, deadline=None)
def test_spectral_radius_is_that_of_a_round(topology: str, agents: int, damping: float, seed: int) -> None:
    """Against the matrix of one round on (x, q), written out; its idle eigenvalue is q common to all agents."""
    curvature = np.random.default_rng(seed).uniform(-1, 3, agents)
    P, step = matrix(topology, agents), StepParameters(0.1, 0.04, 10.0, damping)
    section = problem("quadratic", agents, dimension=2, curvature=curvature.tolist(), spread=0.0)
    objective = section.objective(range(agents), agents)
    H, L, one = np.diag(curvature), P.toarray(), np.eye(agents)
    G = 0.1 * one - 0.04 * L
    once = np.block([[one - G @ (H + (1 + damping) * 10 * L), -G], [10 * L, one]])
    values = np.linalg.eigvals(once)
    idle = np.argmin(np.abs(values - 1))
    expected = np.abs(np.delete(values, idle)).max()
    assert spectral_radius(normal(agents, 2), lambda x: objective(x)[1], P, step) == pytest.approx(expected, abs=1e-6)


# --- slow divergence ------------------------------------------------------------------------------------------


def slow(curvature: float, rounds: int = 10_000, **changes: Any) -> Result:
    """The counterexample with little curvature: x_1 = −x_2 grows by √(1 − G_λ(c + τρλ)), with G_λ = 1/20 and λ = 1."""
    overrides = {"run.rounds": rounds, "problem.curvature": [curvature, curvature, 3.0]}
    changed = {name.replace("__", "."): value for name, value in changes.items()}
    return run(Experiment.load(overrides=COUNTEREXAMPLE | overrides | changed), record=False)


NOISY: dict[str, Any] = {"noise__u_w": 1.0, "noise__u_e": 1.0}


@pytest.mark.parametrize("noise", [{}, NOISY], ids=["silent", "noisy"])
@pytest.mark.parametrize("curvature", [-0.02, -0.03, -0.04, -0.05, -0.06, -0.07])
def test_slow_divergence_is_found_and_explained(curvature: float, noise: dict[str, Any]) -> None:
    """Growth by 0.05 to 0.18 % a round, which would reach gaps of 1e6 to 1e29 in 20,000 rounds."""
    result = slow(curvature, **noise)
    assert result.divergence is not None
    assert result.divergence.cause == "negative curvature"
    assert result.divergence.growth == pytest.approx((1 - 0.05 * curvature) ** 0.5, abs=2e-5)
    assert result.metrics.gap.max() < 1000 * result.metrics.gap[0]
    assert f"h = {curvature:.3g} is below" in result.divergence.explanation


@pytest.mark.parametrize("noise", [{}, NOISY], ids=["silent", "noisy"])
@pytest.mark.parametrize(("curvature", "damping"), [(0.02, 0.0), (0.07, 0.0), (-0.02, 0.003), (-0.07, 0.009)])
def test_slow_convergence_is_not_accused(curvature: float, damping: float, noise: dict[str, Any]) -> None:
    """The same family just on the other side: radii of 0.9995 to 0.998."""
    result = slow(curvature, 5000, algorithm__damping=damping, **noise)
    assert result.divergence is None
    assert result.metrics.gap[4000:].max() < 0.2 * result.metrics.gap[:1000].max()


@pytest.mark.parametrize("curvature", [-0.03, -0.07])
def test_slow_divergence_of_a_network_too_large_for_eigenvalues(curvature: float) -> None:
    """3 · 30 numbers: here the trial decides, which goes on for as long as the run has been."""
    result = slow(curvature, problem__dimension=30, **NOISY)
    assert result.divergence is not None
    assert result.divergence.cause == "negative curvature"


def test_slow_convergence_of_a_network_too_large_for_eigenvalues() -> None:
    assert slow(0.02, problem__dimension=30, **NOISY).divergence is None


@pytest.mark.parametrize("name", ["extra", "gradient-tracking"])
@pytest.mark.parametrize("curvature", [-0.02, 0.02])
def test_slow_divergence_of_algorithms_without_an_analysis(name: str, curvature: float) -> None:
    """Every f_i = ½c‖x‖²: the agreed point grows, or shrinks, by a factor of 1 − αc a round."""
    overrides = QUADRATIC | {"algorithm.name": name, "algorithm.alpha": 0.08, "problem.curvature": curvature}
    result = run(Experiment.load(overrides=overrides | {"run.rounds": 5000}), record=False)
    assert result.diverged == (curvature < 0)


# --- noise that adds up in a dual or tracking variable --------------------------------------------------------


def baseline(name: str, topology: str, agents: int, rounds: int, u: float = 30.0, **changes: Any) -> Result:
    """An algorithm without an analysis on least squares, with all its noise at one scale."""
    scales = Experiment.load(overrides={"algorithm.name": name}).noise.scales
    noise = {f"noise.{scale}": u for scale in scales} | {"noise.decay": 0.995}
    network = {"network.topology": topology, "network.agents": agents}
    data = {"problem.name": "least-squares", "problem.samples": 4, "problem.dimension": 3}
    changed = {key.replace("__", "."): value for key, value in changes.items()}
    overrides = {"algorithm.name": name, "run.rounds": rounds} | network | data | noise | changed
    return run(Experiment.load(overrides=overrides), record=False)


@pytest.mark.parametrize(
    ("name", "topology", "agents"),
    [
        ("diadsp", "ring", 8),
        ("ppdc", "ring", 8),
        ("ppdc", "complete", 4),
        ("ppdc", "path", 12),
        ("extra", "star", 6),
        ("gradient-tracking", "star", 6),
    ],
)
def test_noise_that_adds_up_is_not_accused(name: str, topology: str, agents: int) -> None:
    """The gap rises a thousandfold and more, even on a trial without noise, and then it stays where it is."""
    result = baseline(name, topology, agents, 2000)
    gap = result.metrics.gap
    assert result.divergence is None
    assert gap.max() > 1000 * gap[0]
    assert gap[1500:].max() < 1.1 * gap[1500:].min()


@pytest.mark.parametrize("u", [0.0, 30.0], ids=["silent", "noisy"])
@pytest.mark.parametrize(("name", "alpha"), [("extra", 0.5), ("diadsp", 0.2), ("gradient-tracking", 0.2)])
def test_a_baseline_with_too_large_a_step_is_found(name: str, alpha: float, u: float) -> None:
    result = baseline(name, "ring", 8, 2000, u, algorithm__alpha=alpha)
    assert result.divergence is not None
    assert result.divergence.cause == "unexplained"
    assert "a smaller algorithm.alpha" in result.divergence.explanation


# --- the detector by itself -----------------------------------------------------------------------------------


@dataclass
class Course:
    """A run whose noise-free gap changes by a factor every round, and oscillates."""

    factor: float
    radius: float = float("nan")
    tried: int = 0  # rounds on trial

    @property
    def x(self) -> Array:
        return np.ones((2, 1))

    def trial(self, k: int) -> Course:
        return self

    def gaps(self, rounds: int) -> Array:
        at = np.arange(self.tried, self.tried + rounds)
        self.tried += rounds
        return np.asarray(self.factor**at * (1.1 + np.cos(at / 40)))

    def spectral_radius(self, x: Array) -> float:
        return self.radius

    def instability(self, x: Array, k: int) -> Divergence | None:
        return None


@dataclass
class Pushed(Course):
    """A run under a constant push: x moves by the same step every round, or comes to rest after so many of them."""

    rest: float = float("inf")

    def gaps(self, rounds: int) -> Array:
        at = np.arange(self.tried, self.tried + rounds)
        self.tried += rounds
        moved = at if np.isinf(self.rest) else self.rest * (1 - np.exp(-at / self.rest))
        return np.asarray(1.0 + moved) ** 2


@pytest.mark.parametrize("rest", [50.0, 200.0, 1000.0, float("inf")])
def test_a_constant_push_is_not_taken_for_growth_by_a_factor(rest: float) -> None:
    assert not judged(Pushed(1.0, rest=rest), 25)


@pytest.mark.parametrize("rate", [1e-2, 1.5e-2, 3e-2, 1e-1])
def test_growth_by_a_factor_is_found_in_a_young_run(rate: float) -> None:
    course = Course(1 + rate)
    assert judged(course, 25)
    assert course.tried <= 1200


def judged(course: Course, k: int) -> bool:
    """Whether a gap that has risen a hundredfold in k rounds is divergence."""
    detector = DivergenceDetector(course)
    gaps = np.geomspace(1.0, 100.0, k + 1)
    detector.check(gaps, 0, [np.ones((2, 1))])
    detector.check(gaps, k, [np.ones((2, 1))])
    return detector.divergence is not None


@pytest.mark.parametrize("rate", [1e-4, 3e-4, 1e-3, 3e-3, 1e-2])
def test_growth_that_has_lifted_the_gap_is_found_however_slow(rate: float) -> None:
    k = int(np.log(100) / rate)
    course = Course(1 + rate)
    assert judged(course, k)
    assert course.tried <= max(200, k)
    assert not judged(Course(1 - rate), k)
    assert not judged(Course(1.0), k)


def test_a_trial_is_short_where_the_gap_falls_or_the_iteration_is_known_to_be_stable() -> None:
    for course in (Course(0.98), Course(1.0, radius=0.9999), Course(0.9999, radius=1.0)):
        assert not judged(course, 10_000)
        assert course.tried == 200


def test_a_radius_above_one_gives_a_trial_the_time_it_needs() -> None:
    assert judged(Course(1.0005**2, radius=1.0005), 300)
    assert not judged(Course(1.0005**2), 300)


def test_an_overflow_ends_a_run_that_nobody_can_analyse() -> None:
    """An algorithm that offers no linearisation: the run ends when floats do, and says no more than that."""
    detector = DivergenceDetector(Course(0.9))
    x = [np.ones((2, 1))]
    detector.check(np.array([1.0]), 0, x)
    detector.check(np.array([1.0, 50.0]), 1, x)
    assert detector.divergence is None
    detector.check(np.array([1.0, 50.0, np.inf]), 2, x)
    assert detector.divergence is not None
    assert detector.divergence.cause == "unexplained"


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_that_mixing_takes_away_within_a_cycle_raises_no_suspicion(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial costs 200 rounds, where a whole run has 88 (Laplace noise, ε = 10): the watch looks between cycles."""
    trials: list[int] = []
    monkeypatch.setattr("dpp2.simulation._Watched.trial", lambda self, k: trials.append(k))
    settings = {"algorithm.name": "dpp3", "noise.kind": kind, "privacy.budget": 10.0, "run.seed": 3}
    simulation = Simulation(Experiment.load(overrides=settings))
    simulation.advance(simulation.remaining)
    assert not trials


def test_a_run_in_cycles_that_diverges_is_still_seen() -> None:
    settings = {"algorithm.name": "dpp3", "algorithm.alpha": 500.0, "algorithm.gradient_rounds": 40}
    simulation = Simulation(Experiment.load(overrides={**settings, "network.agents": 10, "problem.name": "quadratic"}))
    simulation.advance(simulation.remaining)
    assert simulation.divergence is not None
