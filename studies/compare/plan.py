"""What is compared and how hard everybody is tried: a plan, cut into jobs that are independent of each other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dpp2.studies.compare.contenders import Contender, Method
from dpp2.studies.compare.kept import key_of
from dpp2.studies.compare.laboratory import Outcome, laboratory
from dpp2.studies.compare.search import Effort, Search, begun, carried_on
from dpp2.studies.compare.tasks import STARTS, TRACKS, Cell, DataSet, Start, Task, Track

EVALUATIONS, QUICK_EVALUATIONS = 92, 28  # tuning runs of one search of a contender in a cell, before exchanges
MOST_SEARCHES, MOST_SEEDS = 8, 1000

_TUNING, _REPORTING = 1_000_003, 1_000_000_007  # first seeds
_SEEDS_APART = 1000  # between two searches, and between the reports of two comparisons


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
    searches: int = 2  # of everybody, independent of each other
    seeds: int = 10
    seed: int = 1

    @property
    def tasks(self) -> list[Task]:
        return [Task(data, start, track) for start in self.starts for data in self.data for track in self.tracks]

    def cells(self, task: Task) -> list[Cell]:
        return [Cell(task, epsilon) for epsilon in (self.epsilons if task.start == self.starts[0] else self.fewer)]

    def near(self, cell: Cell) -> list[Cell]:
        """Who exchanges winners with it: other ε of the task; the same ε on other tracks, or from other starts."""
        task = cell.task
        others = [replace(task, track=track) for track in self.tracks if track != task.track]
        others += [replace(task, start=start) for start in self.starts if start != task.start]
        along = [one for one in self.cells(task) if one != cell]
        return along + [one for other in others for one in self.cells(other) if one.epsilon == cell.epsilon]


@dataclass(frozen=True)
class Job:
    """One search of one contender in one cell, and a report on what it finds."""

    cell: Cell
    contender: Contender
    effort: Effort
    seeds: int
    seed: int
    number: int = 0  # of the search

    @property
    def key(self) -> str:
        task = self.cell.task
        about = task.data.toml, task.start, task.track, self.cell.epsilon, self.contender.content(task)
        return key_of(about, self.effort, self.stream, repr(self.contender.axes(task)))

    @property
    def stream(self) -> int:
        """Which random numbers it is tuned with: no two searches share them, of this comparison or of another seed."""
        return MOST_SEARCHES * self.seed + self.number

    def gap(self, point: tuple[float, ...], number: int) -> float:
        """Ŵ on a tuning seed."""
        seed = _TUNING + _SEEDS_APART * self.stream + number
        return laboratory(self.cell.task.data).gap(self.contender.ended(self.cell, point, seed))[0]


def searched(job: Job, search: Search | None, waves: int) -> Search:
    """A search carried on until so many waves are done."""
    axes = job.contender.axes(job.cell.task)
    seed = _SEEDS_APART * job.stream
    search = search or begun(axes, job.contender.own(job.cell.task), job.gap, job.effort, seed)
    while search.waves < waves:
        search = carried_on(search, axes, job.gap, job.effort, seed)
    return search


def measured(job: Job, point: tuple[float, ...]) -> list[Outcome]:
    """The outcome on each of the reporting seeds."""
    lab, first = laboratory(job.cell.task.data), _REPORTING + _SEEDS_APART * job.seed
    return [lab.judged(job.contender.ended(job.cell, point, first + number)) for number in range(job.seeds)]
