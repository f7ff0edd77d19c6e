"""The planner's search: every setting of DPP² at once, by the model alone.

The budget fixes the scale. But for c_K, what a grid costs at any scale, ε is proportional to 1/u at fixed K, r, α and
u_e/u_w, and neither τ nor β nor ρ enters it. So every point has one u = (ε(u_w = 1) − c_K)/(budget − c_K), and
thousands of points are compared without running any. Where c_K is as much as the budget, K rounds cannot be had.

A point is a place in the unit cube, one axis for each setting, all of them logarithmic. α is searched as αM, β as its
share of what is admissible, βλ_max(P)/α, and ρ as αρ: moved alone, each then changes one thing. First the cube is
filled evenly (Halton); then the best points get offspring, each displaced along the line through two others, so that it
keeps to the valley that the best ones lie in (differential evolution).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dpp2.algorithms.declared import TwoTiers
from dpp2.arrays import Array
from dpp2.privacy.accountant import epsilon
from dpp2.privacy.dpp2_releases import Dpp2Releases
from dpp2.privacy.epsilon_value import Epsilon
from dpp2.privacy.response import Candidates, Response

_EVEN = 512  # points that fill the cube
_OWN = 128  # further ones, with the experiment's own α, β and ρ
_OFFSPRING = 128
_PARENTS = (64, 20)  # of the first and of the last generation
_REACH = 0.7  # the most that offspring go along the line through two parents, as a part of the parents' distance
_JITTER = 0.02  # deviation of the offspring of the first generation beside that line, in the units of the cube
_SHRINK = (0.002, 0.9)  # 1 − r
_DAMPING = (0.01, 1000.0)
_RATIO = (0.1, 1e5)  # u_e/u_w
_STEP = (1e-4, 10.0)  # αM
_LEAN = (1e-4, 0.97)  # βλ_max(P)/α
_PULL = (1e-4, 20.0)  # αρ
_MOVES = ((1.25, 0.8, 1.0), (0.8, 1.25, 1.0), (1.0, 0.7, 1.0), (1.0, 1.4, 1.0), (1.0, 1.0, 0.7), (1.0, 1.0, 1.4))
NEIGHBOURS = len(_MOVES)  # of a point: these factors on K, 1 − r and α
_CELL = 1.3  # finalists differ in K by this factor
_LARGEST = 150.0  # log10 of a scale whose square still fits float64


class SearchPoint(NamedTuple):
    """What is searched."""

    rounds: int
    decay: float
    damping: float
    ratio: float  # u_e/u_w
    alpha: float
    beta: float
    rho: float


@dataclass(frozen=True, eq=False)
class Space:
    """What is searched over, and what a point of it is worth."""

    response: Response
    unit: Dpp2Releases  # with the experiment's scales; its decay is a placeholder
    own: TwoTiers  # the experiment's α, β and ρ
    largest_eigenvalue: float  # λ_max(P)
    most_rounds: int
    free_ratio: bool
    free_steps: bool
    generations: int

    def mechanism(self, point: SearchPoint) -> Dpp2Releases:
        """With u_w = 1, before its scales are fitted to a budget."""
        return replace(self.unit, decay=point.decay, alpha=point.alpha, u_e=point.ratio, u_w=1.0)

    def gaps(self, points: Sequence[SearchPoint], u_w: Sequence[float] | Array) -> Array:
        """E Ŵ^K of each point at this scale, by the model."""
        rounds, decay, damping, ratio, alpha, beta, rho = np.array(points, dtype=np.float64).T
        scale = np.asarray(u_w)
        return self.response.gap(Candidates(rounds, decay, damping, scale, scale * ratio, alpha, beta, rho))

    def finalists(
        self, budget: float, count: int, *, damped: bool, known: Sequence[SearchPoint] = ()
    ) -> list[SearchPoint]:
        """The best points, best first, at different K: that is where the model is least to be trusted.

        `known` points, such as those of a smaller budget, take part from the beginning.
        """
        rng = np.random.default_rng(0)  # a fixed draw makes plans repeatable
        found: dict[SearchPoint, float] = {}
        points = [*known, *self._first(damped)]
        for left in np.linspace(1, 0, self.generations + 1).tolist():  # of the search
            fresh = list(dict.fromkeys(point for point in points if point not in found))
            if fresh:
                found |= zip(fresh, self._fitted_gaps(fresh, budget).tolist(), strict=True)
            ranked = sorted(found, key=found.__getitem__)
            cubes = self._offspring(ranked[: round(np.interp(left, (0, 1), _PARENTS[::-1]))], left * _JITTER, rng)
            points = [self._point(cube, damped=damped) for cube in cubes]
        return _apart(self._affordable(ranked, budget), count)

    def _affordable(self, points: Iterable[SearchPoint], budget: float) -> list[SearchPoint]:
        return [point for point in points if self.fixed(point.rounds) < budget]

    def fixed(self, rounds: Any) -> Any:
        """c_K: two messages a round, but x⁰, which is the same in both worlds."""
        return (2 * rounds - 1) * self.unit.grid.per_message

    def around(self, point: SearchPoint, budget: float) -> list[SearchPoint]:
        """Neighbours in K, r and α. ε is about r^{−K}, so the first two move against each other, or r alone."""
        near = []
        for K, shrink, step in _MOVES if self.free_steps else [move for move in _MOVES if move[2] == 1]:
            rounds = int(np.clip(round(point.rounds * K), 1, self.most_rounds))
            decay = 1 - min((1 - point.decay) * shrink, _SHRINK[1])
            steps = {"alpha": point.alpha * step, "beta": point.beta * step, "rho": point.rho / step}
            moved = point._replace(rounds=rounds, decay=decay, **(steps if step != 1 else {}))
            near.append(_rounded(moved, steps=self.free_steps))
        return self._affordable(dict.fromkeys(near), budget)

    def _offspring(self, parents: Sequence[SearchPoint], jitter: float, rng: np.random.Generator) -> Array:
        cubes = np.array([self._place(parent) for parent in parents])
        one, from_, to = cubes[rng.integers(len(cubes), size=(3, _OFFSPRING))]
        reach = _REACH * rng.random((_OFFSPRING, 1))
        return np.asarray(np.clip(one + reach * (to - from_) + jitter * rng.standard_normal(one.shape), 0, 1))

    def _first(self, damped: bool) -> list[SearchPoint]:
        """The even filling, and one with the experiment's own α, β and ρ."""
        from scipy.stats import qmc

        even = qmc.Halton(len(self._axes), seed=0).random(_EVEN + _OWN)
        own = self._place(SearchPoint(1, 1.0, 1.0, 1.0, self.own.alpha, self.own.beta, self.own.rho))
        even[_EVEN:, 4:] = own[4:]
        return [self._point(cube, damped=damped) for cube in even]

    @cached_property
    def _axes(self) -> Array:
        """(7, 2): logarithms of the least and the largest value on each axis of the cube."""
        ratio = _RATIO if self.free_ratio else [self.unit.u_e / self.unit.u_w] * 2
        steps = (
            (_STEP, _LEAN, _PULL) if self.free_steps else [[value] * 2 for value in self._relative(*_steps(self.own))]
        )
        return np.log([(1, self.most_rounds), _SHRINK, _DAMPING, ratio, *steps])

    def _relative(self, alpha: float, beta: float, rho: float) -> tuple[float, float, float]:
        return alpha * self.unit.smoothness, beta * self.largest_eigenvalue / alpha, alpha * rho

    def _place(self, point: SearchPoint) -> Array:
        """Where in the cube a point lies; on an axis that is held it lies anywhere."""
        rounds, decay, damping, ratio, *steps = point
        values = [rounds, max(1 - decay, _SHRINK[0]), max(damping, _DAMPING[0]), ratio, *self._relative(*steps)]
        low, high = self._axes.T
        return np.asarray((np.log(values) - low) / np.where(high > low, high - low, 1.0))

    def _point(self, cube: Array, *, damped: bool) -> SearchPoint:
        low, high = self._axes.T
        rounds, shrink, damping, ratio, step, lean, pull = np.exp(low + cube * (high - low)).tolist()
        steps = _steps(self.own)
        if self.free_steps:
            alpha = step / self.unit.smoothness
            steps = alpha, lean * alpha / self.largest_eigenvalue, pull / alpha
        point = SearchPoint(round(rounds), 1 - shrink, damping if damped else 0.0, ratio, *steps)
        return _rounded(point, steps=self.free_steps)

    def _fitted_gaps(self, points: Sequence[SearchPoint], budget: float) -> Array:
        """With the scale that spends the budget."""
        fixed = self.fixed(np.array([point.rounds for point in points]))
        log10 = np.array([self._log10_cost(point) for point in points])
        with np.errstate(divide="ignore", invalid="ignore"):  # rounds that the budget cannot pay for
            log10 += np.log10(1 - np.minimum(fixed * 10.0 ** -np.minimum(log10, _LARGEST), 1))
            log10 -= np.where(fixed < budget, np.log10(budget - fixed), -_LARGEST)
        return self.gaps(points, 10 ** np.minimum(log10, _LARGEST))

    def _log10_cost(self, point: SearchPoint) -> float:
        """log10 ε of a point with u_w = 1: the only question that the search asks the accountant."""
        spent = epsilon(self.mechanism(point), point.rounds)
        assert isinstance(spent, Epsilon), "asked before the search"
        return spent.log10


def _steps(own: TwoTiers) -> tuple[float, float, float]:
    return own.alpha, own.beta, own.rho


def _apart(ranked: Sequence[SearchPoint], count: int) -> list[SearchPoint]:
    """The first ones that differ in K."""
    chosen: list[SearchPoint] = []
    for point in ranked:
        ratios = [max(point.rounds / one.rounds, one.rounds / point.rounds) for one in chosen]
        if all(ratio >= _CELL for ratio in ratios):
            chosen.append(point)
    return chosen[:count]


def _rounded(point: SearchPoint, *, steps: bool) -> SearchPoint:
    """Figures that a person can copy; the scale is fitted to them afterwards. `steps`: round α, β and ρ as well."""
    decay = 1.0 if point.rounds == 1 else round(1 - _three_digits(1 - point.decay), 10)  # one round: nothing decays
    short: Any = {
        key: _three_digits(getattr(point, key)) for key in ("damping", "ratio", *(("alpha", "beta", "rho") * steps))
    }
    return point._replace(decay=decay, **short)


def _three_digits(number: float) -> float:
    return float(f"{number:.3g}")
