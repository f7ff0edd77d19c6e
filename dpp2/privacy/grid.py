"""What noise on a grid costs: two more terms of every message's ε, and a δ_dp for the finite tail of its sampler.

One message of d coordinates, noise of scale s on a grid of b bits, g ≤ 2^−b·s (`dpp2.grid`). Between two adjacent
worlds the value moves by Δ, ‖Δ‖₂ ≤ a. Both are rounded to multiples of g, so a coordinate moves by at most |Δ_j| + g:

    ‖rounded Δ‖₁ ≤ √d·a + d·g          Laplace: ε = √d·a/s + d·g/s ≤ √d·a/s + d·2^−b
    ‖rounded Δ‖₂ ≤ a + √d·g            Gauss: shift/σ ≤ a/σ + √d·2^−b

2^−b is used for g/s throughout: g/s itself jumps up where s passes a power of two, and ε must not grow with the noise.
Where the value is the same in both worlds (x⁰ in round 0), so is its rounding, and the message costs nothing.

*Bins.* The sampler's probabilities are right up to a factor 1 ± η: `Law.extra_epsilon` more for each coordinate.
*Tail.* A coordinate that must absorb t = (|Δ_j| + g)/s is (t, (1 + e^t)·2^−S)-private, S = 80 (`dpp2.inversion`):
beyond its farthest draw nothing is released, so what lies within t of it in one world is impossible in the other. By
basic composition these δ_dp add up, over coordinates and messages. As t nears S·ln 2 ≈ 55 they reach 1: no guarantee is
left then, though the real-valued account still names a finite ε.

*Coverage.* A sum is exact while |v|/g and the noise are below 2⁵³ grid units together. In the first round in which they
are not, float64 rounds value and noise together, and from there on ε = ∞.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dpp2.arrays import Array
from dpp2.grid import largest_carried
from dpp2.inversion import TAIL_BITS, Law
from dpp2.privacy.epsilon_value import Epsilon

_LOG2 = math.log(2)


@dataclass(frozen=True)
class GridCost:
    """What noise of this law adds to messages of d coordinates; 0 bits are no grid, and add nothing."""

    dimension: int
    law: Law

    @property
    def per_message(self) -> float:
        """d·2^−b for rounding, and what the bins of the sampler add: of the pure ε of every message."""
        if not self.law.bits:
            return 0.0
        return self.dimension * (2.0**-self.law.bits + self.law.extra_epsilon)

    def charged(self, log_costs: Array) -> Array:
        """ln of (√d·a + d·g)/s from ln of √d·a/s, round by round; −inf stays: what is equal is rounded alike."""
        return _added(log_costs, self.per_message)

    def charged_shifts(self, log_shifts: Array) -> Array:
        """ln of (a + √d·g)/σ from ln of a/σ, for Gaussian noise; its bins cost `extra` besides."""
        return _added(log_shifts, math.sqrt(self.dimension) * 2.0**-self.law.bits if self.law.bits else 0.0)

    def extra(self, messages: int) -> float:
        """What the bins of so many messages add to the ε of an (ε, δ_dp)."""
        return messages * self.dimension * self.law.extra_epsilon if self.law.bits else 0.0

    def log2_delta(self, releases: Iterable[Array]) -> float:
        """log2 of δ_dp = Σ d·(1 + e^t)·2^−80 over all messages that moved, at most 0; −inf without a grid.

        `releases` are ln of √d·a/s, one array per message of a round. One coordinate may take all of a: t ≤ a/s + 2^−b.
        """
        if not self.law.bits:
            return -math.inf
        log_costs = np.concatenate([np.asarray(one) for one in releases])
        moved = log_costs[~np.isneginf(log_costs)]
        if not len(moved):
            return -math.inf
        with np.errstate(over="ignore"):
            t = np.exp(moved) / math.sqrt(self.dimension) + 2.0**-self.law.bits
        log_terms = np.logaddexp(0.0, t) + math.log(self.dimension)
        return min(float(np.logaddexp.reduce(log_terms)) / _LOG2 - TAIL_BITS, 0.0)


NO_GRID = GridCost(1, Law("laplace", 0))


def _added(logs: Array, amount: float) -> Array:
    if not amount:
        return logs
    return np.where(np.isneginf(logs), -np.inf, np.logaddexp(logs, math.log(amount)))


def uncovered(k: int) -> Epsilon:
    """ε of rounds of which round k is not covered."""
    why = f"from round {k} on the noise is finer than float64 can carry beside the values (2⁵³ steps of its grid)"
    return Epsilon(math.inf, None, why)


def uncovered_round(why: str | None) -> int | None:
    """The k of such a reason, as it is kept beside a run; None for every other reason.

    >>> uncovered_round(uncovered(204).reason), uncovered_round("u_e = 0")
    (204, None)
    """
    found = re.match(r"from round (\d+) on the noise is finer", why or "")
    return int(found[1]) if found else None


def first_uncovered(sizes: Array, scales: Array, law: Law) -> int | None:
    """The first round in which float64 no longer carries value and noise: sizes are the largest |v| of each round.

    A round without noise has nothing to carry.
    """
    for k, (size, scale) in enumerate(zip(sizes.tolist(), scales.tolist(), strict=True)):
        if scale > 0 and not size < largest_carried(scale, law):
            return k
    return None


def largest_sizes(scales: Array, bits: int) -> Array:
    """How large the values of each round may be, under noise of these scales; ∞ in a round without noise."""
    law = Law("laplace", bits)
    return np.array([largest_carried(scale, law) if scale else math.inf for scale in scales.tolist()])


def covered_rounds(size: float, u: float, decay: float, law: Law, most: int) -> int:
    """How many rounds carry values up to this size under noise u·r^k: a plan, before anything is run."""
    scales = u * decay ** np.arange(most, dtype=np.float64)
    found = first_uncovered(np.full(most, size), scales, law)
    return most if found is None else found
