"""What noise that cancels between neighbours hides: the accounts of DPP³.

In a gradient round every agent i releases ∇f_i(x_i) + n_i, and all agents' releases are seen together:

    n_i = own_i + Σ_{j ∈ N(i)} sgn(j − i) m_ij,

where own_i is drawn by i alone and m_ij by both ends of an edge from a secret that only they share. x_i itself is a
function of earlier messages, so for a fixed observation it is the same in both worlds, and the releases differ by a
vector of norm ≤ δ at one agent. Mixing rounds, averages and the result are functions of the messages: they cost
nothing. A set C of colluding agents hands over all it knows, which takes its edges away: the account runs over the
honest rest.

The *exposure* of an agent is what one unit of shift at this agent costs against the noise of everybody honest.

*Gaussian*, own scale σ_j, edge scale σ_e. n ~ N(0, Σ) with Σ = diag σ_j² + B diag σ_e² Bᵀ (B: signed incidence matrix),
so a round is μ-GDP with μ_i² = δ²·[Σ⁻¹]_ii. Read σ_j² and σ_e² as conductances to ground and along edges: then [Σ⁻¹]_ii
is the effective resistance from i to ground, and the exposure is its root. Exact: it is the distance of two Gaussians.

*Laplace*, scales s_j and s_e. The noise must take up the shift: a flow of one unit from i to ground, at a price of
|flow|/s in the log-likelihood. The cheapest flow in ℓ1 is a shortest path, with edges of length 1/s_e and steps to
ground of length 1/s_j. Its length is the exposure, and ε_i = √d·δ·exposure per gradient round, pure. Own noise at
everybody does not help: a path ends at one holder. Without a path to an honest holder the exposure is ∞.

*Laplace in shares.* Holders need not carry a whole Lap(s) each. Let every holder draw Gamma(1/q, s) − Gamma(1/q, s)
instead: any q of them together carry exactly Lap(s), the difference of two exponential variates T⁺ − T⁻. Their
proportions π⁺ and π⁻ are independent of T⁺ and T⁻, so fix the proportions and let T⁺ (for a shift upwards; T⁻ for one
downwards) grow by the shift: that costs 1/s, and puts π⁺ of it at the q holders. Edges carry it from there to i, at no
more than the distance of the farthest of the q. So the exposure is at most 1/s + (distance along edges to the q-th
nearest honest holder), pure as before; q = 1 is the case above. With c colluders q + c holders are needed, and the sum
of all noise has the variance 2s²(q + c)/q: for q = N − c almost that of one trusted curator, where q = 1 has c + 1
times as much. (Divisibility: Ács and Castelluccia 2011. The account with edges: ours.)

Deleting agents never lowers an exposure: less noise is left to take up the shift.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpp2.arrays import Array, frozen
from dpp2.errors import BadInput

Kind = Literal["gaussian", "laplace"]
Edges = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NoiseNetwork:
    """Who shares noise with whom: scales of N(0, σ²) or Lap(s) for every agent and every edge; 0 means none."""

    kind: Kind
    edges: Edges  # (E, 2), each edge once
    own: Array  # (N,)
    edge: Array  # (E,)
    quorum: int = 1  # q: how many honest holders carry Lap(s) together; more than 1 needs one scale for all holders

    @classmethod
    def of(cls, kind: Kind, edges: Edges, own: Array, edge: float | Array, quorum: int = 1) -> NoiseNetwork:
        """`edge` may be one scale for all edges."""
        scales = frozen(np.broadcast_to(edge, len(edges)))
        for field, values in (("own", own), ("edge", scales)):
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise BadInput(f"noise.{field}", values.tolist(), "finite numbers ≥ 0")
        if quorum != 1 and (kind != "laplace" or quorum < 1 or np.unique(own[own > 0]).size > 1):
            raise BadInput("noise.quorum", quorum, "1, or a whole number > 1 with Laplace noise of one scale")
        return cls(kind, edges, frozen(own), scales, quorum)

    @property
    def agents(self) -> int:
        return len(self.own)

    @property
    def reference(self) -> float:
        """The largest own scale."""
        return float(self.own.max())

    def in_units(self) -> NoiseNetwork:
        """The same in units of the reference: one network for every scale that keeps the ratios."""
        unit = self.reference or 1.0
        return replace(self, own=frozen(self.own / unit), edge=frozen(self.edge / unit))

    def with_edge(self, pair: tuple[int, int], scale: float) -> NoiseNetwork:
        """The same with one more edge."""
        if (np.sort(self.edges, axis=1) == sorted(pair)).all(axis=1).any():
            raise BadInput("edge", list(pair), "two agents without an edge between them")
        edges = np.concatenate([self.edges, [pair]])
        return replace(self, edges=edges, edge=frozen([*self.edge, scale]))

    def honest(self, colluders: Collection[int]) -> NoiseNetwork:
        """The same without the noise that the colluders know: theirs, and that of their edges."""
        bad = np.isin(np.arange(self.agents), list(colluders))
        keep = ~bad[self.edges].any(axis=1) & (self.edge > 0)
        return replace(self, edges=self.edges[keep], own=np.where(bad, 0.0, self.own), edge=self.edge[keep])


def exposures(network: NoiseNetwork, colluders: Collection[int] = ()) -> Array:
    """The exposure of every agent when these collude; nan for the colluders, ∞ where nothing hides an agent."""
    rest = network.honest(colluders)
    found = resistances(rest) ** 0.5 if network.kind == "gaussian" else distances(rest)
    found[list(colluders)] = np.nan
    return found


def sensitivity(kind: Kind, adjacency: float, dimension: int, grid: float = 0.0) -> float:
    """By how much the releases differ, in the norm that the noise counts in: ℓ2 for Gaussian, ℓ1 for Laplace noise.

    Values are rounded to a grid before noise is added; that moves each coordinate of a difference by at most `grid`.
    """
    if kind == "gaussian":
        return adjacency + math.sqrt(dimension) * grid
    return math.sqrt(dimension) * adjacency + dimension * grid


def resistances(network: NoiseNetwork) -> Array:
    """[Σ⁻¹]_ii for every agent; ∞ in a part of the graph where nobody has noise of their own."""
    found = np.full(network.agents, np.inf)
    for part in parts(network):
        if network.own[part].any():
            found[part] = np.linalg.inv(covariance(network)[np.ix_(part, part)]).diagonal()
    return found


def covariance(network: NoiseNetwork) -> Array:
    """Σ = diag σ_j² + B diag σ_e² Bᵀ."""
    variance = network.edge**2
    i, j = network.edges.T
    matrix = np.diag(network.own**2)
    for a, b, sign in ((i, i, 1), (j, j, 1), (i, j, -1), (j, i, -1)):
        np.add.at(matrix, (a, b), sign * variance)
    return matrix


def distances(network: NoiseNetwork) -> Array:
    """From every agent to ground: over the nearest holder, or the `quorum`-th nearest; ∞ where there is none."""
    return _to_ground(network) if network.quorum == 1 else _to_quorum(network)


def _to_quorum(network: NoiseNetwork) -> Array:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    N, holders = network.agents, np.flatnonzero(network.own)
    if len(holders) < network.quorum:
        return np.full(N, np.inf)
    i, j = network.edges.T
    graph = coo_array((1 / network.edge, (i, j)), shape=(N, N)).tocsr()
    along = np.asarray(dijkstra(graph, directed=False, indices=holders))
    return np.asarray(np.sort(along, axis=0)[network.quorum - 1] + 1 / network.own[holders[0]])


def _to_ground(network: NoiseNetwork) -> Array:
    """The shortest path to ground, which is one more node: its steps have length 1/s_j."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    ground = network.agents
    holders = np.flatnonzero(network.own)
    starts = np.concatenate([network.edges[:, 0], holders])
    ends = np.concatenate([network.edges[:, 1], np.full(len(holders), ground)])
    lengths = 1 / np.concatenate([network.edge, network.own[holders]])
    graph = coo_array((lengths, (starts, ends)), shape=(ground + 1, ground + 1)).tocsr()
    return np.asarray(dijkstra(graph, directed=False, indices=[ground]))[0, :ground]


def parts(network: NoiseNetwork) -> list[NDArray[np.intp]]:
    """The agents of every connected part, by their edges with noise."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    i, j = network.edges[network.edge > 0].T
    graph = coo_array((np.ones(len(i)), (i, j)), shape=(network.agents, network.agents))
    count, label = connected_components(graph, directed=False)
    return [np.flatnonzero(label == one) for one in range(count)]
