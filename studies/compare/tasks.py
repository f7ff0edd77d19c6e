"""What is compared on: a data set with its network and adjacency, a start, and what ε means (a track)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from dpp2 import BadInput, Experiment
from dpp2.experiment import Tables
from dpp2.shipped import experiment_file

Start = Literal["zero", "normal"]
STARTS: tuple[Start, ...] = ("zero", "normal")
DELTA = 1e-5  # δ_dp of the second track


@dataclass(frozen=True)
class Track:
    """What ε means: pure, or that of (ε, δ_dp)."""

    name: str
    delta: float  # δ_dp; 0: pure

    @property
    def title(self) -> str:
        return f"(ε, δ_dp = {self.delta:g})" if self.delta else "pure ε"


PURE, APPROXIMATE = Track("pure", 0.0), Track("approximate", DELTA)
TRACKS = (PURE, APPROXIMATE)


# Some algorithm must be there; this one asks nothing of the data, so that clipped records are no obstacle.
_ANY: Tables = {"algorithm": {"name": "dmsp"}}


@dataclass(frozen=True)
class DataSet:
    """Problem, network and adjacency, as the text of a resolved experiment: it travels to other processes as it is.

    M̄ is declared public, the same for everybody.
    """

    name: str
    about: str
    toml: str = field(repr=False)

    @classmethod
    def of(cls, name: str, about: str, experiment: Experiment) -> DataSet:
        """Of an experiment whose algorithm, noise and budget are left aside."""
        tables = experiment.tables()
        kept = {section: tables[section] for section in ("network", "problem", "privacy")}
        kept["privacy"].pop("budget", None)
        seed = tables["run"]["seed"]
        plain = Experiment.parse({**kept, "run": {"seed": seed if isinstance(seed, int) else 1}, **_ANY}).resolve()
        if plain.privacy.smoothness is None:
            smoothness = plain.objective().smoothness.max()
            known = {"smoothness": float(smoothness * (1 + 1e-9))} if np.isfinite(smoothness) else {}
            plain = replace(plain, privacy=plain.privacy.updated(**known))
        return cls(name, about, plain.to_toml())

    def tables(self) -> Tables:
        """[network], [problem] and [privacy], resolved."""
        read = tomllib.loads(self.toml)
        return {section: read[section] for section in ("network", "problem", "privacy")}

    def experiment(self) -> Experiment:
        return Experiment.parse({**self.tables(), **_ANY})


@dataclass(frozen=True)
class Task:
    """One data set from one start on one track."""

    data: DataSet
    start: Start
    track: Track

    @property
    def title(self) -> str:
        return f"{self.data.name}, start {self.start}, {self.track.title}"


@dataclass(frozen=True)
class Cell:
    """A task at one ε: what a row of results belongs to."""

    task: Task
    epsilon: float


_TEN_AGENTS: Mapping[str, object] = {
    "network.topology": "erdos-renyi",
    "network.agents": 10,
    "problem.name": "classification",
}
BUNDLED: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "paper": ("the paper's data: 50 agents, random labels, so that there is next to nothing to learn", {}),
    "planted": (
        "the paper's features with labels that a common x explains, one in five flipped",
        {"problem.labels": "planted"},
    ),
    "breast-cancer": (
        "scikit-learn's breast cancer data, dealt evenly to 10 agents",
        {**_TEN_AGENTS, "problem.data": "breast-cancer"},
    ),
    "digits": (
        "scikit-learn's digits, odd or even, dealt evenly to 10 agents",
        {**_TEN_AGENTS, "problem.data": "digits"},
    ),
}


def bundled(names: Iterable[str] = tuple(BUNDLED)) -> list[DataSet]:
    chosen = ((name, *BUNDLED[name]) for name in names)
    return [DataSet.of(name, about, Experiment.load(overrides=settings)) for name, about, settings in chosen]


def of_files(files: Sequence[Path], load: Callable[[Path], Experiment]) -> list[DataSet]:
    """One data set for each: an experiment's file, or the name of a bundled one."""
    found = [one for path in files for one in _named(path, load)]
    names = [one.name for one in found]
    for path, name in zip(files, names, strict=True):
        if names.count(name) > 1:  # they would share one picture
            raise BadInput("FILE", str(path), "files with names of their own")
    return found


def _named(path: Path, load: Callable[[Path], Experiment]) -> list[DataSet]:
    if str(path) in BUNDLED and not path.exists():
        return bundled([str(path)])
    return [DataSet.of(path.stem, f"the problem of {path.name}", load(experiment_file(path, BUNDLED)))]
