"""The one array type of the project: float64, because d grows linearly in k and less would round it away."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def frozen(values: Any) -> Array:
    """A read-only float64 copy, for records that must not change after they are made."""
    copy = np.array(values, dtype=np.float64)
    copy.flags.writeable = False
    return copy
