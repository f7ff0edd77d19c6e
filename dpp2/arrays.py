"""The one array type of the project: float64, because d grows linearly in k and less would round it away."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def within(values: Array, largest: float) -> bool:
    """Whether all of them are numbers of at most this magnitude; nan and infinities are not."""
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        if flat @ flat < largest * largest:  # ‖v‖₂ ≥ max |v|: one fast pass, exact ones only where it decides nothing
            return True
    return not values.size or bool(values.max() <= largest and values.min() >= -largest)


def frozen(values: Any) -> Array:
    """A read-only float64 copy, for records that must not change after they are made."""
    copy = np.array(values, dtype=np.float64)
    copy.flags.writeable = False
    return copy
