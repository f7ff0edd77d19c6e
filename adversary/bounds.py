"""What the distinguishing game proves: a lower bound on ε, and error rates with a band around them.

*ε from guesses.* b is a fair coin, so under ε-DP the odds of b given O are at most e^ε, and a guess is right with
probability at most e^ε/(1+e^ε), whether or not it was withheld for other O. The number of right guesses among those
ventured is then at most binomial, and a Clopper–Pearson bound p on its success rate gives ε ≥ ln(p/(1−p)) with that
confidence. Both kinds of error count at once, so no confidence has to be split between them. Guesses are ventured
where |log-ratio| reaches a threshold, which is chosen on trials of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv, expit

from dpp2.arrays import Array

_CHOOSING = 10  # one trial in so many chooses thresholds and is not counted afterwards
_THRESHOLDS = 200
_CURVE_POINTS = 40
_FINE = 4001  # values of ε of which a trade-off curve is the envelope

Coins = NDArray[np.bool_]


class Curve(Protocol):
    """The least false-negative rates that any test with these false-positive rates can have."""

    def trade_off(self, false_positive: Array, points: int = ...) -> Array: ...


@dataclass(frozen=True, eq=False)
class Trials:
    """What the test said in each trial, and the coin it did not see."""

    coins: Coins
    log_ratios: Array  # ln of p(O | b = 1) / p(O | b = 0)


@dataclass(frozen=True)
class LowerBound:
    """No ε below `value` is compatible with the guesses, at this confidence."""

    value: float
    confidence: float
    threshold: float
    ventured: int
    right: int


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Error rates at fixed thresholds, each with its interval; all intervals hold together at `confidence`."""

    confidence: float
    false_positive: Array  # (points,)
    false_negative: Array
    false_positive_band: Array  # (2, points): low, high
    false_negative_band: Array

    def agrees(self, predicted: Curve) -> bool:
        """Whether the predicted curve, which falls, passes through every rectangle of the band."""
        low, high = predicted.trade_off(self.false_positive_band.ravel(), points=_FINE).reshape(2, -1)
        return bool((high <= self.false_negative_band[1]).all() and (low >= self.false_negative_band[0]).all())

    def keeps(self, bound: Curve) -> bool:
        """Whether no rectangle lies wholly below the bound: no test does better than was proven."""
        return bool((bound.trade_off(self.false_positive_band[1], points=_FINE) <= self.false_negative_band[1]).all())


def lower_bound(trials: Trials, confidence: float) -> LowerBound:
    """ε that the guesses prove, the threshold being chosen on trials that are not counted."""
    choosing, counting = _split(trials)
    more = len(counting.coins) / len(choosing.coins)

    def promise(threshold: float) -> float:
        # A log-ratio L says how often its guess is right, 1/(1+e^{−|L|}); counting hits would choose by luck.
        ventured = np.abs(choosing.log_ratios[np.abs(choosing.log_ratios) >= threshold])
        return _proven(more * len(ventured), more * float(expit(ventured).sum()), confidence)

    threshold = max(_quantiles(np.abs(choosing.log_ratios), _THRESHOLDS), key=promise)
    ventured = np.abs(counting.log_ratios) >= threshold
    right = ventured & ((counting.log_ratios > 0) == counting.coins)
    proven = _proven(ventured.sum(), right.sum(), confidence)
    return LowerBound(max(proven, 0.0), confidence, threshold, int(ventured.sum()), int(right.sum()))


def trade_off(trials: Trials, confidence: float, points: int = _CURVE_POINTS) -> TradeOff:
    """Measured error rates of the test, with a band that holds at all its thresholds at once (Bonferroni)."""
    choosing, counting = _split(trials)
    thresholds = np.array(_quantiles(choosing.log_ratios, points))
    without, with_ = (np.sort(counting.log_ratios[counting.coins == coin]) for coin in (False, True))
    positives = len(without) - np.searchsorted(without, thresholds)
    negatives = np.searchsorted(with_, thresholds)
    level = (1 - confidence) / (4 * len(thresholds))  # two rates, two sides
    return TradeOff(
        confidence,
        positives / len(without),
        negatives / len(with_),
        clopper_pearson(positives, len(without), level),
        clopper_pearson(negatives, len(with_), level),
    )


def clopper_pearson(counted: NDArray[np.integer], tries: int, level: float) -> Array:
    """(2, n): exact bounds on success rates, each side wrong with probability at most `level`."""
    successes = counted.astype(np.float64)
    low = betaincinv(successes, tries - successes + 1, level)
    high = betainccinv(successes + 1, tries - successes, level)
    return np.stack([np.where(successes == 0, 0.0, low), np.where(successes == tries, 1.0, high)])


def _split(trials: Trials) -> tuple[Trials, Trials]:
    """Trials that choose thresholds, and trials that count."""
    at = max(len(trials.coins) // _CHOOSING, 1)
    return (
        Trials(trials.coins[:at], trials.log_ratios[:at]),
        Trials(trials.coins[at:], trials.log_ratios[at:]),
    )


def _quantiles(values: Array, count: int) -> list[float]:
    """Values that occur, spread evenly over their ranks."""
    found: list[float] = np.unique(np.quantile(values, np.linspace(0, 1, count), method="inverted_cdf")).tolist()
    return found


def _proven(ventured: float, right: float, confidence: float) -> float:
    """ln(p/(1−p)) for the Clopper–Pearson lower bound p on the rate of right guesses; negative if it proves nothing."""
    if right == 0:
        return -math.inf
    low = float(betaincinv(right, ventured - right + 1, 1 - confidence))
    return math.log(low) - math.log1p(-low)
