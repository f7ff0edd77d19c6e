"""Σ_j p_ij v_j for the agents hosted here, summed over agents in ascending order.

The order is part of the contract: the embedded driver's sparse product adds in the same order, so both give the same
bits. Terms are added slot by slot, all hosted agents at once: slot s holds everybody's s-th neighbour, itself among
them. Agents with fewer neighbours are padded at the end with weight 0, which adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpp2.arrays import Array
from dpp2.topology import Graph

_SMALL = 1 << 16  # numbers: below, all rows are copied and multiplied in one go; above, that would take longer


class Mixer:
    """The rows of P that belong to the hosted agents."""

    def __init__(self, graph: Graph, edge_weights: Array, owned: Sequence[int]) -> None:
        rows = [_row(graph, edge_weights, agent) for agent in owned]
        self.known = sorted({j for row in rows for j in row})  # hosted agents and all their neighbours
        place = {agent: n for n, agent in enumerate(self.known)}
        slots = max(len(row) for row in rows)
        self._index = np.zeros((slots, len(owned)), dtype=np.intp)
        self._weight = np.zeros((slots, len(owned), 1))
        for n, row in enumerate(rows):
            for slot, j in enumerate(sorted(row)):
                self._index[slot, n], self._weight[slot, n, 0] = place[j], row[j]

    def mix(self, rows: Sequence[Array]) -> Array:
        """`rows` holds a row for each of `known`."""
        dimension = len(rows[0])
        total = np.zeros((self._index.shape[1], dimension))
        if self._index.size * dimension <= _SMALL:
            for term in self._weight * np.array(rows)[self._index]:
                total += term
        else:
            for index, weight in zip(self._index.tolist(), self._weight, strict=True):
                for own, j in enumerate(index):
                    total[own] += weight[own] * rows[j]
        return total


def _row(graph: Graph, edge_weights: Array, agent: int) -> dict[int, float]:
    """Row `agent` of P as {column: value}; its diagonal is added up in the order in which the whole P adds it."""
    row: dict[int, float] = {}
    lower = upper = 0.0
    for (i, j), w in zip(graph.edges.tolist(), edge_weights.tolist(), strict=True):
        if i == agent:
            row[j], lower = -w, lower + w
        elif j == agent:
            row[i], upper = -w, upper + w
    return row | {agent: lower + upper}
