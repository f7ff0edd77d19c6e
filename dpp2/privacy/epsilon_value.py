"""How an ε is written down: a float where float64 can hold it, its logarithm, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dpp2.arrays import Array, frozen

LN10 = math.log(10)
_SMALLEST = 1e-300  # below this the float sum has lost digits; the logarithm has not
_BEYOND_FLOAT64 = "ε is beyond float64: read its log10"


@dataclass(frozen=True)
class Unsupported:
    """No number can be given: the setting lies outside what the theory assumes."""

    reason: str

    def __str__(self) -> str:
        return f"unsupported, because {self.reason}"


@dataclass(frozen=True)
class Epsilon:
    """A pure ε. `value` is None where float64 cannot hold it; `log10` is inf where nothing is guaranteed."""

    log10: float
    value: float | None
    reason: str | None = None  # why value is None

    def fits(self, budget: float) -> bool:
        return self.value is not None and self.value <= budget

    def __str__(self) -> str:
        if self.value is not None:
            return f"{self.value:.6g}"
        return "∞" if math.isinf(self.log10) else f"10^{self.log10:.1f}"


@dataclass(frozen=True, eq=False)
class Curve:
    """One ε per round, as logarithms; `values` holds inf where float64 overflows or nothing is guaranteed."""

    log10: Array
    values: Array


def add_up(parts: Iterable[Epsilon]) -> Epsilon:
    """Sequential composition: ε add up. In logarithms where float64 cannot hold the sum."""
    listed = list(parts)
    infinite = next((part.reason for part in listed if part.log10 == math.inf), None)
    if all(part.value is not None for part in listed):
        value = math.fsum(part.value for part in listed if part.value is not None)
        if math.isfinite(value):
            return Epsilon(math.log10(value) if value > 0 else -math.inf, value)
    return total(np.array([part.log10 * LN10 for part in listed]), infinite)


def total(logs: Array, why_infinite: str | None) -> Epsilon:
    """The sum of the numbers with these natural logarithms; `why_infinite` is its reason if infinite."""
    largest = float(logs.max(initial=-math.inf))
    if largest == -math.inf:
        return Epsilon(-math.inf, 0.0)
    if largest == math.inf:
        return Epsilon(math.inf, None, why_infinite)
    value = float(running_sum(logs)[-1])
    if _SMALLEST <= value < math.inf:
        return Epsilon(math.log10(value), value)
    log_value = largest + math.log(float(np.exp(logs - largest).sum()))
    # A positive ε never reads as 0.
    small = max(value, math.ulp(0.0)) if value < math.inf else None
    return Epsilon(log_value / LN10, small, _BEYOND_FLOAT64 if small is None else None)


def curve(logs: Array) -> Curve:
    """The numbers whose natural logarithms are given."""
    return Curve(log10=frozen(logs / LN10), values=frozen(exp(logs)))


def running_total(logs: Array) -> Curve:
    """Their running sums; the last one is, bit for bit, what `total` gives."""
    values = running_sum(logs)
    plain = np.isfinite(values) & (values >= _SMALLEST)
    log10 = np.log10(np.where(plain, values, 1.0))
    if not plain.all():
        log10 = np.where(plain, log10, np.logaddexp.accumulate(logs) / LN10)
    return Curve(log10=frozen(log10), values=frozen(values))


def running_sum(logs: Array) -> Array:
    """Running sums as floats, inf where they overflow."""
    # Extended precision where the machine has it: a million additions then cost no digits.
    with np.errstate(over="ignore"):
        return np.cumsum(exp(logs), dtype=np.longdouble).astype(np.float64)


def exp(logs: Array) -> Array:
    """e^x, silently inf or 0 outside float64."""
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.exp(logs))
