"""Step sizes and weights that shrink with the rounds: one formula, used by the programs and by their accountants."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpp2.errors import BadInput


@dataclass(frozen=True)
class Schedule:
    """first · ratio^k / (1 + slowdown · k)^power; with the defaults it is constant.

    >>> Schedule(1.0, slowdown=1.0, power=0.5)(3)
    0.5
    """

    first: float  # > 0
    ratio: float = 1.0  # in (0, 1]
    slowdown: float = 0.0  # ≥ 0
    power: float = 0.0  # ≥ 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.first) and self.first > 0):
            raise BadInput("step", self.first, "a finite number > 0")
        if not 0 < self.ratio <= 1:
            raise BadInput("ratio", self.ratio, "a number in (0, 1]")
        for name, value in (("slowdown", self.slowdown), ("power", self.power)):
            if not (math.isfinite(value) and value >= 0):
                raise BadInput(name, value, "a finite number ≥ 0")

    def __call__(self, k: int) -> float:
        return float(self.first * self.ratio**k / (1 + self.slowdown * k) ** self.power)

    def log(self, k: int) -> float:
        """Its natural logarithm, also where the value itself has left float64."""
        return math.log(self.first) + k * math.log(self.ratio) - self.power * math.log1p(self.slowdown * k)
