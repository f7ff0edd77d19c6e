"""Gaussian differential privacy: what μ says about ε and δ, exactly (Dong, Roth and Su 2022).

A release is μ-GDP when telling two worlds apart is no easier than telling N(0, 1) from N(μ, 1). Rounds compose exactly,
μ² = Σ_k μ_k², also when a round rests on what earlier ones released. In terms of ε,

    δ(ε) = Φ(−t₁) − e^ε Φ(−t₂),    t₁ = ε/μ − μ/2,    t₂ = ε/μ + μ/2.

Both terms are nearly equal where μ is small or ε large. But e^ε φ(t₂) = φ(t₁), so with Mills' ratio R(t) = Φ(−t)/φ(t)

    δ(ε) = φ(t₁) (R(t₁) − R(t₂)) = φ(t₁) ∫ (1 − t R(t)) dt  from t₁ to t₂,

which has no large terms to take from each other. Logarithms reach δ that float64 does not hold. About 12 digits of δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from dpp2.arrays import Array
from dpp2.errors import BadInput

_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
_NEARLY_ONE = -5.0  # below this t₁ the first term of δ is almost 1 and the second one small: nothing cancels
_SHORT = 0.5  # a range up to this long is integrated by 16 nodes to the last digit
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_HALVINGS = 60  # of a bisection: down to the last digits
_FAR = 50.0  # from here on 1 − t R(t) comes from its asymptotic series


def compose(mus: Iterable[float]) -> float:
    """μ of all rounds together."""
    return math.sqrt(math.fsum(mu * mu for mu in mus))


def log_delta(mu: float, epsilon: float) -> float:
    """ln δ(ε); −inf where nothing is released (μ = 0), 0 where everything is (μ = ∞)."""
    if not mu >= 0:
        raise BadInput("mu", mu, "a number ≥ 0")
    if not epsilon >= 0:
        raise BadInput("epsilon", epsilon, "a number ≥ 0")
    if mu == 0 or epsilon == math.inf:
        return -math.inf
    if mu == math.inf:
        return 0.0
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if low < _NEARLY_ONE:
        return _log_of_difference(low, high, epsilon)
    return -low * low / 2 - _LOG_ROOT_2PI + math.log(_fall_of_mills(epsilon / mu, mu))


def delta(mu: float, epsilon: float) -> float:
    """δ(ε); 0 where it is below float64."""
    return math.exp(log_delta(mu, epsilon))


def epsilon_at(mu: float, delta_dp: float) -> float:
    """The smallest ε with δ(ε) ≤ δ_dp, rounded up; inf where there is none."""
    target = _log_target(delta_dp)
    if mu == math.inf:
        return math.inf
    if mu == 0 or log_delta(mu, 0.0) <= target:
        return 0.0
    enough = mu * mu / 2 + mu * math.sqrt(-2 * target)  # δ(ε) ≤ Φ(−t₁) ≤ exp(−t₁²/2)
    return _bisect(lambda eps: log_delta(mu, eps) > target, 0.0, enough)[1]


def epsilons_at(mus: Array, delta_dp: float | Array) -> Array:
    """`epsilon_at` of many μ at once: a curve over rounds; δ_dp may be one for all, or one for each."""
    targets = np.broadcast_to([_log_target(one) for one in np.atleast_1d(delta_dp).tolist()], mus.shape)
    found = np.where(np.isinf(mus), np.inf, 0.0)
    open_ = np.flatnonzero(np.isfinite(mus) & (mus > 0))
    mu, target = mus[open_], targets[open_]
    low, high = np.zeros_like(mu), mu * mu / 2 + mu * np.sqrt(-2 * target)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = _log_deltas(mu, middle) > target
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    found[open_] = np.where(_log_deltas(mu, np.zeros_like(mu)) <= target, 0.0, high)
    return found


def _log_deltas(mu: Array, epsilon: Array) -> Array:
    """`log_delta` of pairs, μ finite and > 0."""
    from scipy.special import log_ndtr

    middle, half = epsilon / mu, mu / 2
    low, high = middle - half, middle + half
    first = log_ndtr(-low)
    far = np.maximum(low, _NEARLY_ONE)  # beyond, only the first form is used
    long = _mills(far) - _mills(np.maximum(high, far))
    short = half * (_minus_slope(middle[:, None] + half[:, None] * _NODES) @ _WEIGHTS)
    with np.errstate(divide="ignore", invalid="ignore"):
        near_one = first + np.log(-np.expm1(epsilon + log_ndtr(-high) - first))
        usual = -low * low / 2 - _LOG_ROOT_2PI + np.log(np.where(mu > _SHORT, long, short))
    return np.where(low < _NEARLY_ONE, near_one, usual)


def mu_at(epsilon: float, delta_dp: float) -> float:
    """The largest μ with δ(ε) ≤ δ_dp, rounded down: what (ε, δ_dp) leaves to spend."""
    target = _log_target(delta_dp)
    too_much = 1.0
    while log_delta(too_much, epsilon) <= target:
        too_much *= 2
    return _bisect(lambda mu: log_delta(mu, epsilon) <= target, 0.0, too_much)[0]


def _log_target(delta_dp: float) -> float:
    if not 0 < delta_dp < 1:
        raise BadInput("delta", delta_dp, "a number > 0 and < 1")
    return math.log(delta_dp)


def _bisect(is_low: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Two neighbouring floats, the first of which is still low."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return low, high


def _log_of_difference(low: float, high: float, epsilon: float) -> float:
    from scipy.special import log_ndtr

    first = float(log_ndtr(-low))
    return first + math.log(-math.expm1(epsilon + float(log_ndtr(-high)) - first))


def _fall_of_mills(middle: float, width: float) -> float:
    """R(t₁) − R(t₂) on both sides of `middle`, as an integral where the two are too close to be subtracted."""
    if width > _SHORT:
        first, second = _mills(np.array([middle - width / 2, middle + width / 2])).tolist()
        return float(first - second)
    return float(width / 2 * (_WEIGHTS @ _minus_slope(middle + width / 2 * _NODES)))


def _mills(t: Array) -> Array:
    from scipy.special import erfcx

    return np.asarray(math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2)))


def _minus_slope(t: Array) -> Array:
    """−R'(t) = 1 − t R(t)."""
    far = np.maximum(t, _FAR) ** -2.0
    series = far * (1 - far * (3 - far * (15 - far * (105 - far * 945))))
    return np.where(t > _FAR, series, 1 - t * _mills(t))
