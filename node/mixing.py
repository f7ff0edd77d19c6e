"""Σ_j p_ij v_j for the agents hosted here, summed over agents in ascending order.

The order is part of the contract: the embedded driver's sparse product adds in the same order, so both give the same
bits. Terms are added slot by slot, all hosted agents at once: slot s holds everybody's s-th neighbour, itself among
them. Agents with fewer neighbours are padded at the end with weight 0, which adds nothing. Thousands of agents are what
sparse matrices are for: there the very product of the embedded driver is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpp2.arrays import Array
from dpp2.node.codec import numbers, payload
from dpp2.topology import Graph

if TYPE_CHECKING:
    from dpp2.weights import Matrix

_SMALL = 1 << 16  # numbers: below, all rows are copied and multiplied in one go; above, that would take longer
_SHORT = 1 << 7  # numbers in a row: short rows are taken as many together as are small; long ones each by itself
_MANY = 2000  # agents; the spectrum of so large a network has loaded scipy anyway


class Mixer:
    """The rows of P that belong to the hosted agents. `order` says whose rows come, one after the other."""

    def __init__(self, graph: Graph, edge_weights: Array, owned: Sequence[int], order: Sequence[int]) -> None:
        self._place: int | None = None  # of the only hosted agent among all whose rows come
        self._sparse = _sparse_rows(graph, edge_weights, owned, order) if len(owned) > _MANY else None
        if self._sparse is not None:
            return
        rows = _rows(graph, edge_weights, owned)
        place = {agent: n for n, agent in enumerate(order)}
        slots = max(len(row) for row in rows)
        self._index = np.zeros((slots, len(owned)), dtype=np.intp)
        self._weight = np.zeros((slots, len(owned), 1))
        for n, row in enumerate(rows):
            for slot, j in enumerate(sorted(row)):
                self._index[slot, n], self._weight[slot, n, 0] = place[j], row[j]
        if len(owned) == 1 and [*sorted(rows[0])] == [*sorted(order)] and [*order[1:]] == [*sorted(order[1:])]:
            self._place = sorted(order).index(owned[0])

    def mix(self, own: Array, others: Sequence[bytes]) -> Array:
        """`own` (hosted agents, d) comes first, then what `others` sent."""
        dimension = own.shape[1]
        if self._sparse is not None:
            product: Array = self._sparse @ np.concatenate([own, *(numbers(rows, dimension) for rows in others)])
            return product
        small = self._index.size * dimension <= _SMALL
        if small and self._place is not None and len(others) == len(self._index) - 1:
            return self._of_one(own, others, self._place)
        if small or dimension <= _SHORT:
            return self._together(numbers(b"".join((payload(own), *others)), dimension))
        return self._one_by_one([*own, *(row for rows in others for row in numbers(rows, dimension))])

    def _together(self, rows: Array) -> Array:
        """As many agents at once as have few numbers."""
        slots, agents = self._index.shape
        some = max(_SMALL // (slots * rows.shape[1]), 1)
        if some >= agents:
            return self._at_once(rows, slice(None))
        return np.concatenate([self._at_once(rows, slice(n, n + some)) for n in range(0, agents, some)])

    def _at_once(self, rows: Array, agents: slice) -> Array:
        """`accumulate` adds strictly in order, where `sum` would not; and 0 is what a sum of nothing but −0 must be."""
        terms = self._weight[:, agents] * rows.take(self._index[:, agents], axis=0)
        return np.asarray(np.add.accumulate(terms, axis=0)[-1] + 0.0)

    def _of_one(self, own: Array, others: Sequence[bytes], place: int) -> Array:
        """`_at_once` for one agent and a row of each neighbour: joined as they are added, nothing is looked up."""
        rows = numbers(b"".join((*others[:place], payload(own), *others[place:])), own.shape[1])
        sums: Array = np.add.accumulate(self._weight[:, 0] * rows, axis=0)[-1:]
        return sums + 0.0

    def _one_by_one(self, rows: Sequence[Array]) -> Array:
        total = np.zeros((self._index.shape[1], len(rows[0])))
        term = np.empty_like(total[0])
        for index, weight in zip(self._index.tolist(), self._weight, strict=True):
            for own, j in enumerate(index):
                np.multiply(rows[j], weight[own], out=term)
                total[own] += term
        return total


def _sparse_rows(graph: Graph, edge_weights: Array, agents: Sequence[int], order: Sequence[int]) -> Matrix:
    """Rows of P for columns that come in this order; within a row the entries stay ascending by agent."""
    from scipy.sparse import csr_array

    from dpp2.weights import sparse_laplacian

    P = sparse_laplacian(graph, edge_weights)[np.asarray(agents)]
    place = np.zeros(graph.agents, dtype=P.indices.dtype)
    place[np.asarray(order)] = np.arange(len(order))
    return csr_array((P.data, place[P.indices], P.indptr), shape=(len(agents), len(order)))


def _rows(graph: Graph, edge_weights: Array, agents: Sequence[int]) -> list[dict[int, float]]:
    """Rows of P as {column: value}; each diagonal is added up in the order in which the whole P adds it."""
    rows: dict[int, dict[int, float]] = {agent: {} for agent in agents}
    lower, upper = dict.fromkeys(agents, 0.0), dict.fromkeys(agents, 0.0)
    for (i, j), w in zip(graph.edges.tolist(), edge_weights.tolist(), strict=True):
        if i in rows:
            rows[i][j], lower[i] = -w, lower[i] + w
        if j in rows:
            rows[j][i], upper[j] = -w, upper[j] + w
    return [rows[agent] | {agent: lower[agent] + upper[agent]} for agent in agents]
