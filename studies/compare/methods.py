"""Who is compared, and the grid on which each is tuned.

A point of the grid is a number of rounds K, a decay r of the noise, a factor on the method's step, and a factor on one
further setting that matters to it (`FURTHER`). Factors multiply what the method comes with, so that the same grid suits
methods whose steps have nothing in common, and settings of the user's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from dpp2 import BadInput, Experiment
from dpp2.algorithms import ALGORITHMS
from dpp2.errors import UnknownName
from studies.compare.fair import times, with_noise

DAMPED = {"dpp2-damped-1": 1.0, "dpp2-damped-2": 2.0}  # DPP² with τ > 0, a method of its own here
FURTHER: dict[str, tuple[str, tuple[float, ...]]] = {
    "dpp2": ("noise.u_e", (1.0, 10.0, 100.0)),  # most of ε is spent on e, which does less harm than w
    "dgd": ("algorithm.power", (0.0, 0.5, 1.0)),
    "gradient-tracking": ("noise.u_y", (0.1, 1.0, 10.0)),
    "prox-gpda": ("algorithm.beta", (0.15, 0.4, 1.0)),
    "yi": ("algorithm.gamma", (0.2, 0.5, 1.0)),
    "diadsp": ("noise.u_y", (0.1, 1.0, 10.0)),
    "ppdc": ("algorithm.gamma", (0.1, 0.3, 1.0)),
    "pgtc": ("noise.u_y", (0.1, 1.0, 10.0)),
    "dmsp": ("algorithm.q", (0.91, 0.96, 1.0)),
    "wang-nedic": ("algorithm.chi_power", (0.0, 0.5, 1.0)),
}


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
        return len(self.first()) + self.finalists * self.trials * max(len(factors) for _, factors in FURTHER.values())


@dataclass(frozen=True)
class Method:
    """One contender: a name for tables, and an experiment with its settings on the common problem and network."""

    label: str
    experiment: Experiment

    @property
    def further(self) -> tuple[float, ...]:
        """Factors to try on the further setting; a method without one has only itself."""
        return FURTHER.get(self.experiment.algorithm.name, ("", (1.0,)))[1]

    def at(self, point: GridPoint) -> Experiment:
        """Its experiment at a point of the grid, the noise still to be fitted."""
        experiment = with_noise(self.experiment)
        section = experiment.algorithm
        # DPP² needs β < α/λ_max(P), which a smaller α alone would break.
        scaled = (section.step, "beta") if section.name == "dpp2" else (section.step,)
        section = section.updated(**{key: times(getattr(section, key), point.step) for key in scaled})
        decay = {"decay": point.decay} if "decay" in type(experiment.noise).model_fields else {}
        run = experiment.run.updated(rounds=point.rounds, telemetry="none")
        noise = experiment.noise.updated(**decay)
        privacy = experiment.privacy.updated(budget=None)  # ε is met by the noise; a run must not stop half-way
        return _further(replace(experiment, run=run, algorithm=section, noise=noise, privacy=privacy), point.further)


def named(names: Sequence[str] | None, problem: Experiment) -> list[Method]:
    """Methods by name (none: all of them) with their defaults, on the problem and network of an experiment."""
    known = [*DAMPED, *ALGORITHMS.names]
    for name in names or ():
        if name not in known:
            raise UnknownName("--algorithms", name, name, known)
    if names and len(set(names)) < len(names):
        raise BadInput("--algorithms", ",".join(names), "every name once")
    tables = problem.tables()
    common = {section: tables[section] for section in ("run", "network", "problem", "privacy")}
    return [Method(name, _on(common, name)) for name in names or sorted(known, key=_paper_first)]


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


def _on(common: dict[str, dict[str, object]], name: str) -> Experiment:
    kind = "dpp2" if name in DAMPED else name
    algorithm: dict[str, object] = {"name": kind}
    if name in DAMPED:
        algorithm["damping"] = DAMPED[name]
    needed = ALGORITHMS[kind].topology
    tables = common | {"algorithm": algorithm}
    if needed and tables["network"]["topology"] != needed:  # DIFF2 runs on its own star or not at all
        network = {key: common["network"][key] for key in ("agents", "weights")}
        tables = tables | {"network": network}
    return Experiment.parse(tables).resolve()


def _further(experiment: Experiment, factor: float) -> Experiment:
    name = experiment.algorithm.name
    if name not in FURTHER:
        return experiment
    section, _, key = FURTHER[name][0].partition(".")
    table = getattr(experiment, section)
    if section == "noise":
        return replace(experiment, noise=table.updated(**{key: times(getattr(table, key), factor)}))
    return replace(experiment, algorithm=table.updated(**{key: times(getattr(table, key), factor)}))


def _paper_first(name: str) -> tuple[bool, str]:
    return not name.startswith("dpp2"), name
