"""The weight matrix P of the paper's L = P ⊗ I_d, and whether it may be used (Assumption 3 and G ≻ 0).

Every kind here is a weighted Laplacian P = Σ_{ij} w_ij (e_i − e_j)(e_i − e_j)ᵀ with w_ij > 0: symmetric, positive
semidefinite, and with null space span(1) exactly when the graph is connected. The checks below measure all of it
nevertheless, because a claim about a matrix is only worth something when the matrix itself was asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpp2.arrays import Array
from dpp2.closed_spectra import closed_form
from dpp2.errors import Inadmissible
from dpp2.lanczos import both_ends
from dpp2.topology import Graph, Weights

if TYPE_CHECKING:  # scipy is heavy, and an agent in a container does without
    from scipy.sparse import csr_array

    Matrix = csr_array

DENSE_UP_TO = 2000  # agents; beyond it eigenvalues come from closed forms, from Lanczos, or are bounded
_ROUNDING = 1e-9  # relative to λ_max: what eigenvalue solvers leave of an exact zero
_WORK = 5e8  # entries of P that Lanczos may go through: a few seconds on one core
_STEPS = (64, 1000)  # fewer do not find anything, more do not find much more
_TIGHT, _LOOSE = 1e-10, 1e-3  # relative: how well λ_max and λ̲ must be known to be called known


def edge_weights(graph: Graph, kind: Weights) -> Array:
    """w_ij for each edge of the graph.

    metropolis            1/(1 + max(deg_i, deg_j))     an agent computes its row from its neighbours' degrees alone
    laplacian             1/(d_max + 1)
    laplacian-spectral    1/λ_max(D − A)
    plain                 1                             the graph Laplacian D − A itself
    normalised            1/√(deg_i deg_j)              its null vector is D^½1, so regular graphs only
    """
    degrees = graph.degrees
    ones = np.ones(len(graph.edges))
    if kind == "metropolis":
        return np.asarray(1.0 / (1.0 + degrees[graph.edges].max(axis=1)))
    if kind == "laplacian":
        return ones / float(degrees.max() + 1)
    if kind == "laplacian-spectral":
        return ones / network_spectrum(graph, ones).largest
    if kind == "normalised":
        if degrees.min() != degrees.max():
            raise Inadmissible(
                "network.weights",
                kind,
                f"a graph whose agents all have the same degree, but they have {degrees.min()} to {degrees.max()} "
                "neighbours, and then the null space of P is not span(1)",
            )
        return ones / float(degrees.max())
    return ones


def weight_matrix(graph: Graph, kind: Weights) -> Matrix:
    """P as a sparse matrix with sorted columns: a row's sum then runs over agents in ascending order."""
    return sparse_laplacian(graph, edge_weights(graph, kind))


def laplacian(graph: Graph, w: Array) -> Array | Matrix:
    """P for a look at its eigenvalues: dense, and without scipy, where the dense solver is used."""
    if graph.agents > DENSE_UP_TO:
        return sparse_laplacian(graph, w)
    values, at = _entries(graph, w)
    P = np.zeros((graph.agents, graph.agents))
    P[at] = values
    return P


def sparse_laplacian(graph: Graph, w: Array) -> Matrix:
    """P from the weights of the edges."""
    from scipy.sparse import coo_array

    P = coo_array(_entries(graph, w), shape=(graph.agents, graph.agents)).tocsr()
    P.sort_indices()
    return P


def _entries(graph: Graph, w: Array) -> tuple[Array, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The entries of P that are not 0, and their (rows, columns)."""
    i, j = graph.edges.T
    own = np.bincount(i, w, graph.agents) + np.bincount(j, w, graph.agents)
    agents = np.arange(graph.agents)
    return np.concatenate([-w, -w, own]), (np.concatenate([i, j, agents]), np.concatenate([j, i, agents]))


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of P that the theory speaks of; `connectivity` is λ̲_L, the smallest but one."""

    smallest: float
    connectivity: float  # nan: not found in reasonable time
    largest: float
    bounded: bool = False  # whether `largest` is only a bound that λ_max does not exceed

    @property
    def at_most(self) -> str:
        """How sentences introduce `largest`."""
        return "λ_max ≤" if self.bounded else "λ_max ="


def network_spectrum(graph: Graph, w: Array) -> Spectrum:
    """Of a connected graph with these weights of its edges: in closed form where it is large and that is known."""
    known = closed_form(graph) if graph.agents > DENSE_UP_TO and w.min() == w.max() else None
    if known is None:
        return spectrum(laplacian(graph, w))
    low, high = (float(w[0]) * value for value in known)
    return Spectrum(0.0, low, high)


def spectrum(P: Array | Matrix) -> Spectrum:
    """Extreme eigenvalues: dense up to `DENSE_UP_TO` agents, Lanczos above."""
    if P.shape[0] > DENSE_UP_TO:
        return lanczos_spectrum(P)
    values = np.linalg.eigvalsh(P if isinstance(P, np.ndarray) else P.toarray())
    return Spectrum(float(values[0]), float(values[1]), float(values[-1]))


def lanczos_spectrum(P: Any) -> Spectrum:
    """λ_max to ten digits and λ̲ to three, as far as a fixed amount of work finds them; a refusal is always the same.

    Long thin graphs cluster their eigenvalues at both ends. λ̲ is nan then, and λ_max a bound that nothing exceeds:

        λ_max(P) ≤ max over edges of p_ii + p_jj    (W. N. Anderson, T. D. Morley, 1985; never above Gershgorin's)
    """
    n, (fewest, most) = P.shape[0], _STEPS
    steps = min(int(_WORK / P.nnz), most)
    null = np.ones(n) / np.sqrt(n)
    smallest, bound = float(null @ (P @ null)), _edge_bound(P)
    if steps < fewest:
        return Spectrum(smallest, float("nan"), bound, bounded=True)
    low, high = both_ends(lambda v: P @ v, n, steps, lambda ends: ends[0].within(_LOOSE) and ends[1].within(_TIGHT))
    connectivity = low.value if low.within(_LOOSE) else float("nan")
    if high.within(_TIGHT):
        return Spectrum(smallest, connectivity, high.value + high.error)
    return Spectrum(smallest, connectivity, bound, bounded=True)


def _edge_bound(P: Any) -> float:
    """max over edges of p_ii + p_jj, with room for rounding."""
    entries, diagonal = P.tocoo(), P.diagonal()
    edges = entries.row != entries.col
    return float((diagonal[entries.row[edges]] + diagonal[entries.col[edges]]).max()) * (1 + 1e-14)


def check_weights(P: Any, eigenvalues: Spectrum) -> None:
    """Assumption 3: P symmetric, P ⪰ 0, null space span(1). Says by how much it fails."""
    scale = max(eigenvalues.largest, 1.0)
    asymmetry = float(np.abs(P - P.T).max())
    if asymmetry > _ROUNDING * scale:
        raise Inadmissible("network.weights", "P", f"a symmetric matrix, but |P − Pᵀ| reaches {asymmetry:.3g}")
    row_sum = float(np.abs(P @ np.ones(P.shape[0])).max())
    if row_sum > _ROUNDING * scale:
        raise Inadmissible("network.weights", "P", f"rows that sum to 0, but one sums to {row_sum:.3g}")
    if eigenvalues.smallest < -_ROUNDING * scale:
        raise Inadmissible(
            "network.weights",
            "P",
            f"P positive semidefinite, but its least eigenvalue is {eigenvalues.smallest:.3g}",
        )
    if eigenvalues.connectivity <= _ROUNDING * scale * 1e-3:  # nan: not found; that the graph is connected was counted
        raise Inadmissible(
            "network.weights",
            "P",
            f"null space span(1), but the second eigenvalue is {eigenvalues.connectivity:.3g}: the graph falls apart",
        )


def check_step(alpha: float, beta: float, eigenvalues: Spectrum) -> None:
    """G = αI − βL ≻ 0, that is β < α/λ_max(P) (paper, eq. for G)."""
    bound = alpha / eigenvalues.largest
    if beta >= bound:
        raise Inadmissible(
            "algorithm.beta",
            beta,
            f"a value below alpha/λ_max(P) = {alpha:g}/{eigenvalues.largest:.4g} = {bound:.4g} so that G = αI − βL "
            f"is positive definite; this is {beta / bound:.3g} times that bound{_unsure(eigenvalues)}",
        )


def _unsure(eigenvalues: Spectrum) -> str:
    """Where λ_max was only bounded, a refusal says so."""
    return (
        f" (all that is known of this network is {eigenvalues.at_most} {eigenvalues.largest:.4g})" * eigenvalues.bounded
    )
