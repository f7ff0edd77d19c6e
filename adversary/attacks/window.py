"""Window near consensus: for runs that stand still before their noise has gone, where three rounds find nothing.

Over T rounds with c_k, C_k the running sums of i and of c (both 0 at the window's first round, k = 0),
    R_k := y^k − t c_k = t s + b_k (D + k s + C_k)        up to noise
Near consensus s is the same for all agents and i is small, so that
    R_k less its mean over agents     = b_k (D_i − D̄):  its leading left singular vector is β with b = γβ
    the mean of R_k over agents       = t s̄ + γβ_k D̄ + γ kβ_k s̄:  a regression on (1, β_k, kβ_k) gives γ and s̄
From there b is refined by Gauss–Newton with s and D projected out (variable projection):
    R_k − b_k C_k = (t + k b_k) s + b_k D
All vectors of a window lie in the span of its R_k and C_k, so one QR factorisation leaves 2T numbers of each.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dpp2.adversary.attacks.algebra import Messages, completed, gradient
from dpp2.adversary.attacks.base import Attack, Estimate, lacks_messages, lacks_steps, only
from dpp2.adversary.views import View
from dpp2.arrays import Array, frozen

ROUNDS = 10  # T: enough for γ, few enough that noise has hardly changed from one end to the other
_REFINEMENTS = 6  # Gauss–Newton is quadratic here: where it converges at all, four are enough
_AT_ONCE = 2**22  # numbers per stack of windows


class Window(Attack):
    name = "window"
    summary = "Finds η from ten rounds of a run that has come close to consensus."
    quick = False
    rounds_in_a_row = ROUNDS
    algebra = "two tiers"

    def needs(self, view: View) -> str | None:
        if missing := lacks_messages(view) or lacks_steps(view):
            return missing
        messages = Messages.of(view)
        if len(messages.y) < ROUNDS:
            return f"needs {ROUNDS} rounds in a row, not {len(messages.y)}"
        if len(messages.followed) < 2:
            return "compares agents, but needs two whose own and whose neighbours' messages were all overheard"
        return None

    def made_for(self, view: View) -> bool:
        """Whoever is after one agent has nothing to compare it with."""
        return super().made_for(view) and len(view.agents) > 1

    def run(self, view: View) -> Estimate:
        messages = Messages.of(view)
        b, s, D = solved(view)
        s, D = completed(messages, 1 - b, s, D)
        return Estimate(
            self.name,
            x=only(view, s),
            grad=only(view, gradient(messages, view.knowledge.rho, s, D)),
            eta=1 - b,
        )


@lru_cache(maxsize=1)
def solved(view: View) -> tuple[Array, Array, Array]:
    """`solve` for a view, once: the smoother takes the same numbers up."""
    return tuple(map(frozen, solve(Messages.of(view))))  # type: ignore[return-value]  # three


def solve(messages: Messages) -> tuple[Array, Array, Array]:
    """b (K,), s and D (K, followed agents, d); each round from the window that it begins, the last from the last."""
    y, i = messages.y[:, messages.followed], messages.i[:, messages.followed]
    stack = max(_AT_ONCE // (2 * ROUNDS * y[0].size), 1)
    starts = range(0, len(y) - ROUNDS + 1, stack)
    reach = stack + ROUNDS - 1
    parts = [_windows(y[k : k + reach], i[k : k + reach], messages.t) for k in starts]
    b, s, D = (np.concatenate(part) for part in zip(*parts, strict=True))
    for k in range(len(y) - ROUNDS + 1, len(y)):
        s, D = np.concatenate([s, s[-1:] + i[k - 1 : k]]), np.concatenate([D, D[-1:] + s[-1:]])
    return np.concatenate([b[:, 0], b[-1, 1:]]), s, D


def _windows(y: Array, i: Array, t: float) -> tuple[Array, Array, Array]:
    """b (W, T), s and D (W, agents, d) of all windows in a stretch of rounds."""
    rounds = np.arange(len(y) - ROUNDS + 1)[:, None] + np.arange(ROUNDS)
    c = _before(i[rounds])
    C = _before(c)
    R = y[rounds] - t * c
    b = _started(R, t)
    flat_R, flat_C = (rows.reshape(*rows.shape[:2], -1) for rows in (R, C))
    b = _refined(b, *_compressed(flat_R, flat_C), t)
    sound = np.asarray(np.isfinite(b).all(axis=1))
    b = np.where(sound[:, None], b, 0.0)
    s, D = np.moveaxis(np.linalg.pinv(_equations(b, t)) @ (flat_R - b[:, :, None] * flat_C), 1, 0)
    s[~sound] = D[~sound] = np.nan
    shape = (len(b), *y.shape[1:])
    return b, s.reshape(shape), D.reshape(shape)


def _before(rows: Array) -> Array:
    """Sums over the rounds of each window before each one."""
    return np.asarray(np.cumsum(rows, axis=1) - rows)


def _started(R: Array, t: float) -> Array:
    """b from what differs between agents, up to the scale γ, and γ from their mean."""
    W, T = R.shape[:2]
    mean = R.mean(axis=2)
    apart = (R - mean[:, :, None]).reshape(W, T, -1)
    beta = np.linalg.svd(np.linalg.qr(apart.transpose(0, 2, 1), mode="r"))[2][:, 0]
    regressors = np.stack([np.ones((W, T)), beta, np.arange(T) * beta], axis=2)
    constant, _, growing = np.moveaxis(np.linalg.pinv(regressors) @ mean, 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        gamma = t * (growing * constant).sum(axis=1) / (constant * constant).sum(axis=1)
    return np.asarray(np.nan_to_num(gamma)[:, None] * beta)


def _compressed(R: Array, C: Array) -> tuple[Array, Array]:
    """Coordinates of R_k and C_k (W, T, ≤ 2T) in an orthonormal basis of each window: lengths and angles are kept."""
    triangle = np.asarray(np.linalg.qr(np.concatenate([R, C], axis=1).transpose(0, 2, 1), mode="r"))
    return triangle[:, :, :ROUNDS].transpose(0, 2, 1), triangle[:, :, ROUNDS:].transpose(0, 2, 1)


def _equations(b: Array, t: float) -> Array:
    """(W, T, 2): the coefficients t + k b_k of s and b_k of D."""
    return np.stack([t + np.arange(b.shape[1]) * b, b], axis=2)


def _refined(b: Array, R: Array, C: Array, t: float) -> Array:
    """Gauss–Newton on the part of R − bC that no s and D explain.

    ∂residual/∂b_k ≈ −(I − MM⁺)_{·k} ⊗ (D + k s + C_k), Kaufman's form of variable projection.
    """
    W, T = b.shape
    k = np.arange(T)[:, None]
    for _ in range(_REFINEMENTS):
        M = _equations(b, t)
        solution = np.linalg.pinv(M)
        target = R - b[:, :, None] * C
        s, D = np.moveaxis(solution @ target, 1, 0)
        unexplained = np.eye(T) - M @ solution
        along = C + k * s[:, None] + D[:, None]
        jacobian = np.einsum("wjk,wkq->wjqk", unexplained, along).reshape(W, -1, T)
        Q, triangle = np.linalg.qr(jacobian)
        right = Q.transpose(0, 2, 1) @ (unexplained @ target).reshape(W, -1, 1)
        b = b + np.clip(_solved(triangle, right), -1.0, 1.0)
    return b


def _solved(triangle: Array, right: Array) -> Array:
    """triangle⁻¹ right, with a hair on the diagonal: in a noiseless run that does not move at all it is singular."""
    size = np.abs(triangle).max(axis=(1, 2), keepdims=True) + np.finfo(np.float64).tiny
    hair = np.finfo(np.float64).eps * size * np.eye(triangle.shape[1])
    return np.asarray(np.linalg.solve(triangle + hair, right)[:, :, 0])
