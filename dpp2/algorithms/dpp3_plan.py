"""Which settings of DPP³ leave the smallest gap within a budget (ours): its planner, in the manner of `privacy.plan`.

    minimise  E Ŵ^K  over G, T, α, slowdown, ratio      with the own scale that spends the budget, by the account

*Model.* Mixing leaves a share ρ_T of the disagreement, and what edges add vanishes from the mean. So x̄ does what a
curator's x does, and one gradient of all agents at x̄ stands for a whole cycle:
    x̄ ← x̄ − α_g (mean ∇f(x̄) + n̄),   Var n̄ = that of the mean own noise,   averaged and shrunk as in a run
    Ŵ ≈ (1/N) ‖Σ_i ∇f_i(x̄)‖² + d·(ρ_T ρ_E α_G)² Σ_i Var n_i
Its draws are the same for all settings. Those that do best by the model, and the experiment's own, are run; the runs
decide, and the winner is measured again in fresh ones.

*Outside ε.* As there: the search looks at a public surrogate of the data, or with `Effort.on_data` at the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpp2.algorithms.cancelling_scales import own_scale
from dpp2.algorithms.dpp3 import Dpp3Section, shrinkage_of, shrunk
from dpp2.algorithms.dpp3_noise import Dpp3Noise
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.experiment import Experiment
from dpp2.prepared import HostedAgents, PreparedRun
from dpp2.privacy.epsilon_value import Epsilon, Unsupported
from dpp2.privacy.plans import LOOKED, SURROGATE, Effort, Progress, SettingsPlan, SettingsPlans, Steps, better
from dpp2.privacy.trials import final_gap, surrogate
from dpp2.problems.base import Objective

_EVEN, _OFFSPRING, _PARENTS = 96, 48, 12  # points that fill the cube, and those of each further generation
_DRAWS = 3  # of the model's noise
_GRADIENTS, _STEP, _SLOWDOWN = (1, 60), (0.05, 20.0), 20.0
_RATIOS = (10.0, 30.0, 100.0, 300.0, 1000.0)  # a few: each needs the worst case over all colluders
_ALL_RATIOS = (3.0, *_RATIOS, 3000.0, 10_000.0)  # for the best points alone, so that none of them ends at an edge
_AS_GOOD = 1.01  # a larger ratio must gain more: beyond some point it gains nothing, and only costs digits
_CONTRACTION = (1e-1, 1e-5)
_CELL = 1.3  # finalists differ in G by this factor
_SEED = 0x706C616E  # of the trials; not one that the plan would later be run with


class Dpp3Point(NamedTuple):
    """What is searched."""

    gradient_rounds: int
    mixings: int
    alpha: float
    slowdown: float
    ratio: float


def frontier(
    experiment: Experiment, budgets: Sequence[float], effort: Effort, progress: Progress | None = None
) -> tuple[SettingsPlans, ...] | Unsupported:
    """The best plan for each budget, in ascending order."""
    steps = Steps(progress, len(budgets) * (1 + effort.trials * (effort.finalists + 3)))
    resolved = experiment.resolve()
    steepness = _refusal(resolved) or _steepness(resolved)
    if isinstance(steepness, Unsupported):
        return steepness
    public = resolved if effort.on_data else surrogate(experiment, steepness)
    if isinstance(public, Unsupported):
        return public
    found: list[SettingsPlans] = []
    for budget in sorted(budgets):
        found.append(_Planner(resolved, public, effort, budget, steps).best(found[-1] if found else None))
    steps.jump_to(steps.total, "done")
    return tuple(found)


def _refusal(experiment: Experiment) -> Unsupported | None:
    """Why no scale of noise keeps any budget, or none can be solved for."""
    section, noise = experiment.algorithm, experiment.noise
    assert isinstance(section, Dpp3Section)
    assert isinstance(noise, Dpp3Noise)
    if noise.edge is not None or isinstance(noise.own, list):
        return Unsupported("the planner scales one noise for all agents, and noise.edge or a list is given")
    spent = PreparedRun.of(experiment).account().epsilon(section.rounds)
    if isinstance(spent, Unsupported):
        return spent
    return None if math.isfinite(spent.log10) else Unsupported(f"ε = ∞ at any scale ({spent.reason})")


def _steepness(experiment: Experiment) -> float | Unsupported:
    section = experiment.algorithm
    assert isinstance(section, Dpp3Section)
    if not section.smoothness:
        return Unsupported("nobody knows how steep its objectives are: declare privacy.smoothness")
    return section.smoothness


@dataclass(frozen=True, eq=False)
class _Planner:
    """One budget."""

    experiment: Experiment  # resolved: the account is asked about it
    public: Experiment  # what is looked at
    effort: Effort
    budget: float
    steps: Steps

    @cached_property
    def section(self) -> Dpp3Section:
        assert isinstance(self.experiment.algorithm, Dpp3Section)
        return self.experiment.algorithm

    @cached_property
    def agents(self) -> HostedAgents:
        """All of them, on what is looked at."""
        prepared = PreparedRun.resolved(self.public)
        return prepared.hosted(range(prepared.graph.agents))

    @property
    def objective(self) -> Objective:
        return self.agents.objective

    @cached_property
    def normals(self) -> Array:
        """Of the mean noise: (draws, most gradients, d). Its law hardly matters beside its variance."""
        rng = np.random.default_rng(_SEED)
        return rng.standard_normal((_DRAWS, max(_GRADIENTS[1], self.section.G), self.objective.dimension))

    def best(self, smaller: SettingsPlans | None) -> SettingsPlans:
        done = self.steps.done
        self.steps(f"ε = {self.budget:g}: searching")
        points = self._finalists()
        plan = self._contest(points) if self.effort.trials else self._plan(points[0])
        notes = (LOOKED if self.effort.on_data else SURROGATE,)
        plan = replace(plan, notes=notes)
        if smaller:
            plan = better(plan, smaller.chosen)
        self.steps.jump_to(done + 1 + self.effort.trials * (self.effort.finalists + 3), "measured")
        start = self._start_gap()
        worthless = f"no plan within ε = {self.budget:g} beats the start, whose gap is {start:.3g}"
        return SettingsPlans(self.budget, start, start, plan, () if plan.gap < start else (worthless,))

    # Settings.

    def settled(self, point: Dpp3Point) -> Experiment:
        """The experiment with these settings, and the own scale that spends the budget."""
        T = point.mixings
        section = self.section.updated(
            gradient_rounds=point.gradient_rounds,
            mixings=T,
            final_mixings=T,
            alpha=point.alpha,
            slowdown=point.slowdown,
        )
        noise = self.experiment.noise
        assert isinstance(noise, Dpp3Noise)
        noise = noise.updated(ratio=point.ratio, own=None)
        asked = replace(self.experiment, privacy=self.experiment.privacy.updated(budget=self.budget))
        own = own_scale(asked, noise, self.experiment.network.graph(), section.G)
        run = self.experiment.run.updated(rounds=section.rounds)
        return replace(asked, run=run, algorithm=section, noise=noise.updated(own=own))

    @property
    def own(self) -> Dpp3Point:
        """The experiment's own settings."""
        section, noise = self.section, self.experiment.noise
        assert isinstance(noise, Dpp3Noise)
        assert section.alpha is not None
        return Dpp3Point(section.G, section.T, section.alpha, section.slowdown or 0.0, noise.ratio)

    def _point(self, cube: Array) -> Dpp3Point:
        """Of a place in the unit cube."""
        gradients, contraction, step, slowdown, ratio = cube.tolist()
        assert self.section.smoothness  # asked before
        own, between = self.own, _between
        T = self.section.chebyshev.steps_to(between(contraction, *_CONTRACTION))
        G = round(between(gradients, *_GRADIENTS))
        if self.effort.most_rounds:
            G = max(min(G, self.effort.most_rounds // T - 1), 1)
        alpha, slow = (_digits(between(step, *_STEP) / self.section.smoothness), _digits(_SLOWDOWN * slowdown**2))
        if not self.effort.free_steps:
            alpha, slow = own.alpha, own.slowdown
        chosen = _RATIOS[min(int(ratio * len(_RATIOS)), len(_RATIOS) - 1)]
        return Dpp3Point(G, T, alpha, slow, chosen if self.effort.free_ratio else own.ratio)

    # The search.

    def _finalists(self) -> list[Dpp3Point]:
        """The best by the model, at different G, and the experiment's own settings."""
        from scipy.stats import qmc

        cubes = qmc.Halton(5, seed=0).random(_EVEN)
        found, rng = dict[Dpp3Point, tuple[float, Array]](), np.random.default_rng(0)
        for generation in range(min(self.effort.generations, 3) + 1):
            for cube in cubes:
                point = self._point(cube)
                if point not in found and self._short_enough(point):
                    found[point] = self._model_gap(point), cube
            ranked = sorted(found, key=lambda point: found[point][0])
            parents = np.array([found[point][1] for point in ranked[:_PARENTS]])
            jitter = 0.1 / 2**generation * rng.standard_normal((_OFFSPRING, 5))
            cubes = np.clip(parents[rng.integers(len(parents), size=_OFFSPRING)] + jitter, 0, 1)
        chosen = [self._with_best_ratio(point) for point in _apart(ranked, self.effort.finalists)]
        offered = self._short_enough(self.own) and math.isfinite(self._model_gap(self.own))
        return list(dict.fromkeys([*chosen, *([self.own] if offered else [])]))

    def _with_best_ratio(self, point: Dpp3Point) -> Dpp3Point:
        """The smallest ratio that does almost as well as the best one, with all else as it is."""
        if not self.effort.free_ratio:
            return point
        offered = [point._replace(ratio=ratio) for ratio in _ALL_RATIOS]
        gaps = [self._model_gap(one) for one in offered]
        return next(one for one, gap in zip(offered, gaps, strict=True) if gap <= _AS_GOOD * min(gaps))

    def _short_enough(self, point: Dpp3Point) -> bool:
        most = self.effort.most_rounds
        return most is None or (point.gradient_rounds + 1) * point.mixings <= most

    def _model_gap(self, point: Dpp3Point) -> float:
        try:
            settled = self.settled(point)
        except BadInput:  # so many gradients cost more than the budget at any scale
            return math.inf
        section, noise = settled.algorithm, settled.noise
        assert isinstance(section, Dpp3Section)
        assert isinstance(noise, Dpp3Noise)
        with np.errstate(over="ignore", invalid="ignore"):  # what diverges is not chosen
            gap = self._mean_gap(section, noise) + self._disagreement(section, noise)
        return gap if math.isfinite(gap) else math.inf

    def _mean_gap(self, section: Dpp3Section, noise: Dpp3Noise) -> float:
        (N, d), f = (self.public.network.agents, self.objective.dimension), self.objective
        deviation, gaps = math.sqrt(noise.mean_variance(N)), []
        shrinkage = shrinkage_of(section, noise, N, d)
        for normals in self.normals:
            x, total = np.zeros(d), np.zeros(d)
            for g in range(section.G):
                x = x - section.step_of(g) * (f(np.tile(x, (N, 1)))[1].mean(axis=0) + deviation * normals[g])
                total += x if g >= section.first_averaged else 0.0
            end = (total / (section.G - section.first_averaged))[None]
            end = shrunk(end, np.zeros_like(end), shrinkage) if shrinkage else end
            gaps.append(float((f(np.tile(end, (N, 1)))[1].sum(axis=0) ** 2).sum()) / N)
        return float(np.mean(gaps))

    def _disagreement(self, section: Dpp3Section, noise: Dpp3Noise) -> float:
        graph = self.public.network.graph()
        squares = (noise.own_scales(graph.agents) ** 2).sum() / noise.shares
        squares += 2 * (noise.edge_scales(len(graph.edges)) ** 2).sum()
        variance = float(squares) * (2 if noise.law == "laplace" else 1)
        left = section.chebyshev.contraction(section.T) * section.chebyshev.contraction(section.E)
        return self.objective.dimension * variance * (left * section.step_of(section.G - 1)) ** 2

    # Runs.

    def _contest(self, points: Sequence[Dpp3Point]) -> SettingsPlan:
        trials = self.effort.trials
        means = {point: float(np.mean(self._gaps(point, range(trials)))) for point in points}
        winner = min(means, key=means.__getitem__)
        gaps = np.array(self._gaps(winner, range(trials, 3 * trials)))
        return replace(
            self._plan(winner), measured_gap=float(gaps.mean()), spread=(float(gaps.min()), float(gaps.max()))
        )

    def _gaps(self, point: Dpp3Point, trials: range) -> list[float]:
        settled, found = self.settled(point), []
        for trial in trials:
            self.steps(f"running G = {point.gradient_rounds}, T = {point.mixings}")
            run = settled.run.updated(seed=_SEED + trial, telemetry="none", start="zero")
            privacy = self.public.privacy.updated(budget=None)  # a trial must not stop half-way
            asked = replace(self.public, run=run, algorithm=settled.algorithm, noise=settled.noise, privacy=privacy)
            gap = final_gap(self.agents.prepared.again(asked), [self.agents], run.rounds)
            found.append(gap if math.isfinite(gap) else math.inf)
        return found

    def _plan(self, point: Dpp3Point) -> SettingsPlan:
        """With the account's own word on what it spends."""
        settled = self.settled(point)
        section, noise = settled.algorithm, settled.noise
        assert isinstance(section, Dpp3Section)
        assert isinstance(noise, Dpp3Noise)
        spent = PreparedRun.of(settled).account().epsilon(section.rounds)
        assert isinstance(spent, Epsilon)
        assert spent.value is not None, spent.reason
        assert spent.fits(self.budget), f"{spent} for a budget of {self.budget}"
        settings: dict[str, int | float] = {
            "algorithm.gradient_rounds": section.G,
            "algorithm.mixings": section.T,
            "algorithm.final_mixings": section.E,
            "algorithm.alpha": point.alpha,
            "algorithm.slowdown": point.slowdown,
            "noise.ratio": point.ratio,
            "noise.own": noise.reference,
            "run.rounds": section.rounds,
        }
        shown = (
            f"G = {section.G}, T = {section.T}, α = {point.alpha:g}, slowdown {point.slowdown:g}, ratio {point.ratio:g}"
        )
        return SettingsPlan(spent.value, settings, shown, self._model_gap(point), None, None)

    def _start_gap(self) -> float:
        N, d = self.public.network.agents, self.objective.dimension
        return float((self.objective(np.zeros((N, d)))[1].sum(axis=0) ** 2).sum()) / N


def _between(place: float, low: float, high: float) -> float:
    return float(low * (high / low) ** place)


def _digits(number: float) -> float:
    """That a person can copy."""
    return float(f"{number:.3g}")


def _apart(ranked: Sequence[Dpp3Point], count: int) -> list[Dpp3Point]:
    """The first ones that differ in G."""
    chosen: list[Dpp3Point] = []
    for point in ranked:
        G = point.gradient_rounds
        if all(max(G / one.gradient_rounds, one.gradient_rounds / G) >= _CELL for one in chosen):
            chosen.append(point)
    return chosen[:count]
