"""Π_X for the methods that need their iterates bounded."""

from __future__ import annotations

import numpy as np

from dpp2.arrays import Array


def onto_ball(x: Array, radius: float) -> Array:
    """The nearest point of every row in the ball of this radius around the origin."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x * (radius / np.maximum(norms, radius)))
