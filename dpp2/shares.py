"""Shares of Laplace noise: any q of them add up to Lap(1) (see `dpp2.privacy.correlated`).

Lap(1) is the difference of two exponential variates, and Gamma(1, 1) = Σ_{j ≤ q} Gamma(1/q, 1). So a share is
Gamma(1/q, 1) − Gamma(1/q, 1). Each part comes by inversion from one uniform number (`dpp2.inversion`), which is taken
for the upper tail: large shares are what hides somebody, and there it has all its digits, as far as 2^−80.

Most shares of a large q are almost 0, and there the inverse is cheap. With a = 1/q, the lower tail of Gamma(a, 1) is
    P(x) = x^a/Γ(1 + a) · S(x),    S(x) = 1 − a·x/(1 + a) + a·x²/(2·(2 + a)) − …
so x = (Γ(1 + a)·P/S(x))^q is a fixed point, which every step brings nearer by a factor of x. Below 2^−14 three steps
do: x is right to 2^−56 of itself, and to q ulp that a q-th power adds; far less than a bin of any grid.
"""

from __future__ import annotations

import math

import numpy as np

from dpp2.arrays import Array
from dpp2.inversion import Uniforms

_SMALL = 2.0**-14  # x below this comes from the fixed point
_STEPS = 3


def standard_share(uniforms: Uniforms, quorum: int) -> Array:
    """Two numbers give one share: the first half of the last axis has the positive parts, then the negative ones."""
    positive, negative = np.split(gamma_parts(uniforms.numbers(), quorum), 2, axis=-1)
    return np.asarray(positive - negative)


def gamma_parts(upper: Array, quorum: int) -> Array:
    """Gamma(1/q, 1) by inversion: of which these numbers are the upper tail."""
    from scipy.special import gammainccinv  # heavy, and needed by shares alone

    a, lower = 1 / quorum, 1 - upper
    small = lower < _SMALL**a / math.gamma(1 + a)
    parts = np.empty_like(upper)
    parts[~small] = gammainccinv(a, upper[~small])
    parts[small] = _small_parts(math.gamma(1 + a) * lower[small], quorum)
    return parts


def _small_parts(scaled: Array, quorum: int) -> Array:
    """x of Γ(1 + a)·P, by the fixed point."""
    a = 1 / quorum
    x = np.power(scaled, quorum)
    for _ in range(_STEPS):
        series = 1 - a * x * (1 / (1 + a) - x * (1 / (2 * (2 + a)) - x / (6 * (3 + a))))
        x = np.power(scaled / series, quorum)
    return x
