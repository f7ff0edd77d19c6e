"""The one array type of the project: float64, because d grows linearly in k and less would round it away."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def within(values: Array, largest: float) -> bool:
    """Whether all of them are numbers of at most this magnitude; nan and infinities are not."""
    return shorter(values, largest) or not values.size or bool(values.max() <= largest and values.min() >= -largest)


def shorter(values: Array, length: float) -> bool:
    """Whether ‖v‖₂ < length, and so max |v|: one fast pass, before an exact one where this one decides nothing."""
    length = float(length)  # whose square may be inf without a word, as vdot's is; nan says no
    return bool(np.vdot(values, values) < length * length)


def frozen(values: Any) -> Array:
    """A read-only float64 copy, for records that must not change after they are made."""
    copy = np.array(values, dtype=np.float64)
    copy.flags.writeable = False
    return copy
