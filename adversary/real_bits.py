"""The likelihood ratio of a message as it really is: bits, not real numbers.

For real numbers, Lap(s) gives ln P(z | v₁)/P(z | v₀) = (|z − v₀| − |z − v₁|)/s. With doubles that holds where both
candidates can produce z, and it is ±∞ where only one can (`float_bits`). On a grid it is the ratio of two bins,

    P(n) = e^{−|n|/c}·sinh(1/(2c)),  P(0) = 1 − e^{−1/(2c)},    n = (z − rint(v/g)·g)/g,  c = ⌈(s/g)·ln 2⌉/ln 2

with the c that the sampler really uses (`dpp2.inversion`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dpp2.adversary.attacks.float_bits import could_have_produced, is_on_grid
from dpp2.arrays import Array
from dpp2.grid import grid, to_grid
from dpp2.inversion import Law


def log_ratios(message: Array, candidates: tuple[Array, Array], scale: float, bits: int = 0) -> Array:
    """ln P(message | first)/P(message | second), number by number; 0 where neither could have produced it."""
    if bits:
        first, second = _log_bins(message, candidates, scale, bits)
    else:
        first, second = (_log_density(message, value, scale) for value in candidates)
    neither = np.isneginf(first) & np.isneginf(second)
    if not neither.any():
        return np.asarray(first - second)
    return np.where(neither, 0.0, np.where(neither, 0.0, first) - np.where(neither, 0.0, second))


def _log_density(message: Array, value: Array, scale: float) -> Array:
    """Up to a constant that candidates share; −inf where the value cannot have produced the message."""
    return np.where(could_have_produced(message, value, scale), -np.abs(message - value) / scale, -np.inf)


def _log_bins(message: Array, candidates: tuple[Array, ...], scale: float, bits: int) -> Iterator[Array]:
    """The same on a grid, where messages that no value can produce are the same for all candidates."""
    g = float(grid(scale, bits))
    c = math.ceil(scale / g * math.log(2)) / math.log(2)
    beside, centre = math.log(math.sinh(1 / (2 * c))), math.log(-math.expm1(-1 / (2 * c)))
    stray, farthest = ~is_on_grid(message, g), Law("laplace", bits).farthest * scale
    for value in candidates:
        distance = np.abs(message - to_grid(value, g))
        steps = distance / g
        logs = np.where(steps == 0, centre, beside - steps / c)
        logs[stray | (distance > farthest)] = -np.inf
        yield logs
