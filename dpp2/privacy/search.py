"""The planner's search: rounds, decay and damping on a grid and then around its best points, by the model alone.

The budget fixes the scale. ε is proportional to 1/u at fixed K and r and does not depend on τ, so every point
(K, r, τ) has one u = ε(K, r; u = 1)/budget, and thousands of points are compared without running any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from dpp2.arrays import Array
from dpp2.privacy.accountant import cumulative
from dpp2.privacy.dpp2_releases import Dpp2Releases
from dpp2.privacy.epsilon_value import Curve
from dpp2.privacy.response import Candidates, Response

_ROUNDS = 24  # values of K on the grid, evenly spaced in its logarithm
_SHRINKS = (0.0, 0.003, 0.006, 0.012, 0.02, 0.03, 0.045, 0.065, 0.09, 0.12, 0.16, 0.22, 0.3, 0.4, 0.55)  # 1 − r
_DAMPINGS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.55, 0.75)  # of the largest τ that is stable
_STEPS = (1.25, 1.12, 1.06, 1.03)  # factors of the local refinement
_MOVES = ((1.25, 0.8), (0.8, 1.25), (1.0, 0.7), (1.0, 1.4))  # of K and 1 − r, to the neighbours of a point
NEIGHBOURS = len(_MOVES)
_CELL = 1.16  # by how much K may leave its grid point: finalists are to differ in K
_LARGEST = 150.0  # log10 of a scale whose square still fits float64


class SearchPoint(NamedTuple):
    """What is searched; in arrays these are the columns."""

    rounds: int
    decay: float
    damping: float
    ratio: float  # factor on the experiment's u_e/u_w


@dataclass(frozen=True, eq=False)
class Space:
    """What is searched over, and what a point of it is worth."""

    response: Response
    unit: Dpp2Releases  # with the experiment's scales; its decay is a placeholder
    most_rounds: int
    ratios: tuple[float, ...]

    def mechanism(self, point: SearchPoint) -> Dpp2Releases:
        """Before its scales are fitted to a budget."""
        return replace(self.unit, decay=point.decay, u_e=self.unit.u_e * point.ratio)

    def gap_of(self, point: SearchPoint, u_w: float, u_e: float) -> float:
        columns = np.array([[*point[:3], u_w, u_e]]).T
        return float(self.response.gap(Candidates(*columns))[0])

    def finalists(self, budget: float, count: int, *, damped: bool) -> list[SearchPoint]:
        """The best points, best first, at different K: that is where the model is least to be trusted."""
        grid = self._grid(damped)
        gaps = self._gaps(grid, budget)
        order = np.argsort(gaps, kind="stable")
        _, best_of_each = np.unique(grid[order, 0], return_index=True)
        refined = self._refine(grid[order[np.sort(best_of_each)[:count]]], budget)
        ranked = refined[np.argsort(self._gaps(refined, budget), kind="stable")]
        return list(dict.fromkeys(_rounded(row) for row in ranked))

    def around(self, point: SearchPoint) -> list[SearchPoint]:
        """Neighbours in K and r. ε is about r^{−K}, so they move against each other, or r alone."""
        rounds, shrink = np.array(_MOVES).T * [[point.rounds], [1 - point.decay]]
        rounds = np.clip(rounds.round(), 1, self.most_rounds)
        near = (np.array([K, 1 - s, *point[2:]]) for K, s in zip(rounds, np.minimum(shrink, 0.9), strict=True))
        return list(dict.fromkeys(_rounded(row) for row in near))

    def _grid(self, damped: bool) -> Array:
        rounds = np.unique(np.geomspace(1, self.most_rounds, _ROUNDS).round())
        decays = 1 - np.array(_SHRINKS)
        dampings = self._largest_damping() * np.array(_DAMPINGS) if damped else np.zeros(1)
        axes = np.meshgrid(rounds, decays, dampings, self.ratios, indexing="ij")
        return np.stack([axis.ravel() for axis in axes], axis=1)

    def _largest_damping(self) -> float:
        """τ at which G_λρλ(1+2τ) + 2G_λh = 4 on the first mode to lose its stability (stability.py)."""
        model = self.response
        G = model.alpha - model.beta * model.eigenvalues[1:]
        load = G * model.rho * model.eigenvalues[1:]
        largest = float(((4 - 2 * G * model.stiffest()[1:]) / load - 1).min() / 2)
        return max(largest, 0.1)  # where none is stable any will do: the gaps will show it

    def _refine(self, points: Array, budget: float) -> Array:
        """Every point moves to the best of its neighbours, by ever smaller factors on K, 1 − r and τ."""
        low, high = points[:, 0] / _CELL, np.minimum(points[:, 0] * _CELL, self.most_rounds)
        for step in _STEPS:
            moves = np.array(list(product((1 / step, 1, step), repeat=3)))
            near = np.repeat(points[None], len(moves), axis=0)
            near[..., 0] = np.clip((near[..., 0] * moves[:, :1]).round(), np.ceil(low), np.floor(high))
            near[..., 1] = 1 - np.minimum((1 - near[..., 1]) * moves[:, 1:2], 0.9)
            near[..., 2] *= moves[:, 2:]
            gaps = self._gaps(near.reshape(-1, 4), budget).reshape(near.shape[:2])
            points = near[gaps.argmin(axis=0), np.arange(len(points))]
        return points

    def _gaps(self, points: Array, budget: float) -> Array:
        rounds, decay, damping, ratio = points.T
        factor = 10 ** np.minimum(self._log10_cost(points) - math.log10(budget), _LARGEST)
        u_w, u_e = factor * self.unit.u_w, factor * ratio * self.unit.u_e
        return self.response.gap(Candidates(rounds, decay, damping, u_w, u_e))

    def _log10_cost(self, points: Array) -> Array:
        """log10 ε of each point with the experiment's scales: one curve ε(1), ε(2), … per mechanism."""
        log10 = np.empty(len(points))
        kinds, kind_of = np.unique(points[:, [1, 3]], axis=0, return_inverse=True)
        for kind, (decay, ratio) in enumerate(kinds):
            chosen = np.flatnonzero(kind_of.ravel() == kind)
            rounds = points[chosen, 0].astype(np.intp)
            mechanism = self.mechanism(SearchPoint(1, float(decay), 0.0, float(ratio)))
            spent = cumulative(mechanism, int(rounds.max()))
            assert isinstance(spent, Curve), "asked before the search"
            log10[chosen] = spent.log10[rounds - 1]
        return log10


def _rounded(row: Array) -> SearchPoint:
    """Figures that a person can copy; the scale is fitted to them afterwards."""
    rounds, shrink, damping, ratio = int(row[0]), 1 - row[1], row[2], float(row[3])
    decay = 1.0 if rounds == 1 else round(1 - float(f"{shrink:.3g}"), 10)  # in one round the decay does nothing
    return SearchPoint(rounds, decay, float(f"{damping:.3g}"), ratio)
