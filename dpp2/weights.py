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
from dpp2.errors import Inadmissible
from dpp2.topology import Graph, Weights

if TYPE_CHECKING:  # scipy is heavy, and an agent in a container does without
    from scipy.sparse import csr_array

    Matrix = csr_array

DENSE_UP_TO = 2000  # agents; beyond it eigenvalues come from Lanczos
_ROUNDING = 1e-9  # relative to λ_max: what eigenvalue solvers leave of an exact zero


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
        return ones / spectrum(laplacian(graph, ones)).largest
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
    connectivity: float
    largest: float


def spectrum(P: Array | Matrix) -> Spectrum:
    """Extreme eigenvalues: dense up to `DENSE_UP_TO` agents, Lanczos above."""
    if P.shape[0] > DENSE_UP_TO:
        return _lanczos(P)
    values = np.linalg.eigvalsh(P if isinstance(P, np.ndarray) else P.toarray())
    return Spectrum(float(values[0]), float(values[1]), float(values[-1]))


def _lanczos(P: Any) -> Spectrum:
    """λ_max directly; λ̲ as the smallest eigenvalue of P + (λ_max/N) 11ᵀ, which lifts the null vector to the top.

    The start vector is fixed so that a refusal is the same every time. Long thin graphs cluster their small
    eigenvalues, so λ̲ is found to three digits at best, and is nan where a hundred restarts do not find it.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    n = P.shape[0]
    start = np.random.default_rng(0).standard_normal(n)
    largest = float(eigsh(P, k=1, which="LA", v0=start, return_eigenvectors=False)[0])
    lifted = LinearOperator((n, n), matvec=lambda v: P @ v.ravel() + largest / n * v.sum(), dtype=np.dtype(np.float64))
    try:
        low = eigsh(lifted, k=1, which="SA", v0=start, tol=1e-3, maxiter=100, return_eigenvectors=False)
        connectivity = float(low[0])
    except ArpackNoConvergence as stopped:
        connectivity = float(stopped.eigenvalues[0]) if len(stopped.eigenvalues) else float("nan")
    null = np.ones(n) / np.sqrt(n)
    return Spectrum(float(null @ (P @ null)), connectivity, largest)


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
            f"is positive definite; this is {beta / bound:.3g} times that bound",
        )
