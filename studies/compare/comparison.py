"""A comparison from beginning to end: who takes part, searches in waves, fresh seeds, and what came out.

Everybody is searched several times, each time from the beginning and with other random numbers: how far these searches
end apart is what a search is worth (`claims`). Seeds of tuning and of reporting differ, or the luckiest settings would
be taken for the best. Tuning looks at the data, so what it chooses is outside every ε: this says which method suits a
problem, not how to run one on private data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dpp2.arrays import Array
from dpp2.studies.compare.contenders import Contender, Method
from dpp2.studies.compare.kept import Kept, key_of
from dpp2.studies.compare.laboratory import Outcome
from dpp2.studies.compare.plan import Job, Plan, measured, searched
from dpp2.studies.compare.references import REFERENCES
from dpp2.studies.compare.search import Effort, Search, exchanged
from dpp2.studies.compare.space import settings
from dpp2.studies.compare.tally import Progress, Tally, Timed, mixed
from dpp2.studies.compare.tasks import Cell, Task
from dpp2.studies.parallel import gather, opened


@dataclass(frozen=True, eq=False)
class Found:
    """What one search chose, and how that did on fresh seeds: the same for every search of a comparison."""

    search: Search
    outcomes: tuple[Outcome, ...]

    @property
    def complete(self) -> bool:
        """Whether every fresh seed got through."""
        return bool(self.outcomes) and all(math.isfinite(one.gap) for one in self.outcomes)

    def of(self, metric: str) -> Array:
        return np.array([getattr(one, metric) for one in self.outcomes])


@dataclass(frozen=True, eq=False)
class Result:
    """A contender in a cell: all its searches. Reported is the one that did best while it was tuned."""

    job: Job  # its first
    found: tuple[Found, ...]

    @cached_property
    def best(self) -> Found:
        """Fresh seeds have no say in this."""
        return min(self.found, key=lambda one: one.search.best.score)

    @property
    def search(self) -> Search:
        return self.best.search

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return self.best.outcomes

    @property
    def runs(self) -> int:
        """Of tuning, in all searches."""
        return sum(one.search.runs for one in self.found)

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
        """Whether every fresh seed got through, whichever search is asked."""
        return all(one.complete for one in self.found)

    @property
    def settings(self) -> dict[str, float]:
        return settings(self.job.contender.axes(self.job.cell.task), self.search.best.point)

    @property
    def edges(self) -> list[str]:
        """Settings that lie at an end of their range, in any search."""
        axes = self.job.contender.axes(self.job.cell.task)
        return list(dict.fromkeys(name for one in self.found for name in one.search.edges(axes)))

    def of(self, metric: str) -> Array:
        return self.best.of(metric)

    def mean(self, metric: str) -> float:
        return float(np.mean(self.of(metric)))

    def error(self, metric: str) -> float:
        """Standard error of the mean; nan where a run got lost."""
        found = self.of(metric)
        if len(found) < 2 or not np.isfinite(found).all():
            return math.nan
        return float(found.std(ddof=1) / math.sqrt(len(found)))


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
        searches = bench.search(jobs, plan)
        outcomes = bench.measure(jobs, searches)
    found = list(map(Found, searches, map(tuple, outcomes)))
    each = plan.searches  # jobs that differ in nothing but their number stand together
    results = (Result(jobs[n], tuple(found[n : n + each])) for n in range(0, len(jobs), each))
    seconds = store.seconds((job.key for job in jobs), map(_measured_key, jobs, searches))
    return Comparison(plan, tuple(one for one in results if one.search.found), tuple(left_out), seconds)


def _jobs(plan: Plan) -> tuple[list[Job], list[LeftOut]]:
    jobs, left_out = [], []
    for task in plan.tasks:
        reasons = {method: method.refusal(task) for method in plan.methods}
        left_out += [LeftOut(task, method.label, reason) for method, reason in reasons.items() if reason]
        admitted: list[Contender] = [method for method, reason in reasons.items() if not reason]
        for cell in plan.cells(task):
            everybody = [Job(cell, one, plan.effort, plan.seeds, plan.seed) for one in (*admitted, *REFERENCES)]
            jobs += [replace(job, number=number) for job in everybody for number in range(plan.searches)]
    return jobs, left_out


@dataclass(frozen=True, eq=False)
class _Bench:
    """Where jobs are done, and what is kept of them."""

    pool: Executor
    kept: Kept
    tally: Tally

    def search(self, jobs: Sequence[Job], plan: Plan) -> list[Search]:
        """Waves for everybody; an exchange; and further waves for all of a cell while a winner is at an end."""
        effort, kept = plan.effort, [self.kept.search(job.key) for job in jobs]
        found = self._waves(jobs, kept, effort, "searching", effort.more_waves)
        if not effort.exchanges:
            return found
        after = self._exchange(jobs, found, plan.near)
        return self._waves(jobs, after, effort, "searching again", 3 * effort.more_waves)

    def _waves(
        self, jobs: Sequence[Job], before: Sequence[Search | None], effort: Effort, what: str, more: int
    ) -> list[Search]:
        """Until all of a cell are done, and none is at an end; at most `more` waves for that."""
        found, wanted = list(before), {job.cell: effort.waves for job in jobs}
        for job, one in zip(jobs, before, strict=True):  # a cell that was wider before stays so, for everybody
            wanted[job.cell] = max(wanted[job.cell], one.waves if one else 0)
        for extra in range(more + 1):
            open_ = mixed(n for n, one in enumerate(found) if one is None or one.waves < wanted[jobs[n].cell])
            runs = sum(effort.runs_from(found[n], wanted[jobs[n].cell]) for n in open_)
            planned = len(jobs) * effort.runs(effort.waves) if what == "searching" and not extra else 0
            note = self.tally.phase(what if not extra else f"{what} wider, {extra}", runs, planned)
            items = [(jobs[n], found[n], wanted[jobs[n].cell]) for n in open_]
            for n, done in zip(open_, gather(self.pool, _search, items, note, self._keep_search), strict=True):
                found[n] = done.made
            known = [one for one in found if one is not None]
            for cell in _at_ends(jobs, known):
                wanted[cell] = min(wanted[cell] + 1, effort.waves + 4 * effort.more_waves)
        return known

    def _exchange(
        self, jobs: Sequence[Job], found: Sequence[Search], near: Callable[[Cell], list[Cell]]
    ) -> list[Search]:
        """Everybody tries what it won with nearby, in its search of the same number; its own, where it took no part."""
        by = {(job.cell, job.contender.label, job.number): one for job, one in zip(jobs, found, strict=True)}
        open_, items, runs = mixed(n for n, one in enumerate(found) if not one.exchanged), [], 0
        for n in open_:
            job, own = jobs[n], found[n]
            others = tuple(by.get((cell, job.contender.label, job.number), own) for cell in near(job.cell))
            items.append((job, own, others))
            runs += len(others) * job.effort.exchange
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
    return key_of(job.key, search.best.point, job.seeds, job.seed)


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
