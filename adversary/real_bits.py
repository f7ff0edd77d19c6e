"""The likelihood ratio of a message as it really is: bits, not real numbers.

For real numbers, Lap(s) gives ln P(z | v₁)/P(z | v₀) = (|z − v₀| − |z − v₁|)/s. With doubles that holds where both
candidates can produce z, and it is ±∞ where only one can (`float_bits`). On a grid it is the ratio of two bins,

    P(n) = e^{−|n|/c}·sinh(1/(2c)),  P(0) = 1 − e^{−1/(2c)},    n = (z − rint(v/g)·g)/g,  c = ⌈(s/g)·ln 2⌉/ln 2

with the c that the sampler really uses (`dpp2.inversion`).
"""

from __future__ import annotations

import math

import numpy as np

from adversary.attacks.float_bits import could_have_produced
from dpp2.arrays import Array
from dpp2.grid import grid, to_grid


def log_ratios(message: Array, candidates: tuple[Array, Array], scale: float, bits: int = 0) -> Array:
    """ln P(message | first)/P(message | second), number by number; 0 where neither could have produced it."""
    first, second = (_log_likelihood(message, value, scale, bits) for value in candidates)
    neither = np.isneginf(first) & np.isneginf(second)
    return np.where(neither, 0.0, np.where(neither, 0.0, first) - np.where(neither, 0.0, second))


def _log_likelihood(message: Array, value: Array, scale: float, bits: int) -> Array:
    """Up to a constant that candidates share; −inf where the value cannot have produced the message."""
    possible = could_have_produced(message, value, scale, bits)
    size = _log_bins(message, value, scale, bits) if bits else -np.abs(message - value) / scale
    return np.where(possible, size, -np.inf)


def _log_bins(message: Array, value: Array, scale: float, bits: int) -> Array:
    g = float(grid(scale, bits))
    c = math.ceil(scale / g * math.log(2)) / math.log(2)
    steps = np.abs(message - to_grid(value, g)) / g
    beside, centre = math.log(math.sinh(1 / (2 * c))), math.log(-math.expm1(-1 / (2 * c)))
    return np.where(steps == 0, centre, beside - steps / c)
