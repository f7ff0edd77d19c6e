"""Float bits: which of two candidates could have produced the bits of ONE message? (Mironov 2012)

A message is fl(v + fl(scale·ln U)) with U = K·2^−52 and a whole K. Given the message and a candidate v, at most a few K
come near; if none of them gives these very bits, v is ruled out, whatever ε says. With noise on a grid every value
reaches every multiple of g, and nothing is ruled out.

For DPP² the message is z⁰ = ∇f(x⁰) + q⁰ + e⁰ with q⁰ = ρ Σ_j p_ij y_j, which everybody can compute. The attack sees no
candidates: it returns a test. The scorer, who alone knows the truth, asks it about two gradients: the true one, which
it must never rule out, and an adjacent one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpp2.adversary.attacks.base import Attack, Estimate, lacks_messages, lacks_start
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.views import View
from dpp2.arrays import Array
from dpp2.grid import grid, to_grid
from dpp2.inversion import Law

Flags = NDArray[np.bool_]
Excludes = Callable[[Array], Flags]  # candidate gradients (N, d) at x⁰ → the agents (N,) whose candidate is impossible

_UNIFORMS = 2.0**52  # U is a multiple of one part in so many
_TRIED = 24  # values of K for each number; where more come near, nothing is ruled out
_MARGIN = 2  # values of K to each side: the logarithm and the product are rounded


@dataclass(frozen=True, eq=False)
class Exclusion(Estimate):
    """What an attack rules out instead of estimating it."""

    excludes: Excludes | None = None


class FloatBits(Attack):
    """With noise in doubles it is all over after one message; on a grid it must rule out nothing, for ever."""

    name = "float-bits"
    summary = "Rules out adjacent objectives by the last bits of the first z."
    compared, excludes = False, True

    def needs(self, view: View) -> str | None:
        return lacks_messages(view) or lacks_start(view) or _lacks_scale(view.knowledge)

    def run(self, view: View) -> Exclusion:
        known = view.knowledge
        assert known.rho is not None
        z, u, bits = view.observation.phases["z"][0], known.scales["e"], known.grid
        q = known.rho * _mixed(view.observation.P, view.observation.phases["y"][0])
        beside = to_grid(q, np.asarray(grid(u[:, None], bits))) if bits else q
        heard = ~np.isnan(z + q).any(axis=1) & (u > 0)
        rows = [agent for agent in view.agents if heard[agent]]
        message, shift = (z - beside, np.zeros_like(q)) if bits else (z, q)
        return Exclusion(self.name, excludes=_FirstMessage(message, shift, u, bits, rows))


@dataclass(frozen=True, eq=False)
class _FirstMessage:
    """Which gradients the first z rules out: an object and no closure, so that findings can be pickled."""

    message: Array
    shift: Array  # that the noise was added to beside the gradient
    scale: Array
    bits: int
    rows: list[int]  # agents that were heard

    def __call__(self, gradients: Array) -> Flags:
        impossible, rows = np.zeros(len(self.message), dtype=bool), self.rows
        value = gradients + self.shift
        possible = could_have_produced(self.message[rows], value[rows], self.scale[rows, None], self.bits)
        impossible[rows] = ~possible.all(axis=1)
        return impossible


def _lacks_scale(known: Knowledge) -> str | None:
    if known.rho is None or "e" not in known.scales:
        return "needs ρ and the scale of the noise, which this attacker does not know"
    return None if known.scales["e"].any() else "there is no noise: every candidate is told apart anyway"


def could_have_produced(message: Array, value: Array, scale: Array | float, bits: int = 0) -> Flags:
    """For each number, whether value + Laplace noise can be it: on a grid of so many bits, or with doubles (0)."""
    message, value, scale = np.broadcast_arrays(message, value, np.asarray(scale, dtype=np.float64))
    return _on_grid(message, value, scale, bits) if bits else _by_doubles(message, value, scale)


def ruled_out_share(messages: Array, right: Array, wrong: Array, scale: float, bits: int = 0) -> float:
    """The share of messages (T, d) that rule out the wrong value and not the right one."""
    possible = could_have_produced(messages, right, scale, bits).all(axis=1)
    return float((possible & ~could_have_produced(messages, wrong, scale, bits).all(axis=1)).mean())


def _on_grid(message: Array, value: Array, scale: Array, bits: int) -> Flags:
    """A multiple of g, not too far from the value, and no −0."""
    g = np.asarray(grid(scale, bits))
    far = np.abs(message - to_grid(value, g)) > Law("laplace", bits).farthest * scale
    return is_on_grid(message, g) & ~far


def is_on_grid(message: Array, g: Array | float) -> Flags:
    """Multiples of g, among which there is no −0."""
    return np.asarray((to_grid(message, g) == message) & ~((message == 0) & np.signbit(message)))


def _by_doubles(message: Array, value: Array, scale: Array) -> Flags:
    """Tries every K whose noise could round to what is between the message and the value."""
    first, last = _near(message, value, scale)
    found = last - first >= _TRIED
    for n in range(min(int((last - first).max(initial=0)) + 1, _TRIED)):
        K = first + n
        noise = scale * np.log(K / _UNIFORMS)
        found |= (last >= K) & ((value + noise == message) | (value - noise == message))
    return np.asarray(found)


def _near(message: Array, value: Array, scale: Array) -> tuple[Array, Array]:
    """The least and the largest K that come into question, in extended precision where the machine has it."""
    z, v, u = (part.astype(np.longdouble) for part in (message, value, scale))
    half = np.maximum(np.nextafter(message, np.inf) - message, message - np.nextafter(message, -np.inf)) / 2
    distance = np.abs(z - v)
    nearest, farthest = np.maximum(distance - half, 0), distance + half
    most, least = (_UNIFORMS * np.exp(-size / u) for size in (nearest, farthest))
    return (
        np.maximum(np.floor(least) - _MARGIN, 1).astype(np.float64),
        np.minimum(np.ceil(most) + _MARGIN, _UNIFORMS).astype(np.float64),
    )


def _mixed(P: Array, rows: Array) -> Array:
    """Σ_j p_ij rows_j, added in ascending order like every agent does it: to the last bit."""
    total = np.zeros_like(rows)
    for column, row in zip(P.T, rows, strict=True):
        total += np.where(column[:, None] != 0, column[:, None] * row, 0.0)
    return total
