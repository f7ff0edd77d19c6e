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

_SMALL = 1 << 16  # numbers: below, all terms are multiplied in one go, above that would only cost memory


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

    def mix(self, rows: Array) -> Array:
        """`rows` holds a row for each of `known`."""
        total = np.zeros((self._index.shape[1], rows.shape[1]))
        if self._index.size * rows.shape[1] <= _SMALL:
            for term in self._weight * rows[self._index]:
                total += term
        else:
            for index, weight in zip(self._index, self._weight, strict=True):
                total += weight * rows[index]
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
