"""Shares of Laplace noise: any q of them add up to Lap(1) (see `dpp2.privacy.correlated`).

Lap(1) is the difference of two exponential variates, and Gamma(1, 1) = Σ_{j ≤ q} Gamma(1/q, 1). So a share is
Gamma(1/q, 1) − Gamma(1/q, 1). Each part comes by inversion from one uniform number (`dpp2.inversion`), which is taken
for the upper tail: large shares are what hides somebody, and there it has all its digits, as far as 2^−80. Most shares
of a large q are almost 0.
"""

from __future__ import annotations

import numpy as np

from dpp2.arrays import Array
from dpp2.inversion import Uniforms


def standard_share(uniforms: Uniforms, quorum: int) -> Array:
    """Two numbers give one share: the first half of the last axis has the positive parts, then the negative ones."""
    from scipy.special import gammainccinv  # heavy, and needed by shares alone

    positive, negative = np.split(gammainccinv(1 / quorum, uniforms.numbers()), 2, axis=-1)
    return np.asarray(positive - negative)
