"""Who is compared, and the grid on which each is tuned.

A point of the grid is a number of rounds K, a decay r of the noise, a factor on the method's step, and a factor on one
further setting that matters to it. Which these are, each algorithm declares (`step`, `moves_with_step`, `further`).
Factors multiply what the method comes with, so that the same grid suits methods whose steps have nothing in common, and
settings of the user's own. What an algorithm declares as a variant, DPP² with damping say, is a method of its own here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from dpp2 import BadInput, Experiment
from dpp2.algorithms import ALGORITHMS
from dpp2.algorithms.declared import Further
from dpp2.errors import UnknownName
from dpp2.schema import Table
from studies.compare.fair import times, with_noise


class GridPoint(NamedTuple):
    """One setting of a method: K, r, and factors on its step and on its further setting."""

    rounds: int
    decay: float
    step: float
    further: float = 1.0


@dataclass(frozen=True)
class Grid:
    """What is tried: every (K, r, step) once, then the best few with every further setting, several times each."""

    rounds: tuple[int, ...]
    decays: tuple[float, ...] = (1.0, 0.98, 0.95, 0.9, 0.8)
    steps: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    finalists: int = 6
    trials: int = 3

    @classmethod
    def up_to(cls, rounds: int) -> Grid:
        """Seven numbers of rounds, evenly spaced in their logarithm, the last being the most that is allowed."""
        return cls(tuple(np.unique(np.geomspace(min(5, rounds), rounds, 7).round().astype(int)).tolist()))

    def first(self) -> list[GridPoint]:
        return [GridPoint(*values) for values in product(self.rounds, self.decays, self.steps)]

    def second(self, best: Iterable[GridPoint], factors: Sequence[float]) -> list[GridPoint]:
        return [point._replace(further=factor) for point in best for factor in factors]

    @property
    def runs(self) -> int:
        """Tuning runs per method, at most."""
        most = max(len(one.factors) for one in further_settings().values())
        return len(self.first()) + self.finalists * self.trials * most


@dataclass(frozen=True)
class Method:
    """One contender: a name for tables, and an experiment with its settings on the common problem and network."""

    label: str
    experiment: Experiment

    @property
    def further(self) -> tuple[float, ...]:
        """Factors to try on the further setting; a method without one has only itself."""
        declared = self.experiment.algorithm.further
        return declared.factors if declared else (1.0,)

    def at(self, point: GridPoint) -> Experiment:
        """Its experiment at a point of the grid, the noise still to be fitted."""
        experiment = with_noise(self.experiment)
        section = experiment.algorithm
        scaled = (section.step, *section.moves_with_step)
        section = section.updated(**{key: times(getattr(section, key), point.step) for key in scaled})
        decay = {"decay": point.decay} if "decay" in type(experiment.noise).model_fields else {}
        run = experiment.run.updated(rounds=point.rounds, telemetry="none")
        noise = experiment.noise.updated(**decay)
        privacy = experiment.privacy.updated(budget=None)  # ε is met by the noise; a run must not stop half-way
        return _further(replace(experiment, run=run, algorithm=section, noise=noise, privacy=privacy), point.further)


def named(names: Sequence[str] | None, problem: Experiment) -> list[Method]:
    """Methods by name (none: all of them) with their defaults, on the problem and network of an experiment."""
    known = _known()
    for name in names or ():
        if name not in known:
            raise UnknownName("--algorithms", name, name, list(known))
    if names and len(set(names)) < len(names):
        raise BadInput("--algorithms", ",".join(names), "every name once")
    tables = problem.tables()
    common = {section: tables[section] for section in ("run", "network", "problem", "privacy")}
    return [Method(name, _on(common, *known[name])) for name in names or known]


def further_settings() -> dict[str, Further]:
    """What is tuned further, by the name of the algorithm."""
    return {name: cls.further for name, cls in zip(ALGORITHMS.names, ALGORITHMS, strict=True) if cls.further}


def of_files(experiments: Sequence[tuple[str, Experiment]]) -> list[Method]:
    """Each file's own settings, which must share problem and network."""
    (first_name, first), *others = experiments
    for name, other in others:
        for section in ("network", "problem", "privacy"):
            mine, theirs = getattr(first, section).table(), getattr(other, section).table()
            if mine != theirs:
                differing = [key for key in mine | theirs if mine.get(key) != theirs.get(key)]
                raise BadInput("FILE", name, f"the same [{section}] as {first_name}, but {differing[0]} differs")
    labels = [f"{name} ({one.algorithm.name})" for name, one in experiments]
    return [Method(label, one) for label, (_, one) in zip(labels, experiments, strict=True)]


def _known() -> dict[str, tuple[str, Mapping[str, float]]]:
    """Everybody who can be compared, as (algorithm, settings): the paper's own first, the others by name."""
    found: dict[str, tuple[str, Mapping[str, float]]] = {}
    for kind in ALGORITHMS.names:
        found |= {kind: (kind, {})} | {name: (kind, values) for name, values in ALGORITHMS[kind].variants.items()}
    return dict(sorted(found.items(), key=lambda item: (not ALGORITHMS[item[1][0]].papers_own, item[0])))


def _on(common: Mapping[str, Table], kind: str, settings: Mapping[str, float]) -> Experiment:
    needed = ALGORITHMS[kind].topology
    tables = {**common, "algorithm": {"name": kind, **settings}}
    if needed and tables["network"]["topology"] != needed:  # it runs on its own network or not at all
        tables["network"] = {key: common["network"][key] for key in ("agents", "weights")}
    return Experiment.parse(tables).resolve()


def _further(experiment: Experiment, factor: float) -> Experiment:
    declared = experiment.algorithm.further
    if declared is None:
        return experiment
    return experiment.with_setting(declared.key, times(experiment.setting(declared.key), factor))
