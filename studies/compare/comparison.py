"""A comparison from beginning to end: who takes part, searches in waves, fresh seeds, and what came out.

Seeds of tuning and of reporting differ, or the luckiest settings would be taken for the best. Tuning looks at the data,
so what it chooses is outside every ε: this says which method suits a problem, not how to run one on private data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpp2.arrays import Array
from dpp2.studies.compare.contenders import Contender, Method
from dpp2.studies.compare.kept import Kept, key_of
from dpp2.studies.compare.laboratory import Outcome, laboratory
from dpp2.studies.compare.references import REFERENCES
from dpp2.studies.compare.search import Effort, Search, begun, carried_on, exchanged
from dpp2.studies.compare.space import settings
from dpp2.studies.compare.tally import Progress, Tally, Timed, mixed
from dpp2.studies.compare.tasks import STARTS, TRACKS, Cell, DataSet, Start, Task, Track
from dpp2.studies.parallel import gather, opened

EVALUATIONS, QUICK_EVALUATIONS = 140, 40  # tuning runs of every contender in every cell, at most

_TUNING, _REPORTING = 1_000_003, 2_000_003  # first seeds; those of one comparison lie within a hundred thousand
_SEEDS_APART = 1000  # between two comparisons with different seeds


@dataclass(frozen=True)
class Plan:
    """What is compared, and how hard everybody is tried."""

    data: tuple[DataSet, ...]
    methods: tuple[Method, ...]
    epsilons: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0, 1000.0)
    fewer: tuple[float, ...] = (1.0, 10.0, 100.0)  # from every start but the first
    starts: tuple[Start, ...] = STARTS
    tracks: tuple[Track, ...] = TRACKS
    effort: Effort = field(default_factory=lambda: Effort.of(EVALUATIONS))
    seeds: int = 10
    seed: int = 1

    @property
    def tasks(self) -> list[Task]:
        return [Task(data, start, track) for start in self.starts for data in self.data for track in self.tracks]

    def cells(self, task: Task) -> list[Cell]:
        return [Cell(task, epsilon) for epsilon in (self.epsilons if task.start == self.starts[0] else self.fewer)]


@dataclass(frozen=True)
class Job:
    """One contender in one cell."""

    cell: Cell
    contender: Contender
    effort: Effort
    seeds: int
    seed: int

    @property
    def key(self) -> str:
        task = self.cell.task
        about = task.data.toml, task.start, task.track, self.cell.epsilon, self.contender.content(task)
        return key_of(about, self.effort, self.seed, repr(self.contender.axes(task)))

    def gap(self, point: tuple[float, ...], number: int) -> float:
        """Ŵ on a tuning seed."""
        seed = _TUNING + _SEEDS_APART * self.seed + number
        return laboratory(self.cell.task.data).gap(self.contender.ended(self.cell, point, seed))[0]


@dataclass(frozen=True, eq=False)
class Result:
    """A contender at its best settings, on fresh seeds."""

    job: Job
    search: Search
    outcomes: tuple[Outcome, ...]

    @property
    def label(self) -> str:
        return self.job.contender.label

    @property
    def reference(self) -> bool:
        return not isinstance(self.job.contender, Method)

    @property
    def papers_own(self) -> bool:
        return isinstance(self.job.contender, Method) and self.job.contender.papers_own

    @property
    def complete(self) -> bool:
        """Whether every fresh seed got through."""
        return all(math.isfinite(one.gap) for one in self.outcomes)

    @property
    def settings(self) -> dict[str, float]:
        return settings(self.job.contender.axes(self.job.cell.task), self.search.best.point)

    @property
    def edges(self) -> list[str]:
        return self.search.edges(self.job.contender.axes(self.job.cell.task))

    def of(self, metric: str) -> Array:
        return np.array([getattr(one, metric) for one in self.outcomes])

    def mean(self, metric: str) -> float:
        return float(np.mean(self.of(metric)))

    def error(self, metric: str) -> float:
        """Standard error of the mean."""
        found = self.of(metric)
        return float(found.std(ddof=1) / math.sqrt(len(found))) if len(found) > 1 else math.nan


@dataclass(frozen=True)
class LeftOut:
    """A method that has no place in a task, and why."""

    task: Task
    label: str
    reason: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """All results, and what it takes to read them."""

    plan: Plan
    results: tuple[Result, ...]
    left_out: tuple[LeftOut, ...]
    seconds: float = 0.0  # of a processor, for all of it

    def within(self, cell: Cell) -> list[Result]:
        """Of one cell, the lowest gap first, references after methods."""
        found = [one for one in self.results if one.job.cell == cell]
        return sorted(found, key=lambda one: (one.reference, one.mean("gap")))

    @property
    def cells(self) -> list[Cell]:
        return [cell for task in self.plan.tasks for cell in self.plan.cells(task)]


def searched(job: Job, search: Search | None, waves: int) -> Search:
    """A search carried on until so many waves are done."""
    axes = job.contender.axes(job.cell.task)
    seed = _SEEDS_APART * job.seed
    search = search or begun(axes, job.contender.own(job.cell.task), job.gap, job.effort, seed)
    while search.waves < waves:
        search = carried_on(search, axes, job.gap, job.effort, seed)
    return search


def measured(job: Job, point: tuple[float, ...]) -> list[Outcome]:
    """The outcome on each of the reporting seeds."""
    lab, first = laboratory(job.cell.task.data), _REPORTING + _SEEDS_APART * job.seed
    return [lab.judged(job.contender.ended(job.cell, point, first + number)) for number in range(job.seeds)]


def compare(
    plan: Plan,
    *,
    kept: Path | None = None,
    executor: str | None = None,
    progress: Progress = lambda done, total, note: None,
) -> Comparison:
    """Everything that is not kept from before, on as many workers as there are."""
    jobs, left_out = _jobs(plan)
    store = Kept(kept)
    with opened(executor) as pool:
        bench = _Bench(pool, store, Tally(len(jobs) * (plan.effort.runs(plan.effort.waves) + plan.seeds), progress))
        searches = bench.search(jobs, plan.effort)
        outcomes = bench.measure(jobs, searches)
    results = (Result(*parts) for parts in zip(jobs, searches, map(tuple, outcomes), strict=True))
    seconds = store.seconds((job.key for job in jobs), map(_measured_key, jobs, searches))
    return Comparison(plan, tuple(one for one in results if one.search.found), tuple(left_out), seconds)


def _jobs(plan: Plan) -> tuple[list[Job], list[LeftOut]]:
    jobs, left_out = [], []
    for task in plan.tasks:
        reasons = {method: method.refusal(task) for method in plan.methods}
        left_out += [LeftOut(task, method.label, reason) for method, reason in reasons.items() if reason]
        admitted: list[Contender] = [method for method, reason in reasons.items() if not reason]
        for cell in plan.cells(task):
            jobs += [Job(cell, one, plan.effort, plan.seeds, plan.seed) for one in (*admitted, *REFERENCES)]
    return jobs, left_out


@dataclass(frozen=True, eq=False)
class _Bench:
    """Where jobs are done, and what is kept of them."""

    pool: Executor
    kept: Kept
    tally: Tally

    def search(self, jobs: Sequence[Job], effort: Effort) -> list[Search]:
        """Waves for everybody; an exchange; and further waves for all of a cell while a winner is at an end."""
        found = self._waves(jobs, [self.kept.search(job.key) for job in jobs], effort, "searching")
        if not effort.exchanges:
            return found
        return self._waves(jobs, self._exchange(jobs, found), effort, "searching again")

    def _waves(self, jobs: Sequence[Job], before: Sequence[Search | None], effort: Effort, what: str) -> list[Search]:
        found, wanted = list(before), {job.cell: effort.waves for job in jobs}
        for job, one in zip(jobs, before, strict=True):  # a cell that was wider before stays so, for everybody
            wanted[job.cell] = max(wanted[job.cell], one.waves if one else 0)
        for extra in range(effort.more_waves + 1):
            open_ = mixed(n for n, one in enumerate(found) if one is None or one.waves < wanted[jobs[n].cell])
            runs = sum(effort.runs_from(found[n], wanted[jobs[n].cell]) for n in open_)
            planned = len(jobs) * effort.runs(effort.waves) if what == "searching" and not extra else 0
            note = self.tally.phase(what if not extra else f"{what} wider, {extra}", runs, planned)
            items = [(jobs[n], found[n], wanted[jobs[n].cell]) for n in open_]
            for n, done in zip(open_, gather(self.pool, _search, items, note, self._keep_search), strict=True):
                found[n] = done.made
            known = [one for one in found if one is not None]
            for cell in _at_ends(jobs, known):
                wanted[cell] = min(wanted[cell] + 1, effort.waves + 2 * effort.more_waves)
        return known

    def _exchange(self, jobs: Sequence[Job], found: Sequence[Search]) -> list[Search]:
        """Everybody tries what it won with at the other ε of the same task."""
        together: dict[tuple[Task, str], list[int]] = {}
        for n, job in enumerate(jobs):
            together.setdefault((job.cell.task, job.contender.label), []).append(n)
        open_, items, runs = mixed(n for n, one in enumerate(found) if not one.exchanged), [], 0
        for n in open_:
            group = together[jobs[n].cell.task, jobs[n].contender.label]
            items.append((jobs[n], found[n], tuple(found[other] for other in group if other != n)))
            runs += (len(group) - 1) * jobs[n].effort.exchange
        done = gather(self.pool, _exchanged, items, self.tally.phase("exchanging", runs), self._keep_search)
        after = {n: one.made for n, one in zip(open_, done, strict=True)}
        return [after.get(n, one) for n, one in enumerate(found)]

    def measure(self, jobs: Sequence[Job], searches: Sequence[Search]) -> list[list[Outcome]]:
        keys = list(map(_measured_key, jobs, searches))
        found = [self.kept.outcomes(key) for key in keys]
        open_ = mixed(n for n, one in enumerate(found) if one is None and searches[n].found)
        items = [(jobs[n], searches[n].best.point, keys[n]) for n in open_]
        note = self.tally.phase("fresh seeds", sum(job.seeds for job, *_ in items), sum(job.seeds for job in jobs))
        for n, done in zip(open_, gather(self.pool, _measure, items, note, self._keep_outcomes), strict=True):
            found[n] = done.made
        return [one or [] for one in found]

    # Kept here, and not where the work is done: a worker of a cluster may have no such folder.

    def _keep_search(self, item: tuple[Job, Any, Any], done: Timed[Search]) -> None:
        self.kept.keep_search(item[0].key, done.made, done.seconds)

    def _keep_outcomes(self, item: tuple[Job, Any, str], done: Timed[list[Outcome]]) -> None:
        self.kept.keep_outcomes(item[2], done.made, done.seconds)


def _measured_key(job: Job, search: Search) -> str:
    return key_of(job.key, search.best.point, job.seeds)


def _at_ends(jobs: Sequence[Job], searches: Iterable[Search]) -> set[Cell]:
    pairs = zip(jobs, searches, strict=True)
    return {job.cell for job, search in pairs if search.edges(job.contender.axes(job.cell.task))}


def _search(item: tuple[Job, Search | None, int]) -> Timed[Search]:
    job, before, waves = item
    return Timed.of(lambda: searched(job, before, waves))


def _exchanged(item: tuple[Job, Search, tuple[Search, ...]]) -> Timed[Search]:
    job, before, others = item
    return Timed.of(lambda: exchanged(before, others, job.gap, job.effort))


def _measure(item: tuple[Job, tuple[float, ...], str]) -> Timed[list[Outcome]]:
    job, point, _ = item
    return Timed.of(lambda: measured(job, point))
