"""Who is compared, and which of its settings are searched.

Every algorithm is, under its name or under those that it declares (`variants`), with all settings that it declares
(`tunables`) and the number of rounds, from 1 on. What it holds fixed is not searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from dpp2 import BadInput, Experiment
from dpp2.algorithms import ALGORITHMS
from dpp2.algorithms.base import AlgorithmSection
from dpp2.algorithms.declared import Tunable
from dpp2.arrays import Array
from dpp2.errors import UnknownName
from dpp2.prepared import PreparedRun
from dpp2.privacy import Unsupported
from dpp2.studies.compare.fair import fitted, spent
from dpp2.studies.compare.laboratory import SeededRun, laboratory
from dpp2.studies.compare.space import Axis, Point, applied
from dpp2.studies.compare.tasks import Cell, DataSet, Task

_ROUNDS = Axis("run", Tunable("rounds", 1, 64, least=1, whole=True))


class Contender(Protocol):
    """A method, or a reference that methods are measured against."""

    @property
    def label(self) -> str: ...

    def axes(self, task: Task) -> tuple[Axis, ...]:
        """What is searched; nothing where there is nothing to choose."""

    def own(self, task: Task) -> Point:
        """What it comes with: the first that is tried."""

    def ended(self, cell: Cell, point: Point, seed: int) -> Array | None:
        """x of all agents after a run that spends exactly the ε of the cell; None where there is no such run."""

    def content(self, task: Task) -> object:
        """What it is, wherever it lies: results are kept under this."""


@dataclass(frozen=True)
class Method:
    """An algorithm with some settings held."""

    label: str
    algorithm: str
    held: tuple[tuple[str, object], ...] = ()

    @property
    def section(self) -> type[AlgorithmSection]:
        return ALGORITHMS[self.algorithm].chosen({"name": self.algorithm, **dict(self.held)})

    @property
    def papers_own(self) -> bool:
        return self.section.papers_own

    def axes(self, task: Task) -> tuple[Axis, ...]:
        section, held = self.section, dict(self.held)
        own = [Axis("algorithm", one) for one in section.tunables if one.key not in held]
        noise = [Axis("noise", one) for one in section.noise_section.tunables]
        return (*own, *noise, *([] if section.plans_rounds else [_ROUNDS]))

    def own(self, task: Task) -> Point:
        base = _base(task.data, self, task.start, bool(task.track.delta)).experiment
        return tuple(_own(axis, base) for axis in self.axes(task))

    def ended(self, cell: Cell, point: Point, seed: int) -> Array | None:
        prepared = self.prepared(cell, point, seed)
        return None if isinstance(prepared, Unsupported) else laboratory(cell.task.data).run(prepared)

    def prepared(self, cell: Cell, point: Point, seed: int) -> PreparedRun | Unsupported:
        """A run with its noise fitted, or why there is none."""
        task = cell.task
        base = _base(task.data, self, task.start, bool(task.track.delta))
        try:
            fit = _fit(self, cell, point)
            return fit if isinstance(fit, Unsupported) else base.again(replace(fit, run=fit.run.updated(seed=seed)))
        except BadInput as error:  # settings that this network does not admit
            return Unsupported(str(error))

    def spent(self, cell: Cell, point: Point) -> float:
        """ε by the method's own account."""
        prepared = self.prepared(cell, point, 1)
        if isinstance(prepared, Unsupported):
            return float("nan")
        return spent(prepared.experiment, cell.task.track, laboratory(cell.task.data).bounds)

    def content(self, task: Task) -> object:
        """A method in a file counts by the digest of the file."""
        base = _base(task.data, self, task.start, bool(task.track.delta)).experiment
        return self.label, base.algorithm.digest_table(), base.noise.digest_table()

    def refusal(self, task: Task) -> str | None:
        """Why it has no place in this task, if it has none."""
        other = self.section.with_noise_it_is
        if other:
            return f"with noise it is {other}, which is compared"
        try:
            answer = self.prepared(Cell(task, 1.0), tuple(0.5 for _ in self.axes(task)), 1)
        except BadInput as error:
            return str(error)
        return answer.reason if isinstance(answer, Unsupported) else None


def methods(names: Sequence[str] | None = None) -> list[Method]:
    """By name (none: all of them), the paper's own first; `FILE.py` or `FILE.py:function` is a method of the user's."""
    known = _known()
    found = [_in_file(name) if ".py" in name else known.get(name) for name in names or known]
    for name, method in zip(names or (), found, strict=names is not None):
        if method is None:
            raise UnknownName("--algorithms", name, name, list(known), "FILE.py, or ")
    chosen = [method for method in found if method]
    if len({method.label for method in chosen}) < len(chosen):
        raise BadInput("--algorithms", ",".join(names or ()), "every name once")
    return chosen


def _in_file(name: str) -> Method:
    """Named after its function. Its digest is held, so a file that is changed meanwhile is refused."""
    path, _, function = name.partition(":")
    place = {"path": str(Path(path).absolute()), **({"function": function} if function else {})}
    section: Any = ALGORITHMS["file"].chosen(place)
    return Method(section.source.method.name, "file", (*place.items(), ("sha256", section.source.sha256)))


def _known() -> dict[str, Method]:
    found: dict[str, Method] = {}
    for kind in ALGORITHMS.names:
        variants: Mapping[str, Mapping[str, float]] = ALGORITHMS[kind].variants or {kind: {}}
        found |= {name: Method(name, kind, tuple(held.items())) for name, held in variants.items()}
    return dict(sorted(found.items(), key=lambda item: (not item[1].papers_own, item[0])))


@lru_cache(maxsize=256)
def _base(data: DataSet, method: Method, start: str, approximate: bool) -> PreparedRun:
    """The method with its defaults on the data, before its algorithm settles what it leaves open."""
    section, tables = method.section, data.tables()
    if section.topology and tables["network"]["topology"] != section.topology:  # its own network, or none at all
        tables["network"] = {key: tables["network"][key] for key in ("agents", "weights")}
    noise = {} if approximate else dict(section.noise_section.pure)
    own = {"name": method.algorithm, **dict(method.held)}
    run = {"start": start, "telemetry": "none"}
    parsed = Experiment.parse({**tables, "algorithm": own, "noise": noise, "run": run})
    settled = parsed.resolve()
    prepared = SeededRun.resolved(settled)
    return replace(prepared, experiment=replace(parsed, network=settled.network, problem=settled.problem))


@lru_cache(maxsize=64)
def _fit(method: Method, cell: Cell, point: Point) -> Experiment | Unsupported:
    """The method there, with the noise that spends ε. Kept: the same point is run on several seeds."""
    task = cell.task
    base = _base(task.data, method, task.start, bool(task.track.delta)).experiment
    return fitted(_at(base, method.axes(task), point), cell.epsilon, task.track, laboratory(task.data).bounds)


def _at(base: Experiment, axes: Sequence[Axis], point: Point) -> Experiment:
    """The base at a point, the noise still to be fitted."""
    sections: dict[str, Any] = {}
    for name in ("algorithm", "noise", "run"):
        section: Any = getattr(base, name)
        chosen = [(axis, at) for axis, at in zip(axes, point, strict=True) if axis.section == name]
        values = _values(section, [axis for axis, _ in chosen])
        sections[name] = section.updated(**applied(values, [axis for axis, _ in chosen], tuple(at for _, at in chosen)))
    return replace(base, **sections)


def _own(axis: Axis, base: Experiment) -> float:
    """The coordinate of a default, within its range; the middle where a method leaves it open."""
    value = 1.0 if axis.tunable.relative else base.setting(axis.name)
    if not isinstance(value, (int, float)) or axis.section == "run":
        return 0.5
    return min(max(axis.coordinate(value), 0.0), 1.0)


def _values(section: Any, axes: Sequence[Axis]) -> dict[str, Any]:
    """What a section comes with; scales of noise that are 0 become 1 before a factor is put on them."""
    keys = {key for axis in axes for key in (axis.tunable.key, *axis.tunable.together)}
    found = {key: getattr(section, key) for key in keys}
    relative = {axis.tunable.key for axis in axes if axis.tunable.relative and axis.section == "noise"}
    return {key: (value or 1.0) if key in relative else value for key, value in found.items()}
