"""Laplace noise in shares hides what the account says: the exact loss of two holders and their edge, by quadrature.

Two agents hold shares of q = 2. Gamma(½, 1) − Gamma(½, 1) has the density K₀(|x|)/π, so what both release together has
    p(a, b) = ∫ f(a − m) f(b + m) e^{−|m|/s}/(2s) dm,   f(x) = K₀(|x|)/π
and no sampling is needed. docs/tier-three.md proves |ln p(a − t, b) − ln p(a, b)| ≤ |t|·(1 + 1/s).
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from scipy.special import k0

from dpp2.arrays import Array
from dpp2.inversion import Uniforms
from dpp2.keys import Keystream
from dpp2.privacy.correlated import NoiseNetwork, exposures
from dpp2.shares import standard_share

PLACES = (-6.0, -2.0, -0.7, -0.05, 0.05, 0.7, 2.0, 6.0)
REACH = 60.0
_U = np.arange(-300, 301) * 0.0105
NODES = np.tanh(np.pi / 2 * np.sinh(_U))  # on (−1, 1), crowded at both ends: poles that lie there do no harm
WEIGHTS = 0.0105 * np.pi / 2 * np.cosh(_U) / np.cosh(np.pi / 2 * np.sinh(_U)) ** 2


def share(x: Array) -> Array:
    distance = np.maximum(np.abs(x), 1e-300)
    return np.asarray(k0(distance) / np.pi)


def log_density(a: float, b: float, s: float) -> float:
    """From pole to kink to pole."""
    ends = sorted({-REACH, REACH, a, -b, 0.0})
    total = 0.0
    for low, high in pairwise(ends):
        m = (low + high) / 2 + (high - low) / 2 * NODES
        values = share(a - m) * share(b + m) * np.exp(-np.abs(m) / s) / (2 * s)
        total += float(WEIGHTS @ values) * (high - low) / 2
    return math.log(total)


def losses(t: float, s: float) -> list[float]:
    return [log_density(a - t, b, s) - log_density(a, b, s) for a in PLACES for b in PLACES]


def test_the_density_of_a_share_of_two_is_the_one_that_is_integrated() -> None:
    drawn = standard_share(Uniforms.of([(Keystream(bytes(32)), 0, 0, 40_000)]).reshape(1, -1), 2)[0]
    xs = np.linspace(-12, 12, 4801)[:-1] + 0.0025  # no node at the pole
    cdf = np.cumsum(share(xs)) * 0.005
    assert cdf[-1] == pytest.approx(1, abs=3e-3)
    assert stats.kstest(drawn, lambda x: np.interp(x, xs, cdf)).pvalue > 1e-3


@pytest.mark.parametrize("s", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("t", [0.3, 1.5])
def test_the_exact_loss_stays_within_the_account_and_comes_near_it(s: float, t: float) -> None:
    network = NoiseNetwork.of("laplace", np.array([[0, 1]]), np.ones(2), s, quorum=2)
    exposure = float(exposures(network)[0])
    assert exposure == pytest.approx(1 + 1 / s)
    worst = max(map(abs, losses(t, s)))
    assert worst <= t * exposure * (1 + 1e-9)
    assert worst > t * 1.02  # own noise alone would not do: the step along the edge is needed
