"""A seeded, joint search over all settings of a contender: first everywhere, then around the best, then the best again.

    first     what the contender comes with, and a scrambled Sobol sequence over the declared ranges, one run each
    a wave    the range of every setting whose best value lies at its end is widened, and values beyond that end are
              tried; the rest of the points are Sobol again, in boxes around the best two; then the best few are run
              on seeds that they have not seen. What they are judged by is the mean of ln Ŵ over all their runs.
    exchange  what won nearby is tried: at each other ε of the same task, on the other track, from the other start
A wave takes the same number of runs whatever it finds, so contenders with equally many waves had equally many runs.
The whole is a function of the seed: it can be stopped and taken up again after any wave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import qmc

from dpp2 import BadInput
from dpp2.studies.compare.space import Axis, Point

Evaluate = Callable[[Point, int], float]  # a point and the number of a tuning seed → Ŵ

_EDGE = 0.03  # of a range: who is nearer to an end is at it
_WIDER = 0.5  # of a range, added at such an end
_CENTRES = 2
_EXCHANGED = 500  # first number of the seeds of an exchange
_FEW = 16  # points of a first look; twice as many where many runs follow
_BOXES = (0.25, 0.15, 0.1, 0.06, 0.04)  # half widths, wave by wave


@dataclass(frozen=True)
class Effort:
    """How many runs a search takes."""

    first: int  # a power of two, as Sobol's sequences like it
    waves: int
    around: int = 8
    finalists: int = 2
    trials: int = 2
    more_waves: int = 4  # at most, where a winner is at an end; after an exchange three times as many

    @classmethod
    def of(cls, runs: int) -> Effort:
        """About so many runs, not more."""
        first = _FEW if runs < 5 * _FEW else 2 * _FEW
        waves = (runs - first) // cls(first, 0).wave
        if waves < 1:
            raise BadInput("--evaluations", runs, f"a whole number ≥ {_FEW + cls(first, 0).wave}")
        return cls(first, waves)

    @property
    def wave(self) -> int:
        return self.around + self.finalists * self.trials

    @property
    def exchanges(self) -> bool:
        """Whether winners are exchanged between cells: a quick look does without."""
        return self.first > _FEW

    @property
    def exchange(self) -> int:
        """Runs of a try of what won in another cell."""
        return 1 + self.trials if self.exchanges else 0

    def runs(self, waves: int, others: int = 0) -> int:
        """In all, with an exchange between so many other cells."""
        return self.first + waves * self.wave + others * self.exchange

    def runs_from(self, search: Search | None, waves: int) -> int:
        """That are missing from a search until so many waves are done."""
        return (waves - search.waves) * self.wave if search else self.runs(waves)


@dataclass(frozen=True)
class Tried:
    """A point, and Ŵ of its runs."""

    point: Point
    gaps: tuple[float, ...]

    @property
    def score(self) -> float:
        """Mean of ln Ŵ; inf if a run got lost."""
        return float(np.mean(np.log(self.gaps))) if all(0 < gap < math.inf for gap in self.gaps) else math.inf


@dataclass(frozen=True)
class Search:
    """What was tried so far, in which ranges; `waves` are done."""

    tried: tuple[Tried, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()
    waves: int = 0
    exchanged: bool = False  # whether it has tried what won in other cells

    @property
    def runs(self) -> int:
        return sum(len(one.gaps) for one in self.tried)

    @property
    def best(self) -> Tried:
        """Of those that were run most often, as the winner must be."""
        several = [one for one in self.tried if len(one.gaps) > 1] or list(self.tried)
        return min(several, key=lambda one: one.score)

    @property
    def found(self) -> bool:
        """Whether any run got through."""
        return bool(self.tried) and self.best.score < math.inf

    def edges(self, axes: Sequence[Axis]) -> list[str]:
        """Settings of the winner that lie at an end of their range, which is not their own limit."""
        if not self.found:
            return []
        return [
            axis.name
            for axis, at, (low, high) in zip(axes, self.best.point, self.ranges, strict=True)
            if any(_at_end(axis, at, low, high))
        ]


def begun(axes: Sequence[Axis], own: Point, evaluate: Evaluate, effort: Effort, seed: int) -> Search:
    """What the contender comes with, and a look everywhere; one run where there is nothing to choose."""
    ranges = tuple((max(0.0, low), min(1.0, high)) for low, high in (axis.limits for axis in axes))
    points = [own, *_sobol(ranges, effort.first, (seed, 0))[1:]] if axes else [()]
    return Search(tuple(Tried(point, (evaluate(point, 0),)) for point in points), ranges)


def carried_on(search: Search, axes: Sequence[Axis], evaluate: Evaluate, effort: Effort, seed: int) -> Search:
    """One more wave."""
    if not axes:
        return replace(search, waves=search.waves + 1)
    ranges = _widened(search, axes)
    points = _next_points(replace(search, ranges=ranges), axes, effort.around, (seed, search.waves + 1))
    tried = [*search.tried, *(Tried(point, (evaluate(point, 0),)) for point in points)]
    order = sorted(range(len(tried)), key=lambda n: tried[n].score)
    seeds = range(1 + search.waves * effort.trials, 1 + (search.waves + 1) * effort.trials)
    for n in order[: effort.finalists]:
        point, gaps = tried[n].point, tried[n].gaps
        tried[n] = Tried(point, (*gaps, *(evaluate(point, number) for number in seeds)))
    return replace(search, tried=tuple(tried), ranges=ranges, waves=search.waves + 1)


def exchanged(search: Search, others: Sequence[Search], evaluate: Evaluate, effort: Effort) -> Search:
    """The same after a try of what won in other cells, as often for everybody: own winners stand in for lost ones."""
    tried = list(search.tried)
    for number, other in enumerate(others if search.ranges else ()):
        point = (other if other.found else search).best.point
        seeds = (0, *(_EXCHANGED + effort.trials * number + trial for trial in range(effort.trials)))
        tried.append(Tried(point, tuple(evaluate(point, seed) for seed in seeds)))
    every = [search.ranges, *(other.ranges for other in others)]
    ranges = tuple((min(low for low, _ in axis), max(high for _, high in axis)) for axis in zip(*every, strict=True))
    return replace(search, tried=tuple(tried), ranges=ranges, exchanged=True)


def _next_points(search: Search, axes: Sequence[Axis], count: int, seed: tuple[int, int]) -> list[Point]:
    """Values beyond every end that was widened, then boxes around the best."""
    ranked = sorted(search.tried, key=lambda one: one.score)[:_CENTRES]
    points = _beyond(ranked[0].point, axes, search.ranges)[: count // 2]
    half = _BOXES[min(seed[1] - 1, len(_BOXES) - 1)]
    shares = np.array_split(np.arange(count - len(points)), len(ranked))
    for number, (centre, share) in enumerate(zip(ranked, shares, strict=True)):
        box = tuple(
            (max(at - half * (high - low), low), min(at + half * (high - low), high))
            for at, (low, high) in zip(centre.point, search.ranges, strict=True)
        )
        points += _sobol(box, len(share), (*seed, number))
    return points


def _beyond(point: Point, axes: Sequence[Axis], ranges: Sequence[tuple[float, float]]) -> list[Point]:
    """The point with one setting moved beyond [0, 1], or beyond what it was, where its range reaches further."""
    found = []
    for number, (at, (low, high)) in enumerate(zip(point, ranges, strict=True)):
        ends = ((high, at > 1 - _EDGE and high > 1), (low, at < _EDGE and low < 0))
        found += [(*point[:number], (at + end) / 2, *point[number + 1 :]) for end, widened in ends if widened]
    return found


def _widened(search: Search, axes: Sequence[Axis]) -> tuple[tuple[float, float], ...]:
    """Ranges with more room where the best point is at an end."""
    best = min(search.tried, key=lambda one: one.score)
    found = []
    for axis, at, (low, high) in zip(axes, best.point, search.ranges, strict=True):
        at_low, at_high = _at_end(axis, at, low, high)
        least, most = axis.limits
        more = _WIDER * (high - low)
        found.append((max(low - more, least) if at_low else low, min(high + more, most) if at_high else high))
    return tuple(found)


def _at_end(axis: Axis, at: float, low: float, high: float) -> tuple[bool, bool]:
    """Whether a coordinate lies at the lower or the upper end of its range, and the range could be wider."""
    least, most = axis.limits
    near = _EDGE * (high - low)
    return at - low < near and low > least, high - at < near and high < most


def _sobol(ranges: Sequence[tuple[float, float]], count: int, seed: tuple[int, ...]) -> list[Point]:
    if not count:
        return []
    rng = np.random.default_rng(seed)
    exponent = max(math.ceil(math.log2(count)), 0)
    unit = qmc.Sobol(len(ranges), scramble=True, rng=rng).random_base2(exponent)[:count]
    low, high = np.array(ranges).T
    return [tuple(row) for row in (low + unit * (high - low)).tolist()]
