"""The noise response of DPP²: the expected gap after K rounds, without running any.

*Linear part.* Let x* be a solution, ξ = x − x*, p = q + ∇f(x*), t = 1 + τ. To first order one round maps

    ξ ← ξ + w − G(Hξ + p + tρL(ξ+w)) + βLe,    p ← p + ρL(ξ+w),    G = αI − βL.

In the eigenvectors v_m of P (eigenvalue λ) and u_s of the mean Hessian, with the off-diagonal couplings of H left
out, every amplitude follows its own 2×2 system with curvature h = Σ_i v_mi² u_sᵀH_i u_s and G_λ = α − βλ:

    ξ⁺ = aξ − G_λp + (1 − G_λtρλ)w + βλe,    p⁺ = p + ρλ(ξ + w),    a = 1 − G_λ(h + tρλ),

and so do its second moments X = E ξ², Y = E ξp, Z = E p², with W = 2u_w²r^{2k} and E = 2u_e²r^{2k}:

    X⁺ = a²X − 2aG_λY + G_λ²Z + (1 − G_λtρλ)²W + (βλ)²E
    Y⁺ = aρλX + (a − G_λρλ)Y − G_λZ + (1 − G_λtρλ)ρλW
    Z⁺ = (ρλ)²(X + W) + 2ρλY + Z.

The start is ξ = x⁰ − x*, p = ∇f(x*) (because q⁰ = 0). On consensus λ = 0 and p = 0: e does not reach it at all.

*Curvature depends on the spread.* Noise of the size that small budgets need carries the agents to where a logistic
loss is flat; a Hessian at x* would promise damping that is not there. So h is the curvature averaged over
x_i ~ N(x*, σ²I), tabulated over σ and looked up in every round with σ² = Σ X/(Nd) (statistical linearisation).

*Gap.* Disagreement, and the stationarity (1/N)‖Σ∇f_i(x_i)‖². The latter sees, besides the consensus mode, what is left
of ∇f_i − ∇f_i(x*) − h̄ξ_i: agents bend differently, and not linearly. With κ(σ) the variance of this rest per agent
and coordinate, divided by σ², and taking it as independent between agents,

    E Ŵ = Σ_{λ>0} X  +  Σ_s h_s² X_s(λ=0)  +  (κ(σ)/N) Σ_{λ>0} X.

Exact for quadratics of equal curvature, where h is constant and κ = 0; elsewhere an estimate. On the paper's experiment
it is within a factor of 1.5 of the measured mean at the settings that turn out best. At τ = 0 it can be ten times too
low, where noise drives single agents far into the flat and they come back late: in the end runs decide, not this model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpp2.arrays import Array
from dpp2.stability import Gradient

MOST_AGENTS = 2000  # P is diagonalised densely
_NEAR = 1.2  # eigenvalues of P within this ratio share one mode; the slowest ones, far apart, decide and stay alone
_SMALL = 16  # agents, up to which no modes are merged
_CURVATURE_GROUPS = 4  # of neighbouring curvatures that share one mode
_DIRECTIONS = 64  # in which curvature is probed; in higher dimensions, of a random subspace
_SPREADS = np.concatenate([[0.0], np.geomspace(0.03, 300.0, 13)])  # σ of the table
_DRAWS = 200  # agents' points per σ over which curvature is averaged, at least
_CHUNK = 1024  # candidates that are advanced together: their moments stay in the processor's cache


@dataclass(frozen=True, eq=False)
class Candidates:
    """Settings to compare: entry c of every array is one of them."""

    rounds: Array  # K ≥ 1, whole numbers
    decay: Array  # r
    damping: Array  # τ
    u_w: Array
    u_e: Array
    alpha: Array
    beta: Array
    rho: Array

    def __getitem__(self, chosen: NDArray[np.intp] | slice) -> Candidates:
        return Candidates(*(column[chosen] for column in vars(self).values()))


@dataclass(frozen=True, eq=False)
class Response:
    """The linearised network. Arrays over modes are (M, S): eigenvalue groups (0 is consensus), curvature groups."""

    eigenvalues: Array  # (M,): λ
    weights: Array  # (M, S): how many modes each one stands for
    start: Array  # (3, M, S): X, Y, Z of x⁰
    spreads: Array  # (J,): σ of the table
    curvature: Array  # (J, M, S): h
    missed: Array  # (J,): κ

    @property
    def start_gap(self) -> float:
        """E Ŵ⁰: what doing nothing leaves."""
        return float(self._gap(self.start[0][None])[0])

    def gap(self, candidates: Candidates) -> Array:
        """E Ŵ^K of each candidate; inf where it leaves float64."""
        gaps = np.empty(len(candidates.rounds))
        longest_first = np.argsort(-candidates.rounds, kind="stable")
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, len(gaps), _CHUNK):
                chunk = longest_first[first : first + _CHUNK]
                gaps[chunk] = self._advance(candidates[chunk])
        return np.where(np.isfinite(gaps), gaps, np.inf)

    def _advance(self, c: Candidates) -> Array:
        """Candidates come longest first, so that those that still run are always the first ones."""
        gaps = np.full(len(c.rounds), np.inf)
        X, Y, Z = (np.tile(moment, (len(gaps), 1, 1)) for moment in self.start)
        eigenvalues = self.eigenvalues[:, None]
        G = c.alpha[:, None, None] - c.beta[:, None, None] * eigenvalues
        pull = c.rho[:, None, None] * eigenvalues  # ρλ
        kick = 1 - G * (1 + c.damping)[:, None, None] * pull
        shrink = c.decay**2
        W, E = 2 * c.u_w**2, 2 * c.u_e**2
        leak = (c.beta[:, None, None] * eigenvalues) ** 2
        for k in range(int(c.rounds[0])):
            n = int(np.searchsorted(-c.rounds, -k))  # those with K > k
            X, Y, Z, G, pull, kick, leak, W, E = (one[:n] for one in (X, Y, Z, G, pull, kick, leak, W, E))
            a = kick - G * self._at(self._spread(X), self.curvature)
            Wk, Ek = W[:, None, None], E[:, None, None]
            aX_GY, aY_GZ = a * X - G * Y, a * Y - G * Z
            kicked = kick * Wk
            new_X = a * aX_GY - G * aY_GZ + kick * kicked + leak * Ek
            Z = pull * (pull * (X + Wk) + 2 * Y) + Z
            Y = pull * (aX_GY + kicked) + aY_GZ
            X = new_X
            W, E = W * shrink[:n], E * shrink[:n]
            done = int(np.searchsorted(-c.rounds, -(k + 1)))
            if done < n:
                gaps[done:n] = self._gap(X[done:])
        return gaps

    def _spread(self, X: Array) -> Array:
        total = np.maximum(np.einsum("cms,ms->c", X, self.weights), 0)
        return np.asarray(np.sqrt(total / self.weights.sum()))

    def _at(self, spread: Array, table: Array) -> Array:
        """The table at each candidate's σ, linearly between its entries; beyond the last it stays as it is."""
        last = len(self.spreads) - 1
        position = np.interp(spread, self.spreads, np.arange(last + 1.0))
        below = np.where(position < last - 1, position, last - 1).astype(np.intp)  # also where it is nan
        part = (position - below).reshape(-1, *[1] * (table.ndim - 1))
        values = table[below]
        return np.asarray(values + part * (table[below + 1] - values))

    def _gap(self, X: Array) -> Array:
        spread = self._spread(X)
        h = self._at(spread, self.curvature)[:, 0]
        disagreement = np.einsum("cms,ms->c", X[:, 1:], self.weights[1:])
        stationarity = np.einsum("cs,s->c", h**2 * X[:, 0], self.weights[0])
        agents = self.weights.sum() / self.weights[0].sum()
        return np.asarray(disagreement * (1 + self._at(spread, self.missed) / agents) + stationarity)


def linearise(P: Array, gradient: Gradient, solution: Array, start: Array, start_variance: float) -> Response:
    """The response around `solution` (d,) of agents that start at `start` (N, d), plus noise of that variance."""
    at = np.broadcast_to(solution, start.shape)
    directions = _directions(gradient, at)
    curvature, missed = _probe(gradient, at, directions)
    eigenvalues, vectors = _modes(P, curvature[0].mean(axis=1))
    by_mode = np.einsum("im,jis->jms", vectors**2, curvature)
    xi, p = vectors.T @ (start - at) @ directions, vectors.T @ gradient(at) @ directions
    p[0] = 0.0  # q = ρLd has no consensus part; what is left of ∇f(x*) is how far x* is from stationary
    moments = np.stack([xi**2 + start_variance, xi * p, p**2])
    rows = _groups_of_eigenvalues(eigenvalues)
    columns = np.unique(np.linspace(0, directions.shape[1], _CURVATURE_GROUPS + 1).astype(np.intp))

    def grouped(table: Array) -> Array:
        return _means(_means(table, rows, -2), columns, -1)

    each = start.shape[1] / directions.shape[1]  # more than 1 where a subspace stands for the whole
    weights = each * np.outer(np.diff(rows), np.diff(columns))
    eigenvalues = _means(eigenvalues, rows, 0)
    return Response(eigenvalues, weights, grouped(moments), _SPREADS, grouped(by_mode), missed)


def _directions(gradient: Gradient, at: Array) -> Array:
    """(d, S): eigenvectors of the mean Hessian, or its Ritz vectors in a random subspace where d is large."""
    d = at.shape[1]
    basis = np.eye(d)
    if d > _DIRECTIONS:
        basis = np.linalg.qr(np.random.default_rng(0).standard_normal((d, _DIRECTIONS)))[0]
    products = np.stack([_derivative(gradient, at, u).mean(axis=0) for u in basis.T], axis=1)
    hessian = basis.T @ products
    return np.asarray(basis @ np.linalg.eigh((hessian + hessian.T) / 2)[1])


def _probe(gradient: Gradient, at: Array, directions: Array) -> tuple[Array, Array]:
    """(J, N, S) curvatures of each agent at each spread, and (J,) κ, what their mean leaves unexplained."""
    rng = np.random.default_rng(0)  # the table is an estimate; a fixed draw makes plans repeatable
    curvature = np.zeros((len(_SPREADS), len(at), directions.shape[1]))
    missed = np.zeros(len(_SPREADS))
    rest = gradient(at)
    for j, spread in enumerate(_SPREADS):
        draws = -(-_DRAWS // len(at)) if spread else 1
        away = [spread * rng.standard_normal(at.shape) for _ in range(draws)]
        for xi in away:
            for s, u in enumerate(directions.T):
                curvature[j, :, s] += _derivative(gradient, at + xi, u) @ u / draws
        h = curvature[j].mean(axis=0)
        misfits = [(gradient(at + xi) - rest) @ directions - h * (xi @ directions) for xi in away]
        missed[j] = np.mean(np.square(misfits)) / spread**2 if spread else 0.0
    missed[0] = missed[1]
    return curvature, missed


def _derivative(gradient: Gradient, x: Array, u: Array) -> Array:
    """Row i: H_i(x_i) u by central differences, exact for quadratics up to rounding."""
    step = 1e-5 * (1.0 + float(np.abs(x).max()))
    return (gradient(x + step * u) - gradient(x - step * u)) / (2 * step)


def _modes(P: Array, curvature: Array) -> tuple[Array, Array]:
    """(N,) eigenvalues and (N, N) eigenvectors of P in columns, consensus first.

    Where eigenvalues coincide (complete graph, ring) the differences between the agents' curvatures (N,) decide which
    eigenvectors are meant: those of P plus a touch of curvature, which is first-order perturbation theory.
    """
    N = len(P)
    disagreement = np.eye(N) - 1 / N
    touch = 1e-7 * np.trace(P) / max(float(np.abs(curvature).max()) * N, 1e-300)
    lifted = disagreement @ (P + touch * np.diag(curvature)) @ disagreement - np.ones((N, N)) / N
    vectors = np.linalg.eigh(lifted)[1]  # −11ᵀ/N puts consensus first, whatever the sign of the curvature
    eigenvalues = np.einsum("im,ij,jm->m", vectors, P, vectors)
    eigenvalues[0] = 0.0
    return eigenvalues, vectors


def _groups_of_eigenvalues(ascending: Array) -> NDArray[np.intp]:
    """Where each group begins, and the end; consensus, the first, is a group of its own."""
    begins = [0, 1]
    for m in range(2, len(ascending)):
        # In small networks every mode counts by itself, with its own curvature.
        if len(ascending) <= _SMALL or ascending[m] > _NEAR * ascending[begins[-1]]:
            begins.append(m)
    return np.array([*begins, len(ascending)])


def _means(table: Array, boundaries: NDArray[np.intp], axis: int) -> Array:
    """The mean over each group of neighbours along one axis."""
    sums = np.add.reduceat(table, boundaries[:-1], axis=axis)
    shape = [1] * table.ndim
    shape[axis] = -1
    return np.asarray(sums / np.diff(boundaries).reshape(shape))
