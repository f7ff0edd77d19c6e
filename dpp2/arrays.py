"""The one array type of the project: float64, because d grows linearly in k and less would round it away."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# BLAS takes more numbers than this with a thread on every core, where others wait for cores, too: a thread that spins
# until its partner gets one made a product of 20 µs take 20 ms. And the last bits would depend on the number of cores.
ONE_CORE = 1 << 13


def within(values: Array, largest: float) -> bool:
    """Whether all of them are numbers of at most this magnitude; nan and infinities are not."""
    return shorter(values, largest) or not values.size or bool(values.max() <= largest and values.min() >= -largest)


def shorter(values: Array, length: float) -> bool:
    """Whether ‖v‖₂ < length, and so max |v|: one fast pass, before an exact one where this one decides nothing."""
    length = float(length)  # whose square may be inf without a word, as the sum is; nan says no
    return squared(values) < length * length


def squared(values: Array) -> float:
    """Σ v², in pieces that one core takes."""
    if values.size <= ONE_CORE:
        return float(np.vdot(values, values))
    vector = values.ravel()
    whole = len(vector) - len(vector) % ONE_CORE
    pieces, rest = vector[:whole].reshape(-1, ONE_CORE), vector[whole:]
    with np.errstate(over="ignore", invalid="ignore"):  # vdot says nothing either
        return float(np.vecdot(pieces, pieces).sum() + np.vdot(rest, rest))


def total(rows: Array) -> Array:
    """Σ over rows, in pieces that one core takes. By products with ones, which are faster than sums of short rows."""
    count, width = rows.shape
    if rows.size <= ONE_CORE:
        return np.asarray(_ones(count) @ rows)
    some = max(ONE_CORE // width, 1)
    whole = count - count % some if some > 1 else 0
    sums = np.matmul(_ones(some), rows[:whole].reshape(-1, some, width))
    return np.asarray(sums.sum(axis=0) + rows[whole:].sum(axis=0))


@lru_cache(maxsize=16)
def _ones(count: int) -> Array:
    return np.ones(count)


def frozen(values: Any) -> Array:
    """A read-only float64 copy, for records that must not change after they are made."""
    copy = np.array(values, dtype=np.float64)
    copy.flags.writeable = False
    return copy
