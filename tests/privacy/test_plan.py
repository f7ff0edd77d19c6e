"""The planner: its model against Monte Carlo, its plans against the accountant, damping against none."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from dpp2.algorithms.base import AlgorithmSection
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.experiment import Experiment
from dpp2.privacy import Dpp2Releases, Epsilon, Unsupported, epsilon
from dpp2.privacy.plan import frontier, plan
from dpp2.privacy.plans import LOOKED, SURROGATE, Effort, Plan, Plans
from dpp2.privacy.response import Candidates, Response, linearise
from dpp2.privacy.trials import TrialSettings, final_gaps, response_of, solve, surrogate
from dpp2.problems.base import Sampled

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ALPHA, BETA, RHO = 0.1, 0.05, 10.0
STEPS = (ALPHA, BETA, RHO)
SETTINGS = [(1, 1.0, 0.0), (4, 0.8, 1.5), (12, 0.9, 0.0), (12, 0.9, 1.0), (40, 0.95, 2.0)]  # K, r, τ
QUICK = Effort(most_rounds=60, generations=5, finalists=2, trials=1, climbs=1)
MODEL_ONLY = Effort(most_rounds=60, generations=5, trials=0)
ON_DATA = replace(QUICK, on_data=True)
KEPT = replace(MODEL_ONLY, free_ratio=False, free_steps=False)


def quadratic(**overrides: Any) -> Experiment:
    tables = {"network.topology": "ring", "network.agents": 6, "problem.name": "quadratic", "problem.dimension": 2}
    return Experiment.load(overrides=tables | {"run.rounds": 60} | overrides)


def logistic(**overrides: Any) -> Experiment:
    """The paper's problem, smaller."""
    tables = {"network.agents": 12, "network.radius": 0.5, "problem.dimension": 3, "problem.samples": 40}
    return Experiment.load(overrides=tables | {"problem.smoothness": 5.0, "run.rounds": 120} | overrides)


def expected(response: Response, K: int, r: float, tau: float, u_w: float, u_e: float) -> float:
    return float(response.gap(Candidates(*np.array([[K, r, tau, u_w, u_e, *STEPS]]).T))[0])


def planned(experiment: Experiment, budget: float, smoothness: float, effort: Effort = QUICK) -> Plans:
    found = plan(experiment, budget, 0.1, smoothness, effort=effort)
    assert isinstance(found, Plans)
    return found


def spent(found: Plan, smoothness: float, dimension: int) -> float:
    mechanism = Dpp2Releases(
        dimension=dimension,
        alpha=found.alpha,
        smoothness=smoothness,
        adjacency=0.1,
        u_e=found.u_e,
        u_w=found.u_w,
        decay=found.decay,
        bits=20,
    )
    figure = epsilon(mechanism, found.rounds)
    assert isinstance(figure, Epsilon)
    assert figure.value is not None
    return figure.value


class TestModel:
    """Exact for quadratics of equal curvature: everything else is measured."""

    agents, curvature = 6, 0.7

    def ring(self) -> Array:
        shift = np.roll(np.eye(self.agents), 1, axis=0)
        return np.asarray((2 * np.eye(self.agents) - shift - shift.T) / 3)

    def response(self, centres: Array, start: Array, variance: float) -> Response:
        def gradient(x: Array) -> Array:
            return self.curvature * (x - centres)

        return linearise(self.ring(), gradient, centres.mean(axis=0), start, variance)

    def gaps(self, x: Array, centres: Array, K: int, r: float, tau: float, u_w: float, u_e: float) -> Array:
        """Final gaps of many runs (runs, N, d) at once, by the iteration of algorithms/dpp2.py, written out anew."""
        rng, P = np.random.default_rng(1), self.ring()
        q = np.zeros_like(x)
        for k in range(K):
            s = x + rng.laplace(size=x.shape) * u_w * r**k
            e = rng.laplace(size=x.shape) * u_e * r**k
            z = self.curvature * (x - centres) + q + (1 + tau) * RHO * (P @ s)
            x, q = s - ALPHA * z + BETA * (P @ (z + e)), q + RHO * (P @ s)
        total = self.curvature * (x - centres).sum(axis=1)
        consensus = ((x - x.mean(axis=1, keepdims=True)) ** 2).sum(axis=(1, 2))
        return np.asarray(consensus + (total**2).sum(axis=1) / self.agents)

    @pytest.mark.parametrize(("K", "r", "tau"), SETTINGS)
    def test_expected_gap_equals_monte_carlo(self, K: int, r: float, tau: float) -> None:
        rng = np.random.default_rng(0)
        centres = rng.standard_normal((self.agents, 2))
        response = self.response(centres, np.zeros_like(centres), 1.0)
        gaps = self.gaps(rng.standard_normal((4000, self.agents, 2)), centres, K, r, tau, 0.8, 3.0)
        error = gaps.std(ddof=1) / math.sqrt(len(gaps))
        assert abs(expected(response, K, r, tau, 0.8, 3.0) - gaps.mean()) < 3 * error

    @pytest.mark.parametrize(("K", "r", "tau"), SETTINGS)
    def test_gap_without_noise_is_exact_from_a_given_start(self, K: int, r: float, tau: float) -> None:
        """Cross moments of x⁰ − x* and ∇f(x*) included."""
        rng = np.random.default_rng(2)
        centres, start = rng.standard_normal((self.agents, 2)), rng.standard_normal((self.agents, 2))
        gap = self.gaps(start[None], centres, K, r, tau, 0.0, 0.0)[0]
        assert expected(self.response(centres, start, 0.0), K, r, tau, 0.0, 0.0) == pytest.approx(gap, rel=1e-6)

    def test_embedded_runs_have_the_expected_gap(self) -> None:
        solved = solve(quadratic().resolve())
        response = response_of(solved)
        gaps = np.array(list(final_gaps(solved, TrialSettings(8, 0.9, 0.5, 0.5, 2.0, *STEPS), range(60))))
        error = gaps.std(ddof=1) / math.sqrt(len(gaps))
        assert abs(expected(response, 8, 0.9, 0.5, 0.5, 2.0) - gaps.mean()) < 3 * error

    def test_candidates_are_independent_of_each_other(self) -> None:
        """They are advanced together and finish at different rounds."""
        response = self.response(np.eye(self.agents)[:, :2], np.zeros((self.agents, 2)), 1.0)
        rng = np.random.default_rng(3)
        steps = np.array([[ALPHA], [BETA], [RHO]]) * rng.uniform(0.5, 1, (3, 50))
        candidates = Candidates(rng.integers(1, 30, 50).astype(float), *rng.uniform(0.5, 1, (4, 50)), *steps)
        alone = [float(response.gap(candidates[slice(n, n + 1)])[0]) for n in range(50)]
        assert response.gap(candidates) == pytest.approx(alone)

    def test_equal_eigenvalues_take_the_curvature_that_is_there(self) -> None:
        """The counterexample of modes.py: on the complete graph the mode (1, −1, 0) has curvature −1 and grows."""
        curvature = np.array([[-1.0], [-1.0], [3.0]])
        response = linearise(np.eye(3) - 1 / 3, lambda x: curvature * x, np.zeros(1), np.zeros((3, 1)), 1.0)
        rounds = np.arange(200.0, 400.0)
        same = np.ones_like(rounds)
        gaps = response.gap(Candidates(rounds, same, *[0 * same] * 3, *(step * same for step in STEPS)))
        slope = np.polyfit(rounds, np.log(gaps), 1)[0]  # fitted, because the mode turns while it grows
        assert slope == pytest.approx(math.log(1.05), rel=0.02)
        assert expected(response, 300, 1.0, 1.0, 0.0, 0.0) < 1

    def test_curvature_falls_with_the_spread_of_a_logistic_loss(self) -> None:
        response = response_of(solve(logistic().resolve()))
        consensus = response.curvature[:, 0].mean(axis=1)
        assert consensus[0] > 2
        assert consensus[-1] < 0.05
        assert (np.diff(consensus) < 0.05).all()


class TestPlans:
    @pytest.mark.parametrize("budget", [0.5, 20.0, 1e3])
    @pytest.mark.parametrize("effort", [QUICK, MODEL_ONLY], ids=["runs", "model"])
    def test_every_plan_keeps_its_budget(self, budget: float, effort: Effort) -> None:
        found = planned(logistic(), budget, 5.0, effort)
        for one in (found.undamped, found.damped):
            assert budget * (1 - 1e-9) <= one.epsilon <= budget
            assert spent(one, 5.0, 3) == one.epsilon
            assert 1 <= one.rounds <= 60
            assert SURROGATE in one.notes
            assert one.beta < one.alpha / 2  # G ≻ 0: λ_max(P) < 2
        assert found.undamped.damping == 0
        assert found.damped.damping > 0

    @pytest.mark.parametrize("effort", [QUICK, MODEL_ONLY], ids=["runs", "model"])
    def test_more_budget_is_never_worse(self, effort: Effort) -> None:
        budgets = [300.0, 1.0, 10.0, 60.0]
        found = frontier(logistic(), budgets, 0.1, 5.0, effort=effort)
        assert isinstance(found, tuple)
        assert [point.budget for point in found] == sorted(budgets)
        for gaps in ([p.undamped.gap for p in found], [p.damped.gap for p in found], [p.chosen.gap for p in found]):
            assert (np.diff(gaps) <= 0).all()
        assert all(one.epsilon <= point.budget for point in found for one in (point.undamped, point.damped))

    def test_damping_beats_the_papers_algorithm(self) -> None:
        found = planned(logistic(), 1000.0, 5.0, replace(QUICK, free_ratio=False, free_steps=False))
        assert found.chosen is found.damped
        assert found.damped.gap < found.undamped.gap / 3
        assert found.worthwhile

    def test_figures_come_from_fresh_runs_and_repeat(self) -> None:
        found, again = planned(logistic(), 100.0, 5.0).chosen, planned(logistic(), 100.0, 5.0).chosen
        assert found == again
        assert found.spread is not None
        assert found.measured_gap is not None
        assert found.geometric_gap is not None
        assert found.spread[0] <= found.geometric_gap <= found.measured_gap <= found.spread[1]

    def test_a_budget_that_is_too_small_says_so(self) -> None:
        found = planned(logistic(**{"run.start": "zero"}), 0.01, 5.0, KEPT)
        assert not found.worthwhile
        assert "beats the starting point" in " ".join(found.notes)
        from_afar = planned(logistic(), 0.5, 5.0, MODEL_ONLY)
        assert 'run.start = "zero"' in " ".join(from_afar.notes)

    def test_the_ratio_of_the_scales_and_the_steps_are_planned_too(self) -> None:
        """e reaches x through βLe only: more of it, and less w, does less harm for the same ε."""
        given, ratio, free = (
            planned(logistic(), 100.0, 5.0, effort).damped
            for effort in (KEPT, replace(MODEL_ONLY, free_steps=False), replace(MODEL_ONLY, generations=20))
        )
        assert given.u_e == given.u_w
        for kept in (given, ratio):
            assert (kept.alpha, kept.beta, kept.rho) == STEPS
        assert ratio.u_e > 4 * ratio.u_w
        assert ratio.gap < given.gap / 4
        assert free.gap < ratio.gap / 3
        assert spent(free, 5.0, 3) <= 100

    def test_noise_that_buys_nothing_is_not_planned(self) -> None:
        """w⁰ costs no ε, whatever its scale: in a single round all of w is for nothing."""
        one_round = replace(QUICK, most_rounds=1, free_steps=False)
        start = {"run.start": "zero"}
        wasteful = planned(logistic(**start), 1.0, 5.0, replace(one_round, free_ratio=False)).chosen
        found = planned(logistic(**start), 1.0, 5.0, one_round).chosen
        assert found.u_w < 1e-3 * found.u_e
        assert found.gap < wasteful.gap / 5

    def test_one_factor_scales_the_experiments_noise_if_it_is_to_be_kept(self) -> None:
        found = planned(quadratic(**{"noise.u_e": 3.0, "noise.u_w": 0.5}), 10.0, 1.0, KEPT).chosen
        assert found.u_e / found.u_w == pytest.approx(6)

    @pytest.mark.parametrize(("u_e", "u_w", "ratio"), [(0.0, 0.0, 1), (0.0, 0.4, 1)])
    def test_a_scale_of_zero_is_replaced(self, u_e: float, u_w: float, ratio: float) -> None:
        found = planned(quadratic(**{"noise.u_e": u_e, "noise.u_w": u_w}), 10.0, 1.0, KEPT)
        assert found.chosen.u_e / found.chosen.u_w == pytest.approx(ratio)
        assert "a scale of 0" in found.notes[0]

    def test_where_the_papers_algorithm_diverges_damping_is_chosen(self) -> None:
        experiment = Experiment.load(EXPERIMENTS / "counterexample.toml")
        found = planned(experiment, 1000.0, 3.0, replace(QUICK, free_ratio=False, free_steps=False))
        assert found.chosen is found.damped
        assert found.undamped.rounds < found.damped.rounds

    def test_the_experiments_own_budget_does_not_stop_the_trials(self) -> None:
        found = planned(quadratic(**{"privacy.budget": 0.001}), 100.0, 1.0)
        assert found == planned(quadratic(), 100.0, 1.0)

    def test_a_single_round_is_a_plan(self) -> None:
        found = planned(quadratic(), 10.0, 1.0, replace(QUICK, most_rounds=1))
        assert found.chosen.rounds == 1
        assert "largest allowed" in " ".join(found.chosen.notes)

    def test_progress_counts_up_to_its_total(self) -> None:
        seen: list[tuple[int, int]] = []
        found = frontier(
            quadratic(), [1.0, 10.0], 0.1, 1.0, effort=QUICK, progress=lambda done, total, _: seen.append((done, total))
        )
        assert isinstance(found, tuple)
        done, totals = zip(*seen, strict=True)
        assert len(set(totals)) == 1
        assert list(done) == sorted(done)
        assert (done[0], done[-1]) == (0, totals[0])


class Other(AlgorithmSection):
    name: Literal["other"] = "other"


class TestRefusals:
    @pytest.mark.parametrize(
        ("experiment", "adjacency", "smoothness", "reason"),
        [
            (replace(quadratic(), algorithm=Other()), 0.1, 1.0, "no model of other"),
            (quadratic(**{"noise.u_e": [1.0] * 6}), 0.1, 1.0, "one per agent"),
            (quadratic(**{"network.agents": 3000}), 0.1, 1.0, "at most 2000 agents"),
            (quadratic(), 0.0, 1.0, "adjacency is 0"),
            (quadratic(), 0.1, math.inf, "smoothness is inf"),
            (quadratic(), 0.1, 0.9, "needs 1"),
            (quadratic(**{"problem.curvature": -1.0}), 0.1, 1.0, "no solution to plan around"),
        ],
    )
    def test_outside_the_theory_there_is_no_plan(
        self, experiment: Experiment, adjacency: float, smoothness: float, reason: str
    ) -> None:
        found = plan(experiment, 1.0, adjacency, smoothness, effort=ON_DATA)
        assert isinstance(found, Unsupported)
        assert reason in str(found)

    @pytest.mark.parametrize("budget", [0.0, -1.0, math.inf, math.nan])
    def test_budget_must_be_positive(self, budget: float) -> None:
        with pytest.raises(BadInput, match="epsilon"):
            plan(quadratic(), budget, 0.1, 1.0)

    @pytest.mark.parametrize(
        ("field", "value"),
        [("most_rounds", 0), ("generations", -1), ("finalists", 0), ("trials", -1), ("climbs", -1)],
    )
    def test_effort_is_checked(self, field: str, value: Any) -> None:
        with pytest.raises(BadInput, match=field):
            replace(Effort(), **{field: value})


@pytest.mark.slow
def test_the_papers_experiment_at_full_size() -> None:
    """δ = 0.1, M = 5.03, ε = 1000: damping is worth a factor of hundreds, and the model is right about both."""
    found = planned(Experiment.load(), 1000.0, 5.03, Effort(free_ratio=False, free_steps=False))
    for one in (found.undamped, found.damped):
        assert one.epsilon <= 1000
        assert one.measured_gap is not None
        assert 0.4 < one.model_gap / one.measured_gap < 2.5
    assert found.damped.gap < found.undamped.gap / 100


@pytest.mark.slow
def test_planned_steps_are_worth_a_factor_of_fifty_on_the_papers_experiment() -> None:
    """Measured on the data of the experiment itself, which the planner has not seen."""
    experiment = Experiment.load()
    solved, gaps = solve(experiment.resolve()), []
    for free in (False, True):
        one = planned(experiment, 1000.0, 5.03, Effort(free_ratio=free, free_steps=free)).chosen
        settings = TrialSettings(one.rounds, one.decay, one.damping, one.u_w, one.u_e, one.alpha, one.beta, one.rho)
        gaps.append(np.mean(list(final_gaps(solved, settings, range(100, 105)))))
    assert gaps[1] < gaps[0] / 50


class TestSurrogate:
    """What a plan rests on: public numbers alone, unless it was told to look at the data."""

    TABLES = {  # noqa: RUF012
        "logistic": {"problem.dimension": 3, "problem.samples": 40},
        "least-squares": {"problem.dimension": 3, "problem.samples": 40},
        "sine": {"problem.dimension": 3},
    }

    def experiment(self, name: str, **more: Any) -> Experiment:
        ring = {"network.topology": "ring", "network.agents": 5, "run.rounds": 40, "problem.name": name}
        return Experiment.load(overrides=ring | self.TABLES.get(name, {}) | more)

    @pytest.mark.parametrize("name", TABLES)
    def test_other_data_of_the_same_size_give_the_same_plan(self, name: str) -> None:
        plans = [planned(self.experiment(name, **{"problem.seed": seed}), 100.0, 20.0, MODEL_ONLY) for seed in (1, 2)]
        assert plans[0] == plans[1]
        assert SURROGATE in plans[0].chosen.notes

    def test_a_plan_on_the_data_depends_on_them_and_says_so(self) -> None:
        effort = replace(MODEL_ONLY, on_data=True)
        plans = [planned(logistic(**{"problem.seed": seed}), 100.0, 5.0, effort) for seed in (1, 2)]
        assert plans[0] != plans[1]
        assert LOOKED in plans[0].chosen.notes

    @pytest.mark.parametrize("loss", ["logistic", "least-squares"])
    def test_of_a_folder_only_the_sizes_count(self, loss: str, tmp_path: Path) -> None:
        plans = []
        for scale in (1.0, 0.01):
            rng = np.random.default_rng(int(100 * scale))
            for agent in range(5):
                features, labels = scale * rng.standard_normal((20, 3)), rng.choice([-1.0, 1.0], 20)
                np.savez(tmp_path / f"agent-{agent}.npz", features=features, labels=labels)
            experiment = self.experiment("file", **{"problem.path": str(tmp_path), "problem.loss": loss})
            plans.append(planned(experiment, 100.0, 3.0, MODEL_ONLY))
        assert plans[0] == plans[1]

    def test_a_surrogate_is_as_large_and_as_steep(self) -> None:
        experiment = self.experiment("classification").resolve()
        public = surrogate(experiment, 7.0)
        assert isinstance(public, Experiment)
        own, other = experiment.objective(), public.objective()
        assert (own.dimension, len(own.smoothness)) == (other.dimension, len(other.smoothness))
        assert isinstance(own, Sampled)
        assert isinstance(other, Sampled)
        assert own.sample_counts().mean() == pytest.approx(other.sample_counts().mean(), abs=1)
        assert other.smoothness.max() == pytest.approx(7.0)

    def test_user_code_has_none(self, tmp_path: Path) -> None:
        (tmp_path / "own.py").write_text(
            "class Bowl:\n"
            "    dimension, smoothness = 2, 1.0\n"
            "    def value(self, x): return x @ x / 2\n"
            "    def gradient(self, x): return x\n"
            "def objective(agent, agents): return Bowl()\n"
        )
        experiment = self.experiment("file", **{"problem.path": str(tmp_path / "own.py")})
        found = plan(experiment, 10.0, 0.1, 1.0, effort=MODEL_ONLY)
        assert "--on-data" in str(found)
        assert isinstance(plan(experiment, 10.0, 0.1, 1.0, effort=replace(MODEL_ONLY, on_data=True)), Plans)
