"""Who is hosted where: parts of equal size, such that few rows have to travel between them.

What travels in a phase is a row of every agent to every other host that has a neighbour of it. METIS (Karypis and Kumar
1998: coarsen, cut, refine) makes that small; it is the extra [partition]. Consecutive agents together need nothing, and
they are kept where METIS finds nothing better. No result depends on it: sums run over agents in ascending order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpp2.topology import Graph

Owner = NDArray[np.int64]  # (agents,): which part an agent is in
_SEED = 0  # METIS draws; the same cut every time
_SLACK = 30  # a part may be larger than the average by so many thousandths: METIS's own default


@dataclass(frozen=True)
class Cut:
    """What crosses between parts."""

    edges: int
    rows: int  # sent in a phase: an agent's row once to every other part with a neighbour of it


@dataclass(frozen=True, eq=False)
class Partition:
    """Which part hosts each agent; parts are numbered by their lowest agents."""

    owner: Owner
    cut: Cut
    blocks: Cut  # if consecutive agents were hosted together

    @property
    def groups(self) -> list[list[int]]:
        order = np.argsort(self.owner, kind="stable")
        bounds = np.searchsorted(self.owner[order], np.arange(self.owner.max() + 2))
        return [order[low:high].tolist() for low, high in pairwise(bounds.tolist())]


def has_metis() -> bool:
    try:
        import pymetis  # noqa: F401
    except ImportError:
        return False
    return True


def partition(graph: Graph, parts: int, *, metis: bool) -> Partition:
    """By METIS, if it is wanted and sends fewer rows than consecutive blocks do."""
    owner = blocks(graph.agents, parts)
    plain = cut(graph, owner)
    if metis and 1 < parts < graph.agents:
        found = _by_metis(graph, parts)
        if len(np.unique(found)) == parts and (less := cut(graph, found)).rows < plain.rows:
            return Partition(_by_lowest_agent(found), less, plain)
    return Partition(owner, plain, plain)


def blocks(agents: int, parts: int) -> Owner:
    """Consecutive agents together, in parts of nearly equal size."""
    bounds = [agents * n // parts for n in range(parts + 1)]
    return np.repeat(np.arange(parts, dtype=np.int64), np.diff(bounds))


def crossing(graph: Graph, owner: Owner) -> NDArray[np.int64]:
    """(agent, part) for every part other than its own that has a neighbour of the agent: ascending, each once."""
    ends = np.concatenate([graph.edges, graph.edges[:, ::-1]])
    pairs = np.stack([ends[:, 0], owner[ends[:, 1]]], axis=1)
    codes = np.unique(pairs[owner[ends[:, 0]] != pairs[:, 1]] @ np.array([owner.max() + 1, 1]))
    return np.stack(np.divmod(codes, owner.max() + 1), axis=1)


def cut(graph: Graph, owner: Owner) -> Cut:
    i, j = graph.edges.T
    return Cut(int((owner[i] != owner[j]).sum()), len(crossing(graph, owner)))


def _by_metis(graph: Graph, parts: int) -> Owner:
    import pymetis

    settings: Any = pymetis.Options(seed=_SEED, ufactor=_SLACK)
    _, found = pymetis.part_graph(parts, pymetis.CSRAdjacency(*graph.csr()), options=settings)
    return np.asarray(found, dtype=np.int64)


def _by_lowest_agent(owner: Owner) -> Owner:
    """The same parts, renamed: the first agent is in part 0."""
    _, first, inverse = np.unique(owner, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse], dtype=np.int64)
