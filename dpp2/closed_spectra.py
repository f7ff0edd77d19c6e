"""Eigenvalues of the graph Laplacian D − A that are known in closed form: no iteration, whatever the size.

A graph is recognised by its shape and not by its name, since nodes get every graph as a file. With θ = π/N:

    ring        2 − 2cos 2kθ            λ_2 = 4 sin²θ        λ_max = 4, or 4 cos²(θ/2) where N is odd
    path        4 sin²(kθ/2)            λ_2 = 4 sin²(θ/2)    λ_max = 4 cos²(θ/2)
    star        0, 1 (N − 2 times), N
    complete    0, N (N − 1 times)
    grid, torus sums of an eigenvalue of each side, which are paths or rings: a product of graphs adds spectra
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpp2.topology import Graph, grid_edges

Extremes = tuple[float, float]  # (λ_2, λ_max)


def closed_form(graph: Graph) -> Extremes | None:
    """(λ_2, λ_max) of D − A; None where the graph is none of those known. The graph must be connected."""
    agents, edges, degrees = graph.agents, len(graph.edges), graph.degrees
    if agents < 3:
        return None
    if edges == agents * (agents - 1) // 2:
        return float(agents), float(agents)
    if degrees.max() == 2:  # connected: one cycle, or one path
        return _ring(agents) if edges == agents else _path(agents)
    if edges == agents - 1 and degrees.max() == agents - 1:
        return 1.0, float(agents)
    return _grid(graph) or _torus(graph)


def _ring(agents: int) -> Extremes:
    theta = math.pi / agents
    return 4 * math.sin(theta) ** 2, 4.0 if agents % 2 == 0 else 4 * math.cos(theta / 2) ** 2


def _path(agents: int) -> Extremes:
    half = math.pi / agents / 2
    return 4 * math.sin(half) ** 2, 4 * math.cos(half) ** 2


def _product(rows: int, columns: int, side: Callable[[int], Extremes]) -> Extremes:
    (low, high), (other_low, other_high) = side(rows), side(columns)
    return min(low, other_low), high + other_high


def _grid(graph: Graph) -> Extremes | None:
    """Of rows r and columns c, N = rc and the edges are 2N − r − c: both follow."""
    both = 2 * graph.agents - len(graph.edges)
    root = math.isqrt(max(both**2 - 4 * graph.agents, 0))
    rows, columns = (both - root) // 2, (both + root) // 2
    if rows < 2 or rows * columns != graph.agents:
        return None
    return _product(rows, columns, _path) if _is(graph, grid_edges(rows, columns, periodic=False)) else None


def _torus(graph: Graph) -> Extremes | None:
    """The neighbours of agent 0 are 1, c − 1, c and N − c, where there are c ≥ 3 columns and as many rows or more."""
    if len(graph.edges) != 2 * graph.agents or graph.degrees[0] != 4:
        return None
    columns = graph.neighbours(0)[2]
    rows = graph.agents // columns
    if min(rows, columns) < 3 or rows * columns != graph.agents:
        return None
    return _product(rows, columns, _ring) if _is(graph, grid_edges(rows, columns, periodic=True)) else None


def _is(graph: Graph, edges: NDArray[np.int64]) -> bool:
    return np.array_equal(graph.edges, edges)
