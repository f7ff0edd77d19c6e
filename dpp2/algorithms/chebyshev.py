"""Chebyshev mixing on P: agents agree in few rounds, without gradient and without noise. Source: textbook.

With c = (λ_max + λ_2)/2 and r = (λ_max − λ_2)/(λ_max + λ_2), the eigenvalues of P other than 0 lie in c·[1−r, 1+r], and
    x¹ = x⁰ − Px⁰/c
    ω_1 = 1/(1 − r²/2),  ω_{t+1} = 1/(1 − r²ω_t/4)
    x^{t+1} = ω_t (x^t − Px^t/c − x^{t−1}) + x^{t−1}
gives x^t − x̄ = [T_t((1 − P/c)/r)/T_t(1/r)] (x⁰ − x̄) with Chebyshev's polynomial T_t: no polynomial of that degree
contracts more. The mean stays, since P1 = 0. t steps contract disagreement by at least 1/T_t(1/r).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.weights import Spectrum


@dataclass(frozen=True)
class Chebyshev:
    """The mixing of one network, from the two eigenvalues of P that every agent must know."""

    smallest: float  # λ_2, the smallest eigenvalue but 0
    largest: float  # λ_max

    def __post_init__(self) -> None:
        if not 0 < self.smallest <= self.largest < math.inf:
            raise BadInput("eigenvalues", [self.smallest, self.largest], "0 < λ_2 ≤ λ_max")

    @classmethod
    def of(cls, eigenvalues: Spectrum) -> Chebyshev:
        return cls(eigenvalues.connectivity, eigenvalues.largest)

    @cached_property
    def centre(self) -> float:
        return (self.largest + self.smallest) / 2

    @cached_property
    def radius(self) -> float:
        return (self.largest - self.smallest) / (self.largest + self.smallest)

    def weights(self, steps: int) -> list[float]:
        """ω_1 … ω_{steps−1}: the first step has none."""
        found: list[float] = []
        for t in range(1, steps):
            found.append(1 / (1 - self.radius**2 * found[-1] / 4) if t > 1 else 1 / (1 - self.radius**2 / 2))
        return found

    def first(self, x: Array, Px: Array) -> Array:
        """x¹"""
        return x - Px / self.centre

    def next(self, weight: float, x: Array, Px: Array, before: Array) -> Array:
        """x^{t+1} from x^t, Px^t and x^{t−1}; `weight` is ω_t."""
        return weight * (x - Px / self.centre - before) + before

    def contraction(self, steps: int) -> float:
        """1/T_steps(1/r): what is left of the disagreement, at most."""
        if self.radius < 1e-12:  # a complete graph agrees at once
            return 0.0 if steps else 1.0
        exponent = steps * math.acosh(1 / self.radius)
        return 2 / (math.exp(exponent) + math.exp(-exponent)) if exponent < 700 else 0.0

    def steps_to(self, contraction: float) -> int:
        """The fewest steps that leave at most this share of the disagreement."""
        if not 0 < contraction < 1:
            raise BadInput("contraction", contraction, "a number > 0 and < 1")
        steps = 1
        if self.radius >= 1e-12:
            steps = max(1, math.ceil(math.acosh(1 / contraction) / math.acosh(1 / self.radius)) - 1)
        while self.contraction(steps) > contraction:
            steps += 1
        return steps
