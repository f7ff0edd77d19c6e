"""What methods are measured against. Each is searched like a method, as far as it has anything to choose.

    stay            x⁰ itself: no message, no ε
    local step      x_i = x⁰_i − α ∇f_i(x⁰_i): no message, no ε
    one gradient    everybody sends one noisy gradient, and gossip averages them for free
    curator         somebody is trusted with every gradient, and adds noise once
    no privacy      the optimum itself
The noise of one gradient is that of ε spent at once: Lap(√d·δ/ε), or N(0, (δ/μ)²) with μ = μ(ε, δ_dp). The curator's is
an N-th of it, times what G rounds cost; its end is averaged and shrunk like that of DPP³.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpp2.algorithms.declared import Tunable
from dpp2.algorithms.dpp3 import shrunk
from dpp2.arrays import Array
from dpp2.privacy import gdp
from dpp2.studies.compare.laboratory import Laboratory, laboratory
from dpp2.studies.compare.space import Axis, Point, settings
from dpp2.studies.compare.tasks import Cell, Task

_STEP = Axis("reference", Tunable("alpha", 1e-3, 100.0))


class _Reference:
    """Nothing to choose, unless it says so."""

    def axes(self, task: Task) -> tuple[Axis, ...]:
        return ()

    def own(self, task: Task) -> Point:
        return tuple(0.5 for _ in self.axes(task))

    def content(self, task: Task) -> object:
        return repr(self)


@dataclass(frozen=True)
class Stay(_Reference):
    label: str = "stay"

    def ended(self, cell: Cell, point: Point, seed: int) -> Array:
        lab = laboratory(cell.task.data)
        return lab.starts(cell.task.start, seed)


@dataclass(frozen=True)
class LocalStep(_Reference):
    label: str = "local step"

    def axes(self, task: Task) -> tuple[Axis, ...]:
        return (_STEP,)

    def ended(self, cell: Cell, point: Point, seed: int) -> Array:
        lab = laboratory(cell.task.data)
        x = lab.starts(cell.task.start, seed)
        return x - _STEP.value(point[0]) * lab.objective(x)[1]


@dataclass(frozen=True)
class OneGradient(_Reference):
    label: str = "one gradient"

    def axes(self, task: Task) -> tuple[Axis, ...]:
        return (_STEP,)

    def ended(self, cell: Cell, point: Point, seed: int) -> Array:
        lab = laboratory(cell.task.data)
        x = lab.starts(cell.task.start, seed)
        noise = _draws(cell, lab, 1, seed)((lab.agents, lab.objective.dimension))
        sent = x - _STEP.value(point[0]) * (lab.objective(x)[1] + noise)
        return np.broadcast_to(sent.mean(axis=0), sent.shape)


@dataclass(frozen=True)
class Curator(_Reference):
    label: str = "curator"

    def axes(self, task: Task) -> tuple[Axis, ...]:
        return (
            _STEP,
            Axis("reference", Tunable("rounds", 1, 64, least=1, whole=True)),
            Axis("reference", Tunable("slowdown", 0.0, 20.0, "linear", least=0.0)),
            Axis("reference", Tunable("average", 0.0, 1.0, "linear", least=0.0, most=1.0)),
            Axis("reference", Tunable("shrinkage", 0.0, 100.0, "linear", least=0.0)),
        )

    def ended(self, cell: Cell, point: Point, seed: int) -> Array:
        lab, chosen = laboratory(cell.task.data), settings(self.axes(cell.task), point)
        G, d = int(chosen["reference.rounds"]), lab.objective.dimension
        draw = _draws(cell, lab, G, seed)
        x0 = lab.starts(cell.task.start, seed).mean(axis=0)
        x, total, first = x0, np.zeros(d), min(int(G * (1 - chosen["reference.average"])), G - 1)
        for g in range(G):
            step = chosen["reference.alpha"] / (1 + chosen["reference.slowdown"] * g / G)
            x = x - step * (lab.total(x)[1] + draw((d,)) / lab.agents)
            total = total + x if g >= first else total
        variance = _variance(cell, lab, G) / lab.agents**2
        M = float(np.max(lab.bounds.smoothness))
        shrinkage = chosen["reference.shrinkage"] * d * variance / (M**2 * G) if math.isfinite(M) and M else 0.0
        ended = shrunk((total / (G - first))[None], x0[None], shrinkage)
        return np.broadcast_to(ended, (lab.agents, d))


@dataclass(frozen=True)
class NoPrivacy(_Reference):
    label: str = "no privacy"

    def ended(self, cell: Cell, point: Point, seed: int) -> Array:
        lab = laboratory(cell.task.data)
        return np.tile(lab.optimum[1], (lab.agents, 1))


REFERENCES = (Stay(), LocalStep(), OneGradient(), Curator(), NoPrivacy())


class _Draw:
    """Noise that hides one agent's gradient in G rounds, from the seed of the run."""

    def __init__(self, gaussian: bool, scale: float, seed: int) -> None:
        self._gaussian, self._scale = gaussian, scale
        self._rng = np.random.default_rng((seed, 0x726566))

    def __call__(self, shape: tuple[int, ...]) -> Array:
        drawn = self._rng.standard_normal(shape) if self._gaussian else self._rng.laplace(size=shape)
        return np.asarray(self._scale * drawn)


def _draws(cell: Cell, lab: Laboratory, rounds: int, seed: int) -> _Draw:
    return _Draw(bool(cell.task.track.delta), _scale(cell, lab, rounds), seed)


def _scale(cell: Cell, lab: Laboratory, rounds: int) -> float:
    if cell.task.track.delta:
        return lab.adjacency * math.sqrt(rounds) / gdp.mu_at(cell.epsilon, cell.task.track.delta)
    return math.sqrt(lab.objective.dimension) * lab.adjacency * rounds / cell.epsilon


def _variance(cell: Cell, lab: Laboratory, rounds: int) -> float:
    return _scale(cell, lab, rounds) ** 2 * (1.0 if cell.task.track.delta else 2.0)
