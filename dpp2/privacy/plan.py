"""Which rounds, decay, scale and damping leave the smallest gap within a privacy budget (ours; the paper has none).

    minimise  E Ŵ^K  over K, r, u, τ   subject to   ε(K, r, u; δ, M) ≤ budget

ε is proportional to 1/u and does not depend on τ, so K and r decide the scale: u = ε(K, r; u = 1)/budget, exactly. The
rest, (K, r, τ), is searched with the model of `response` (`search`); a few of the best are then run on the experiment
itself (`trials`), because the model is an estimate, and the runs decide.

One factor multiplies the experiment's u_e and u_w. `Effort.ratios` lets their ratio be searched as well: e reaches x
through βLe only and w directly, while most of ε is spent on e, so more e and less w does less harm for the same ε.

**Outside ε.** The planner looks at the data: at the solution, at curvatures, at runs. What it recommends depends on
them, and no ε covers that. Where this matters, plan on public or synthetic data of the same kind. ε counts the messages
of K rounds; publishing x^K + w^K costs extra (`accountant.publish_term`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpp2.errors import BadInput
from dpp2.experiment import Experiment
from dpp2.privacy.calibrate import calibrate
from dpp2.privacy.dpp2_releases import MOST_ROUNDS, Dpp2Releases
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.response import MOST_AGENTS
from dpp2.privacy.search import NEIGHBOURS, SearchPoint, Space
from dpp2.privacy.trials import TrialSettings, arrived, common_gap, final_gaps, response_of, solve, too_steep

Progress = Callable[[int, int, str], None]  # (steps done, steps in all at most, what comes next)

LOOKED = "planned by looking at the data, so the choice itself is outside ε"
_OFF = 3.0  # a model that misses the measurement by this factor is worth a note


@dataclass(frozen=True)
class Effort:
    """How hard to look, for τ = 0 and for τ > 0 each."""

    most_rounds: int | None = None  # K ≤ this; None: the experiment's rounds
    ratios: tuple[float, ...] = (1.0,)  # factors on u_e/u_w to try; 1 is the experiment's own ratio
    finalists: int = 4  # settings, the model's best, that are run
    trials: int = 3  # runs of each, and twice as many to measure the best two; 0: the model alone decides
    climbs: int = 2  # times that the best so far is compared with its neighbours

    def __post_init__(self) -> None:
        if self.most_rounds is not None and not 1 <= self.most_rounds <= MOST_ROUNDS:
            raise BadInput("most_rounds", self.most_rounds, f"a whole number from 1 to {MOST_ROUNDS}")
        if not self.ratios or not all(math.isfinite(ratio) and ratio > 0 for ratio in self.ratios):
            raise BadInput("ratios", self.ratios, "at least one, each a finite number > 0")
        if self.finalists < 1:
            raise BadInput("finalists", self.finalists, "a whole number ≥ 1")
        for name, number in (("trials", self.trials), ("climbs", self.climbs)):
            if number < 0:
                raise BadInput(name, number, "a whole number ≥ 0")

    @property
    def runs(self) -> int:
        """At most, per kind of damping."""
        return self.trials * (self.finalists + self.climbs * NEIGHBOURS + 4)


@dataclass(frozen=True)
class Plan:
    """Settings that fit the budget, and the gap to expect of them."""

    epsilon: float  # spent by these rounds, by the accountant
    rounds: int
    decay: float
    u_e: float
    u_w: float
    damping: float
    model_gap: float  # E Ŵ^K of the model
    measured_gap: float | None  # mean over fresh runs; None without runs, inf if one diverged
    geometric_gap: float | None  # their geometric mean: the gap of a typical run
    spread: tuple[float, float] | None  # the smallest and the largest of them
    notes: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """What plans are compared by: measured where there is a measurement."""
        return self.model_gap if self.measured_gap is None else self.measured_gap


@dataclass(frozen=True)
class Plans:
    """The best plan of the paper's algorithm and of the damped one for one budget."""

    budget: float
    start_gap: float  # E Ŵ⁰: what doing nothing leaves, at no cost in privacy
    common_gap: float  # Ŵ of agents that all stay at 0: as free, and often smaller
    undamped: Plan  # τ = 0: the paper
    damped: Plan  # τ > 0
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> Plan:
        return self.damped if self.damped.gap <= self.undamped.gap else self.undamped

    @property
    def worthwhile(self) -> bool:
        """Whether the choice beats doing nothing."""
        return self.chosen.gap < self.start_gap


def plan(
    experiment: Experiment,
    budget: float,
    adjacency: float,
    smoothness: float,
    *,
    effort: Effort | None = None,
    progress: Progress | None = None,
) -> Plans | Unsupported:
    """The best plans within one budget ε, for the adjacency δ and the smoothness bound M of the accountant."""
    found = frontier(experiment, [budget], adjacency, smoothness, effort=effort, progress=progress)
    return found if isinstance(found, Unsupported) else found[0]


def frontier(
    experiment: Experiment,
    budgets: Sequence[float],
    adjacency: float,
    smoothness: float,
    *,
    effort: Effort | None = None,
    progress: Progress | None = None,
) -> tuple[Plans, ...] | Unsupported:
    """The best plans for each budget, in ascending order.

    A plan for a smaller budget fits every larger one, so the gap never rises along the frontier.
    """
    for budget in budgets:
        if not (math.isfinite(budget) and budget > 0):
            raise BadInput("epsilon", budget, "a finite number > 0")
    effort = effort or Effort()
    steps = _Steps(progress, 1 + 2 * len(budgets) * (1 + effort.runs))
    steps("solving without noise")
    planner = _prepare(experiment, adjacency, smoothness, effort, steps)
    if isinstance(planner, Unsupported):
        return planner
    points: list[Plans] = []
    for budget in sorted(budgets):
        points.append(planner.best(budget, points[-1] if points else None))
    steps.jump_to(steps.total, "done")
    return tuple(points)


class _Steps:
    """Counts steps for a progress bar."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, note: str) -> None:
        self.jump_to(self.done + 1, note, self.done)

    def jump_to(self, done: int, note: str, shown: int | None = None) -> None:
        """Where steps turned out not to be needed."""
        self.done = done
        if self.progress:
            self.progress(done if shown is None else shown, self.total, note)


@dataclass(frozen=True, eq=False)
class _Planner:
    """One experiment, linearised: all that does not depend on the budget."""

    experiment: Experiment  # resolved
    space: Space
    effort: Effort
    common_gap: float
    notes: tuple[str, ...]
    steps: _Steps

    def best(self, budget: float, smaller: Plans | None) -> Plans:
        """The best of both kinds, or those of a smaller budget where they do no worse."""
        undamped, damped = self._contest(budget, damped=False), self._contest(budget, damped=True)
        if smaller:
            undamped, damped = _better(undamped, smaller.undamped), _better(damped, smaller.damped)
        found = Plans(budget, self.space.response.start_gap, self.common_gap, undamped, damped)
        return replace(found, notes=(*self.notes, *self._warnings(found)))

    def _contest(self, budget: float, *, damped: bool) -> Plan:
        """The point with the smallest mean gap in the runs, unless the model's favourite beats it in fresh ones.

        Reported are the fresh figures: those that a winner won by flatter it, and among a dozen points that were run
        a few times each, luck decides too.
        """
        done = self.steps.done
        self.steps(f"ε = {budget:g}: searching")
        points = self.space.finalists(budget, self.effort.finalists, damped=damped)
        if not self.effort.trials:
            return self._annotate(self._fit(points[0], budget))
        favourite, means = points[0], dict[SearchPoint, float]()
        for _ in range(1 + self.effort.climbs):
            for point in points:
                means[point] = float(np.mean(self._run(self._fit(point, budget), range(self.effort.trials))))
            winner = min(means, key=means.__getitem__)
            points = [point for point in self.space.around(winner) if point not in means]
        rematch = [self._measure(self._fit(point, budget)) for point in dict.fromkeys((winner, favourite))]
        measured = min(rematch, key=lambda one: one.gap)
        self.steps.jump_to(done + 1 + self.effort.runs, "measured")
        return self._annotate(measured)

    def _fit(self, point: SearchPoint, budget: float) -> Plan:
        """The smallest common factor on the scales that keeps the budget, by the accountant."""
        unit = self.space.mechanism(point)
        answer = calibrate(unit, budget, "scale", rounds=point.rounds)
        assert not isinstance(answer, Unsupported)  # `_prepare` has asked
        spent = answer.epsilon
        assert spent.value is not None, spent.reason
        assert spent.fits(budget), answer.reason
        fitted = unit.scaled(answer.factor)
        u_e, u_w = fitted.u_e, fitted.u_w
        gap = self.space.gap_of(point, u_w, u_e)
        return Plan(spent.value, point.rounds, point.decay, u_e, u_w, point.damping, gap, None, None, None)

    def _measure(self, winner: Plan) -> Plan:
        trials = self.effort.trials
        gaps = np.array(self._run(winner, range(trials, 3 * trials)))
        with np.errstate(divide="ignore"):  # a gap of exactly 0
            typical = float(np.exp(np.log(gaps).mean()))
        spread = (float(gaps.min()), float(gaps.max()))
        return replace(winner, measured_gap=float(gaps.mean()), geometric_gap=typical, spread=spread)

    def _run(self, candidate: Plan, trials: range) -> list[float]:
        c = candidate
        gaps = []
        settings = TrialSettings(c.rounds, c.damping, c.u_e, c.u_w, c.decay)
        for gap in final_gaps(self.experiment, settings, trials):
            self.steps(f"running K = {c.rounds}, r = {c.decay:g}, τ = {c.damping:g}")
            gaps.append(gap)
        return gaps

    def _annotate(self, found: Plan) -> Plan:
        notes = [LOOKED]
        if found.rounds == self.space.most_rounds:
            notes.append(f"K is the largest allowed, {found.rounds}: more rounds may do better")
        if found.gap == math.inf:
            notes.append("this diverges")
        elif found.measured_gap and not 1 / _OFF < found.model_gap / found.measured_gap < _OFF:
            notes.append(f"the model gives {found.model_gap / found.measured_gap:.2g} times the measured gap")
        return replace(found, notes=tuple(notes))

    def _warnings(self, found: Plans) -> list[str]:
        """What costs no privacy and does no worse."""
        warnings = []
        if not found.worthwhile:
            nothing = f"doing nothing leaves {found.start_gap:.3g} and spends nothing"
            warnings.append(f"no plan within ε = {found.budget:g} beats the starting point: {nothing}")
        if found.chosen.gap >= found.common_gap and self.experiment.run.start != "zero":
            staying = f"agents that all stay at 0 have a gap of {found.common_gap:.3g} and spend nothing"
            warnings.append(f'no plan within ε = {found.budget:g} beats this: {staying} (run.start = "zero")')
        return warnings


def _better(found: Plan, smaller: Plan) -> Plan:
    """The plan of the smaller budget where it does no worse: it fits here too."""
    if found.gap < smaller.gap:
        return found
    note = f"the plan that spends {smaller.epsilon:.6g} does no worse; the rest of the budget stays unspent"
    return replace(smaller, notes=tuple(dict.fromkeys((*smaller.notes, note))))


def _prepare(
    experiment: Experiment, adjacency: float, smoothness: float, effort: Effort, steps: _Steps
) -> _Planner | Unsupported:
    """Solve without noise and linearise there, or say why no plan can be made."""
    model = experiment.algorithm.planner_model(experiment.noise)
    if isinstance(model, Unsupported):
        return model
    if experiment.network.agents > MOST_AGENTS:
        return Unsupported(f"the planner diagonalises P, for at most {MOST_AGENTS} agents")
    notes = [*model.notes]
    experiment = experiment.resolve()  # before any seed is changed: the data hang on it
    solved = solve(experiment)
    mechanism = Dpp2Releases(
        dimension=solved.driver.dimension,
        alpha=model.alpha,
        smoothness=smoothness,
        adjacency=adjacency,
        u_e=model.u_e,
        u_w=model.u_w,
        decay=1.0,
    )
    outside = mechanism.unsupported_reason(0) or too_steep(solved, smoothness)
    if outside:
        return outside
    if solved.divergence:
        return Unsupported(f"there is no solution to plan around: without noise, {solved.divergence.explanation}")
    if not arrived(solved):
        notes.append(f"without noise the gap is still {solved.gap:.2g} after {solved.k} rounds: the model is rough")
    space = Space(response_of(solved), mechanism, effort.most_rounds or experiment.run.rounds, effort.ratios)
    return _Planner(experiment, space, effort, common_gap(solved), tuple(notes), steps)
