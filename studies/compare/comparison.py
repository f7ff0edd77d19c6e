"""A fair comparison: the same problem, network, seeds and ε; every method tuned with the same number of runs.

Tuning looks at the data, so what it chooses is outside every ε: this says which method suits a problem, not how to
run one on private data. Seeds of tuning and of measuring differ, or the luckiest setting would be taken for the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpp2 import Experiment
from dpp2.arrays import Array
from dpp2.privacy import Epsilon, Unsupported
from studies.compare.fair import Bounds, fitted
from studies.compare.methods import Grid, GridPoint, Method
from studies.compare.running import Curves, Trial, curves, final_gap
from studies.parallel import gather, opened

Progress = Callable[[int, int, str], None]

_FIRST_TUNING_SEED = 0x74756E65


@dataclass(frozen=True, eq=False)
class TunedMethod:
    """A method at its best point: what it spent, and one set of curves per seed."""

    method: Method
    point: GridPoint
    experiment: Experiment  # with the noise that the budget asks for
    epsilon: Epsilon
    curves: tuple[Curves, ...]

    @property
    def finals(self) -> list[float]:
        return [one.final for one in self.curves]

    @property
    def mean(self) -> float:
        """What methods are ranked by."""
        return float(np.mean(self.finals))

    def over_seeds(self, column: str) -> Array:
        """(seeds, K + 1); a run that diverged ends early and is inf from there on."""
        rows = np.full((len(self.curves), self.point.rounds + 1), np.inf)
        for row, one in zip(rows, self.curves, strict=True):
            values = getattr(one, column)
            row[: len(values)] = values
        return rows


@dataclass(frozen=True)
class LeftOut:
    """A method that has no place in this comparison, and why."""

    label: str
    reason: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """Entries, best first, and what it takes to read them."""

    problem: Experiment
    budget: float
    seeds: int
    grid: Grid
    entries: tuple[TunedMethod, ...]
    left_out: tuple[LeftOut, ...]
    start_gap: float  # Ŵ⁰, mean over seeds: what doing nothing leaves
    zero_gap: float  # Ŵ of agents that all stay at 0, which takes no message and no ε


def compare(
    problem: Experiment,
    methods: Sequence[Method],
    budget: float,
    *,
    grid: Grid,
    seeds: int,
    executor: str | None = None,
    progress: Progress = lambda done, total, note: None,
) -> Comparison:
    """Tune every method that has a pure ε, then measure it on seeds 1 … `seeds`. `problem` must be resolved."""
    bounds = Bounds.of(problem)
    admitted, left_out = _admitted(methods, budget, grid, bounds)
    with opened(executor) as pool:
        tuner = _Tuner(pool, budget, bounds, progress)
        entries = tuner.measure(tuner.tune(admitted, grid), seeds)
    start = [one.gap[0] for one in entries[0].curves] if entries else [math.nan]
    return Comparison(
        problem=problem,
        budget=budget,
        seeds=seeds,
        grid=grid,
        entries=tuple(sorted(entries, key=lambda entry: entry.mean)),
        left_out=tuple(left_out),
        start_gap=float(np.mean(start)),
        zero_gap=zero_gap(problem),
    )


def zero_gap(problem: Experiment) -> float:
    """(1/N)‖Σ_i ∇f_i(0)‖²."""
    objective, agents = problem.objective(), problem.network.agents
    total = objective(np.zeros((agents, objective.dimension)))[1].sum(axis=0)
    return float(total @ total) / agents


def _admitted(
    methods: Sequence[Method], budget: float, grid: Grid, bounds: Bounds
) -> tuple[list[Method], list[LeftOut]]:
    """Who has a pure ε at all; asked at the point that is cheapest."""
    admitted, left_out = [], []
    for method in methods:
        answer = fitted(method.at(GridPoint(min(grid.rounds), 1.0, 1.0)), budget, bounds)
        if isinstance(answer, Unsupported):
            left_out.append(LeftOut(method.label, answer.reason))
        else:
            admitted.append(method)
    return admitted, left_out


@dataclass(frozen=True, eq=False)
class _Tuner:
    """Where runs are made: on this executor, within this budget."""

    pool: Executor
    budget: float
    bounds: Bounds
    progress: Progress

    def tune(self, methods: Sequence[Method], grid: Grid) -> list[tuple[Method, GridPoint]]:
        """The best point of every method: one look at each (K, r, step), several at the best few, varied further."""
        first = self._mean_gaps([(method, grid.first()) for method in methods], 1, "tuning")
        few = [
            (method, grid.second(sorted(gaps, key=gaps.__getitem__)[: grid.finalists], method.further))
            for method, gaps in zip(methods, first, strict=True)
        ]
        second = self._mean_gaps(few, grid.trials, "tuning: the best few")
        return [(method, min(gaps, key=gaps.__getitem__)) for method, gaps in zip(methods, second, strict=True)]

    def measure(self, best: Sequence[tuple[Method, GridPoint]], seeds: int) -> list[TunedMethod]:
        """Every method at its best point, on seeds 1 … `seeds`."""
        jobs = [self._job(method, point, seed) for method, point in best for seed in range(1, seeds + 1)]
        done = iter(gather(self.pool, curves, jobs, partial(self._note, "measuring")))
        return [self._entry(method, point, tuple(next(done) for _ in range(seeds))) for method, point in best]

    def _mean_gaps(
        self, candidates: Sequence[tuple[Method, list[GridPoint]]], trials: int, note: str
    ) -> list[dict[GridPoint, float]]:
        """The mean final gap of every candidate, method by method."""
        seeds = range(_FIRST_TUNING_SEED, _FIRST_TUNING_SEED + trials)
        jobs = [self._job(method, point, seed) for method, points in candidates for point in points for seed in seeds]
        finals = gather(self.pool, final_gap, jobs, partial(self._note, note))
        means = iter(np.array(finals).reshape(-1, trials).mean(axis=1).tolist())
        return [{point: next(means) for point in points} for _, points in candidates]

    def _job(self, method: Method, point: GridPoint, seed: int) -> Trial:
        return Trial(method.at(point), self.budget, self.bounds, seed)

    def _entry(self, method: Method, point: GridPoint, measured: tuple[Curves, ...]) -> TunedMethod:
        answer = fitted(method.at(point), self.budget, self.bounds)
        assert not isinstance(answer, Unsupported)  # its runs have been made
        return TunedMethod(method, point, answer.experiment, answer.epsilon, measured)

    def _note(self, note: str, done: int, total: int) -> None:
        self.progress(done, total, note)
