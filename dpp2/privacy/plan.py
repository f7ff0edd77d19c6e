"""Which settings of DPP² leave the smallest gap within a privacy budget (ours; the paper has none).

    minimise  E Ŵ^K  over K, r, u_e, u_w, τ, α, β, ρ   subject to   ε(K, r, u_e, u_w, α; δ, M) ≤ budget

ε is proportional to 1/u but for what the grid of the noise costs at any scale, so the rest decides the scale, exactly.
That rest is searched with the model of `response` (`search`); a few of the best are then run (`trials`), because the
model is an estimate, and the runs decide.

The experiment's α, β, ρ and u_e/u_w are where the search begins, and it keeps them if `Effort` says so. They waste a
lot: w reaches x directly and w⁰ buys no ε at all, while e reaches it through βLe only and most of ε is spent on it; and
a smaller α lets agents agree before much of the gradient, and with it of ε, has been used.

**Outside ε.** What a planner looks at, it depends on: the solution, curvatures, runs. So it looks at a public surrogate
of the data, of the same size and with the same declared bounds, drawn from a seed of its own. With `Effort.on_data` it
looks at the data themselves, and no ε covers the choice. ε counts the messages of K rounds; publishing x^K + w^K costs
extra (`accountant.publish_term`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpp2.algorithms.declared import PlannerModel
from dpp2.errors import BadInput
from dpp2.experiment import Experiment
from dpp2.prepared import PreparedRun
from dpp2.privacy.account import adjacency_of
from dpp2.privacy.calibrate import calibrate
from dpp2.privacy.dpp2_releases import Dpp2Releases
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.plans import LOOKED, SURROGATE, Effort, Plan, Plans, Progress, Steps, better
from dpp2.privacy.response import MOST_AGENTS
from dpp2.privacy.search import SearchPoint, Space
from dpp2.privacy.trials import (
    TrialSettings,
    arrived,
    common_gap,
    final_gaps,
    response_of,
    solve,
    steps_of,
    surrogate,
    too_steep,
)
from dpp2.simulation import Simulation

_OFF = 3.0  # a model that misses the measurement by this factor is worth a note


def planner(
    experiment: Experiment, budgets: Sequence[float], effort: Effort, progress: Progress | None = None
) -> tuple[Plans, ...] | Unsupported:
    """The planner that an algorithm has unless it declares another: `frontier` for δ and M of the account."""
    prepared = PreparedRun.of(experiment)
    account = prepared.account()
    if account.unsupported_reason:
        return account.unsupported_reason
    smoothness = max(mechanism.smoothness for mechanism in account.distinct)
    return frontier(
        experiment, budgets, adjacency_of(prepared.experiment), smoothness, effort=effort, progress=progress
    )


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
    steps = Steps(progress, 1 + 2 * len(budgets) * (1 + effort.runs))
    steps("solving without noise")
    planner = _prepare(experiment, adjacency, smoothness, effort, steps)
    if isinstance(planner, Unsupported):
        return planner
    least = planner.space.fixed(1)
    if min(budgets) <= least:
        return Unsupported(f"one round on a grid of {experiment.noise.grid} bits costs {least:.3g} at any scale")
    points: list[Plans] = []
    for budget in sorted(budgets):
        points.append(planner.best(budget, points[-1] if points else None))
    steps.jump_to(steps.total, "done")
    return tuple(points)


@dataclass(frozen=True, eq=False)
class _Planner:
    """One experiment, linearised: all that does not depend on the budget."""

    solved: Simulation  # without noise
    space: Space
    effort: Effort
    common_gap: float
    notes: tuple[str, ...]
    steps: Steps

    def best(self, budget: float, smaller: Plans | None) -> Plans:
        """The best of both kinds, or those of a smaller budget where they do no worse."""
        undamped = self._contest(budget, smaller.undamped if smaller else None, damped=False)
        damped = self._contest(budget, smaller.damped if smaller else None, damped=True)
        if smaller:
            undamped, damped = better(undamped, smaller.undamped), better(damped, smaller.damped)
        found = Plans(budget, self.space.response.start_gap, self.common_gap, undamped, damped)
        return replace(found, notes=(*self.notes, *self._warnings(found)))

    def _contest(self, budget: float, smaller: Plan | None, *, damped: bool) -> Plan:
        """The point with the smallest mean gap in the runs, unless the model's favourite beats it in fresh ones.

        Reported are the fresh figures: those that a winner won by flatter it, and among a dozen points that were run
        a few times each, luck decides too.
        """
        done = self.steps.done
        self.steps(f"ε = {budget:g}: searching")
        known = [smaller.point] if smaller else []
        points = self.space.finalists(budget, self.effort.finalists, damped=damped, known=known)
        if not self.effort.trials:
            return self._annotate(self._fit(points[0], budget))
        favourite, means = points[0], dict[SearchPoint, float]()
        for _ in range(1 + self.effort.climbs):
            for point in points:
                means[point] = float(np.mean(self._run(self._fit(point, budget), range(self.effort.trials))))
            winner = min(means, key=means.__getitem__)
            points = [point for point in self.space.around(winner, budget) if point not in means]
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
        gap = float(self.space.gaps([point], [fitted.u_w])[0])
        K, r, tau, _, alpha, beta, rho = point
        return Plan(spent.value, K, r, fitted.u_e, fitted.u_w, tau, alpha, beta, rho, gap, None, None, None)

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
        settings = TrialSettings(c.rounds, c.decay, c.damping, c.u_w, c.u_e, c.alpha, c.beta, c.rho)
        for gap in final_gaps(self.solved, settings, trials):
            self.steps(f"running K = {c.rounds}, r = {c.decay:g}, τ = {c.damping:g}")
            gaps.append(gap)
        return gaps

    def _annotate(self, found: Plan) -> Plan:
        notes = [LOOKED if self.effort.on_data else SURROGATE]
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
        if found.chosen.gap >= found.common_gap and self.solved.experiment.run.start != "zero":
            staying = f"agents that all stay at 0 have a gap of {found.common_gap:.3g} and spend nothing"
            warnings.append(f'no plan within ε = {found.budget:g} beats this: {staying} (run.start = "zero")')
        return warnings


def _prepare(
    experiment: Experiment, adjacency: float, smoothness: float, effort: Effort, steps: Steps
) -> _Planner | Unsupported:
    """Solve without noise and linearise there, or say why no plan can be made."""
    model = experiment.algorithm.planner_model(experiment.noise)
    if isinstance(model, Unsupported):
        return model
    if experiment.network.agents > MOST_AGENTS:
        return Unsupported(f"the planner diagonalises P, for at most {MOST_AGENTS} agents")
    unit = _unit(model, adjacency, smoothness, experiment.noise.grid)
    solved = unit.unsupported_reason(0) or _solved(experiment, smoothness, effort)
    if isinstance(solved, Unsupported):
        return solved
    notes = [*model.notes]
    if not arrived(solved):
        notes.append(f"without noise the gap is still {solved.gap:.2g} after {solved.k} rounds: the model is rough")
    space = Space(
        response_of(solved),
        replace(unit, dimension=solved.driver.dimension),
        steps_of(experiment),
        solved.prepared.spectrum.largest,
        effort.most_rounds or experiment.run.rounds,
        effort.free_ratio,
        effort.free_steps,
        effort.generations,
    )
    return _Planner(solved, space, effort, common_gap(solved), tuple(notes), steps)


def _unit(model: PlannerModel, adjacency: float, smoothness: float, bits: int) -> Dpp2Releases:
    """What the accountant is asked about, before its scales, its steps and its dimension are set."""
    return Dpp2Releases(
        dimension=1,
        alpha=model.alpha,
        smoothness=smoothness,
        adjacency=adjacency,
        u_e=model.u_e,
        u_w=model.u_w,
        decay=1.0,
        bits=bits,
    )


def _solved(experiment: Experiment, smoothness: float, effort: Effort) -> Simulation | Unsupported:
    """A run without noise to plan around, on the data or on their surrogate."""
    # Resolved before any seed is changed: the data hang on it.
    planned = experiment.resolve() if effort.on_data else surrogate(experiment, smoothness)
    if isinstance(planned, Unsupported):
        return planned
    solved = solve(planned)
    if effort.on_data and (outside := too_steep(solved, smoothness)):
        return outside
    if solved.divergence:
        return Unsupported(f"there is no solution to plan around: without noise, {solved.divergence.explanation}")
    return solved
