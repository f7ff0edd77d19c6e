"""What every attack on DPP² rests on.

With s = x + w, b = 1 − η and t = 1 + τ the messages are
    y^k = t s^k + b_k D^k          D^{k+1} = D^k + s^k          (D = d, the accumulated iterates; D⁰ = 0)
    z^k = ∇f(x^k) + ρP(D^k + t s^k) + e^k                       (η has dropped out)
    s^{k+1} = s^k + i_k + αe^k + w^{k+1}     with     i_k = −αz^k + βPz^k
so that the increments i_k are public, and everything private follows from one secret number per round, b_k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpp2.adversary.views import View
from dpp2.arrays import Array


def mix(P: Array, rows: Array) -> Array:
    """Σ_j p_ij rows_j for each agent i: NaN where a row that it takes, or the weights, are not known."""
    unheard = np.isnan(rows)
    if not unheard.any():
        return np.asarray(P @ rows)
    mixed = P @ np.where(unheard, 0.0, rows)
    mixed[(P != 0).astype(np.float64) @ unheard > 0] = np.nan
    return np.asarray(mixed)


@dataclass(frozen=True, eq=False)
class Messages:
    """A view's messages (K, N, d), the increments i, and the agents for whom both are complete."""

    y: Array
    z: Array
    i: Array
    P: Array
    t: float
    followed: NDArray[np.int64]

    @classmethod
    def of(cls, view: View, alpha: float | None = None, beta: float | None = None) -> Messages:
        """α and β are the attacker's, unless it has found some of its own; without them i is NaN."""
        y, z, P = view.observation.phases["y"], view.observation.phases["z"], view.observation.P
        alpha = view.knowledge.alpha if alpha is None else alpha
        beta = view.knowledge.beta if beta is None else beta
        i = np.full_like(z, np.nan) if alpha is None or beta is None else -alpha * z + beta * mix(P, z)
        followed = np.flatnonzero((np.isfinite(y) & np.isfinite(i)).all(axis=(0, 2)))
        return cls(y, z, i, P, view.knowledge.t, followed)

    @property
    def coordinates(self) -> int:
        """Length of the vectors that the followed agents' messages make up."""
        return len(self.followed) * int(self.y.shape[2])

    def flat(self, rows: Array) -> Array:
        """(K, N, d) → (K, coordinates), the followed agents only."""
        return rows[:, self.followed].reshape(len(rows), -1)


def lacks_followed(view: View) -> str | None:
    """Increments are known of agents whose own and whose neighbours' messages were all overheard."""
    if not set(Messages.of(view).followed.tolist()) & set(view.agents):
        return "needs an agent whose own and whose neighbours' messages were all overheard"
    return None


def replay(y: Array, eta: Array, t: float, D: Array | float = 0.0) -> tuple[Array, Array]:
    """s and D at every round, given η and D at the first: s = (y − (1−η)D)/t, then D ← D + s.

    A wrong D is forgotten by a factor (τ + η)/(1 + τ) a round, so starting from 0 in mid-run serves as well. η is
    brought into [0, 1]; where it is NaN (round 0, in which D = 0 hides it) 1 is taken. Through a gap the last s is
    carried on.
    """
    b = 1 - np.nan_to_num(np.clip(eta, 0.0, 1.0), nan=1.0)
    s, Ds, gaps = np.empty_like(y), np.empty_like(y), np.isnan(y)
    broken = np.asarray(gaps.reshape(len(y), -1).any(axis=1))
    D, last = np.zeros_like(y[0]) + D, np.zeros_like(y[0])
    for k in range(len(y)):
        Ds[k], s[k] = D, (y[k] - b[k] * D) / t
        last = np.where(gaps[k], last, s[k]) if broken[k] else s[k]
        D = D + last
    return s, Ds


def completed(messages: Messages, eta: Array, s: Array, D: Array) -> tuple[Array, Array]:
    """s and D of the followed agents as they were found, of everybody else who was overheard by replay with η.

    The estimates belong to the rounds 0 … K−1 of the record; whoever was never overheard stays NaN.
    """
    if len(messages.followed) == messages.y.shape[1]:
        return s, D
    all_s, all_D = replay(messages.y, eta, messages.t)
    all_s[:, messages.followed], all_D[:, messages.followed] = s, D
    return all_s, all_D


def gradient(messages: Messages, rho: float | None, s: Array, D: Array) -> Array | None:
    """ĝ = z − ρP(D + t s), for agents all of whose neighbours were overheard."""
    return None if rho is None else messages.z - rho * mix(messages.P, D + messages.t * s)
