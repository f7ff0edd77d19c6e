"""δ(ε) of Gaussian privacy and its inverses, against 200 digits."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpp2.errors import BadInput
from dpp2.privacy import gdp

MUS = (1e-9, 1e-5, 1e-3, 0.01, 0.1, 0.268, 0.4999, 0.5001, 1.0, 3.0, 10.0, 40.0)
EPSILONS = (0.0, 1e-6, 0.01, 0.1, 1.0, 10.0, 100.0)


def exact_log_delta(mu: float, epsilon: float) -> float:
    """ln(Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)), written out."""
    with mpmath.workdps(200):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)

        def cdf(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.erfc(-x / mpmath.sqrt(2)) / 2

        return float(mpmath.log(cdf(-e / m + m / 2) - mpmath.exp(e) * cdf(-e / m - m / 2)))


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_log_delta_has_eleven_digits_in_the_tails(mu: float, epsilon: float) -> None:
    if epsilon / mu > 1e3:  # 200 digits do not hold the difference either
        assert gdp.log_delta(mu, epsilon) < -1e5
        return
    exact = exact_log_delta(mu, epsilon)
    assert gdp.log_delta(mu, epsilon) == pytest.approx(exact, rel=1e-11, abs=1e-11)


def test_known_value() -> None:
    """μ = 1 at ε = 1: Φ(−½) − e Φ(−3/2)."""
    assert gdp.delta(1.0, 1.0) == pytest.approx(0.30853753872598688 - math.e * 0.066807201268858057, rel=1e-13)


@given(st.floats(1e-4, 20.0), st.floats(1e-12, 0.5))
def test_epsilon_is_the_smallest_that_keeps_delta(mu: float, delta_dp: float) -> None:
    epsilon = gdp.epsilon_at(mu, delta_dp)
    assert gdp.log_delta(mu, epsilon) <= math.log(delta_dp)
    if epsilon > 0:
        assert gdp.log_delta(mu, epsilon * (1 - 1e-9)) > math.log(delta_dp)


@given(st.floats(0.01, 30.0), st.floats(1e-12, 0.5))
def test_mu_is_the_largest_that_keeps_the_budget(epsilon: float, delta_dp: float) -> None:
    mu = gdp.mu_at(epsilon, delta_dp)
    assert gdp.log_delta(mu, epsilon) <= math.log(delta_dp)
    assert gdp.epsilon_at(mu, delta_dp) == pytest.approx(epsilon, rel=1e-9)
    assert gdp.log_delta(mu * (1 + 1e-9), epsilon) > math.log(delta_dp)


@given(st.floats(1e-3, 10.0), st.floats(1e-3, 10.0), st.floats(0.0, 10.0))
def test_more_is_never_safer(mu: float, more: float, epsilon: float) -> None:
    assert gdp.log_delta(mu, epsilon) <= gdp.log_delta(mu + more, epsilon)
    assert gdp.log_delta(mu, epsilon + more) <= gdp.log_delta(mu, epsilon)


def test_nothing_and_everything() -> None:
    assert gdp.delta(0.0, 0.0) == 0
    assert gdp.epsilon_at(0.0, 1e-5) == 0
    assert gdp.delta(math.inf, 5.0) == 1
    assert gdp.epsilon_at(math.inf, 1e-5) == math.inf


def test_rounds_compose_like_independent_gaussians() -> None:
    assert gdp.compose([3.0, 4.0]) == 5
    assert gdp.compose([0.1] * 100) == pytest.approx(1.0, rel=1e-15)


@pytest.mark.parametrize("delta_dp", [0.0, 1.0, -1.0, math.nan])
def test_refuses_a_delta_outside_0_and_1(delta_dp: float) -> None:
    with pytest.raises(BadInput, match="a number > 0 and < 1"):
        gdp.epsilon_at(1.0, delta_dp)


def test_a_curve_of_many_is_the_same_as_one_by_one() -> None:
    mus = np.array([0.0, 1e-4, 0.01, 0.1, 0.3, 0.7, 1.0, 3.0, 12.0, 60.0, np.inf])
    for delta in (1e-9, 1e-5, 0.1):
        found = gdp.epsilons_at(mus, delta)
        np.testing.assert_allclose(found, [gdp.epsilon_at(mu, delta) for mu in mus], rtol=1e-9)
