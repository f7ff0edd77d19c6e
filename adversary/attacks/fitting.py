"""Least squares in the b's of one stretch of rounds.

Given b and the D with which a stretch begins, s and D follow round by round, and the residuals
    r_k = (s^{k+1} − s^k − i_k)/σ_k
are noise of unit size when b is right. Every derivative is a number times one of the vectors D^m,
    ∂D^k/∂b_m = −(D^m/t) Π_{m<l<k} (1 − b_l/t)          ∂s^k/∂b_m = −(b_k ∂D^k/∂b_m + [k = m] D^m)/t
so the Jacobian is a table of numbers beside the D's. Where a stretch begins in mid-run its first D is known only as
well as the rounds before it allowed; those left errors along D and s, which are fitted too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpp2.adversary.attacks.algebra import replay
from dpp2.arrays import Array

_STEPS = 12  # Levenberg–Marquardt steps; three or four are taken, since every stretch starts from the one before
_TRIES = 3  # times that a step is tried, shorter if it made things worse; at the level of rounding all may fail
_ENOUGH = 1e-6  # relative gain below which a step is the last
_EPS = float(np.finfo(np.float64).eps)
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Stretch:
    """n rounds in any coordinates (q): y (n, q), increments and noise scales between them, D at the first, and
    directions (p, q) in which that D may be wrong."""

    y: Array
    i: Array
    scale: Array
    t: float
    D: Array
    directions: Array

    def residuals(self, b: Array, theta: Array) -> tuple[Array, Array]:
        """r (n−1, q) and D (n, q)."""
        s, D = replay(self.y, 1 - b, self.t, self.D + theta @ self.directions)
        return (s[1:] - s[:-1] - self.i) / self.scale[:, None], D

    def derivatives(self, b: Array) -> Array:
        """(n−1, n+p): ∂r_k/∂b_m in units of D^m, then ∂r_k/∂θ_j in units of the j-th direction."""
        n, kept = len(b), 1 - b / self.t
        of_D = np.zeros((n, n + len(self.directions)))
        of_D[0, n:] = 1.0
        for k in range(1, n):
            of_D[k] = kept[k - 1] * of_D[k - 1]
            of_D[k, k - 1] = -1 / self.t
        of_s = -(b / self.t)[:, None] * of_D
        of_s[:, :n] -= np.eye(n) / self.t
        return np.asarray(np.diff(of_s, axis=0) / self.scale[:, None])


def fit(stretch: Stretch, b: Array) -> tuple[Array, Array]:
    """b in [0, 1] and θ that make the residuals least, by Levenberg–Marquardt from a start for b."""
    theta, damping = np.zeros(len(stretch.directions)), 0.0
    r, D = stretch.residuals(b, theta)
    for _ in range(_STEPS):
        matrix, right, units = _linearised(stretch, b, r, D)
        for _ in range(_TRIES):
            scaled = _step(matrix, right, damping)
            if -right @ scaled <= _ENOUGH * np.vdot(r, r):  # what the linear problem promises
                return b, theta
            step = scaled / units
            new_b, new_theta = np.clip(b + step[: len(b)], 0.0, 1.0), theta + step[len(b) :]
            new_r, new_D = stretch.residuals(new_b, new_theta)
            gain = 1 - np.vdot(new_r, new_r) / max(np.vdot(r, r), _TINY)
            if gain >= 0:
                break
            damping = max(1e4 * damping, 1e-6)
        else:
            return b, theta
        b, theta, r, D = new_b, new_theta, new_r, new_D
        if gain < _ENOUGH:
            break
        damping = damping / 1e4 if damping > 1e-6 else 0.0
    return b, theta


def _linearised(stretch: Stretch, b: Array, r: Array, D: Array) -> tuple[Array, Array, Array]:
    """Normal equations, with columns of the Jacobian brought to unit length.

    Normal equations solve to fewer digits than a QR factorisation does, but the right-hand side keeps all of its own,
    so the next step makes up for it; and their cost does not grow with the number of coordinates.
    """
    table, vectors = stretch.derivatives(b), np.concatenate([D, stretch.directions])
    matrix = (table.T @ table) * (vectors @ vectors.T)
    right = np.einsum("km,mk->m", table, vectors @ r.T)
    units = np.sqrt(matrix.diagonal())
    units[units == 0] = 1.0  # b in round 0, where D = 0
    return matrix / np.outer(units, units), right / units, units


def _step(matrix: Array, right: Array, damping: float) -> Array:
    """−(A + damping)⁻¹ right."""
    size = len(right)
    return np.asarray(-np.linalg.lstsq(matrix + damping * np.eye(size), right, rcond=_EPS)[0])
