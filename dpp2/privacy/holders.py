"""Which agents hold the Laplace noise that everybody hides behind (see `correlated`).

In ℓ1 a shift is taken up by one holder, so own noise at more agents makes the result worse and nobody safer. With c
colluders, c + 1 holders are the fewest of whom one is honest. They are chosen so that the worst distance from an honest
agent to an honest holder, over all sets of c colluders, is smallest. Where colluders can cut agents off, every part
that they can cut off needs holders of its own, so more than c + 1 are taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy.correlated import Edges

Holders = tuple[int, ...]
_MOST_ENTRIES = 2e7  # of all tables of distances together: 160 MB
_MOST_STEPS = 2e9  # additions and comparisons of an exact search: some seconds
_ROUNDS = 20  # of local search, at most

# exact       the best of all choices of this size
# search      greedy choice, then exchanges of one holder while that helps: usually the best, without a proof
# everybody   the network is too large for a table of distances: every agent holds noise, which never fails
Method = Literal["exact", "search", "everybody"]


@dataclass(frozen=True)
class HolderChoice:
    """Who holds noise, the worst distance along edges to one of them (without the step to ground), and how found."""

    holders: Holders
    distance: float
    method: Method


def choose_holders(agents: int, edges: Edges, lengths: Array, colluders: int) -> HolderChoice:
    """The holders for up to so many colluders; `lengths` has 1/s_e for every edge."""
    if not 0 <= colluders < agents:
        raise BadInput("privacy.colluders", colluders, f"a whole number from 0 to {agents - 1}")
    everybody = HolderChoice(tuple(range(agents)), 0.0, "everybody")
    sets, count = math.comb(agents, colluders), colluders + 1
    if sets * agents**2 > _MOST_ENTRIES:
        return everybody
    tables = _Tables(agents, edges, lengths, colluders)
    if sets * agents * count * math.comb(agents, count) <= _MOST_STEPS:
        best = min(combinations(range(agents), count), key=lambda chosen: (tables.worst(chosen), chosen))
        if tables.worst(best) < math.inf:
            return HolderChoice(best, tables.worst(best), "exact")
    found = _exchanged(tables, _pruned(tables, _greedy(tables, count), count))
    return HolderChoice(found, tables.worst(found), "search")


class _Tables:
    """Distances between honest agents for every set of colluders."""

    def __init__(self, agents: int, edges: Edges, lengths: Array, colluders: int) -> None:
        self.agents = agents
        sets = list(combinations(range(agents), colluders))
        # to[h, set, i]: from i to a holder h; ∞ if h colludes, −∞ if i does (nothing has to be hidden any more)
        self.to = np.stack([_distances(agents, edges, lengths, bad) for bad in sets], axis=1)

    def nearest(self, holders: Iterable[int]) -> Array:
        """From every agent to its nearest honest holder, for every set of colluders."""
        return np.asarray(self.to[list(holders)].min(axis=0))

    def worst(self, holders: Iterable[int]) -> float:
        return max(float(self.nearest(holders).max()), 0.0)

    def score(self, nearest: Array) -> tuple[int, float, float]:
        """Smaller is better: agents without a holder, the worst distance, the sum of all distances."""
        finite = nearest[np.isfinite(nearest)]
        return int(np.isposinf(nearest).sum()), float(finite.max(initial=0.0)), float(finite.sum())


def _distances(agents: int, edges: Edges, lengths: Array, colluders: tuple[int, ...]) -> Array:
    """All shortest paths among the honest agents: (holder, agent)."""
    from scipy.sparse.csgraph import floyd_warshall

    direct = np.full((agents, agents), np.inf)
    i, j = edges.T
    np.minimum.at(direct, (i, j), lengths)
    direct = np.minimum(direct, direct.T)
    direct[list(colluders)] = np.inf
    direct[:, list(colluders)] = np.inf
    found = np.asarray(floyd_warshall(direct, directed=False))
    found[list(colluders)] = np.inf
    found[:, list(colluders)] = -np.inf
    return found


def _greedy(tables: _Tables, count: int) -> Holders:
    """One holder after the other, always the one that helps most; more than `count` while somebody has none."""
    chosen: list[int] = []
    nearest = np.where(np.isneginf(tables.to[0]), -np.inf, np.inf)
    while len(chosen) < count or np.isposinf(nearest).any():
        others = [agent for agent in range(tables.agents) if agent not in chosen]
        best = min(others, key=lambda agent: tables.score(np.minimum(nearest, tables.to[agent])))
        chosen.append(best)
        nearest = np.minimum(nearest, tables.to[best])
    return tuple(sorted(chosen))


def _pruned(tables: _Tables, chosen: Holders, count: int) -> Holders:
    """Without the holders that later ones have made needless, but at least `count`."""
    for holder in chosen:
        rest = tuple(other for other in chosen if other != holder)
        if len(rest) >= count and tables.worst(rest) < math.inf:
            chosen = rest
    return chosen


def _exchanged(tables: _Tables, chosen: Holders) -> Holders:
    """One holder is exchanged for another while that helps."""
    score = tables.score(tables.nearest(chosen))
    for _ in range(_ROUNDS):
        best = min(
            _neighbours(chosen, tables.agents), key=lambda other: tables.score(tables.nearest(other)), default=chosen
        )
        if tables.score(tables.nearest(best)) >= score:
            break
        score, chosen = tables.score(tables.nearest(best)), best
    return chosen


def _neighbours(chosen: Holders, agents: int) -> Iterator[Holders]:
    """All choices that differ in one holder."""
    for out in chosen:
        rest = [holder for holder in chosen if holder != out]
        for into in range(agents):
            if into not in chosen:
                yield tuple(sorted([*rest, into]))
