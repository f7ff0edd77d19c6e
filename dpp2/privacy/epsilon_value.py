"""How an ε is written down: a float where float64 can hold it, its logarithm, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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


_NEGLIGIBLE = -30.0  # log2 of a δ_dp: what only the tail of a sampler leaves is below


@dataclass(frozen=True)
class Epsilon:
    """A pure ε. `value` is None where float64 cannot hold it; `log10` is inf where nothing is guaranteed.

    With noise on a grid it is the ε of an (ε, δ_dp): the finite tail of the sampler leaves a δ_dp of 2^`log2_delta`.
    """

    log10: float
    value: float | None
    reason: str | None = None  # why value is None
    log2_delta: float = -math.inf  # at most 0, where nothing is left of a guarantee

    def fits(self, budget: float) -> bool:
        return self.value is not None and self.value <= budget

    @property
    def tail(self) -> str | None:
        """δ_dp as people read it; what a sampler leaves is rounded up, 2^−s with a whole s. None for a pure ε."""
        if self.log2_delta == -math.inf or self.log10 == math.inf:
            return None
        return f"{2.0**self.log2_delta:.3g}" if self.tail_counts else f"2^−{math.floor(-self.log2_delta)}"

    @property
    def tail_counts(self) -> bool:
        """Whether δ_dp is more than what the finite words of a sampler leave."""
        return self.value is not None and self.log2_delta > _NEGLIGIBLE

    def with_tail(self, log2_delta: float) -> Epsilon:
        return replace(self, log2_delta=log2_delta)

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
    """Sequential composition: ε add up, and δ_dp. In logarithms where float64 cannot hold the sum."""
    listed = list(parts)
    tail = min(float(np.logaddexp2.reduce([part.log2_delta for part in listed], initial=-math.inf)), 0.0)
    return _sum(listed).with_tail(tail)


def _sum(listed: Sequence[Epsilon]) -> Epsilon:
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
