"""From exposures to ε: what G gradient rounds of DPP³ cost, and the scale or the G that keeps a budget.

A gradient round costs every agent its sensitivity times its exposure (see `correlated`): μ under Gaussian noise, a pure
ε under Laplace noise. Rounds compose exactly: μ√G, or ε·G. Mixing rounds, averages and the result cost nothing.
Exposures go as 1/scale when own and edge scales keep their ratio, so the scale that keeps a budget is a quotient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy import gdp
from dpp2.privacy.correlated import Kind, sensitivity

MOST_GRADIENT_ROUNDS = 10_000_000


@dataclass(frozen=True)
class Budget:
    """ε, and the δ_dp that Gaussian noise needs beside it; Laplace noise is pure, and δ_dp is None."""

    epsilon: float
    delta: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise BadInput("privacy.epsilon", self.epsilon, "a finite number > 0")


@dataclass(frozen=True)
class GradientRelease:
    """What the agents release in a gradient round: gradients that adjacent objectives move by at most `adjacency`."""

    kind: Kind
    adjacency: float  # δ, in the 2-norm
    dimension: int

    def cost(self, exposure: float | Array, grid: float = 0.0) -> Array:
        """μ, or a pure ε, of one gradient round."""
        return np.asarray(sensitivity(self.kind, self.adjacency, self.dimension, grid) * np.asarray(exposure))

    def epsilon(self, cost: float, gradient_rounds: int, delta: float | None = None) -> float:
        """ε of so many gradient rounds, each at this cost."""
        if self.kind == "laplace":
            return cost * gradient_rounds if gradient_rounds else 0.0
        return gdp.epsilon_at(cost * math.sqrt(gradient_rounds) if gradient_rounds else 0.0, _delta(delta))

    def affordable(self, budget: Budget, gradient_rounds: int) -> float:
        """The largest cost of a gradient round that keeps the budget."""
        if self.kind == "laplace":
            return budget.epsilon / gradient_rounds
        return gdp.mu_at(budget.epsilon, _delta(budget.delta)) / math.sqrt(gradient_rounds)

    def own_scale(self, unit_exposure: float, budget: Budget, gradient_rounds: int, bits: int | None = None) -> float:
        """The smallest own scale that keeps the budget; `unit_exposure` is the worst one at own scale 1.

        With `bits`, values are rounded to the grid 2^−bits of the scale (a power of two, see `grid_of`). The grid only
        adds to the sensitivity, so the scale grows until both fit.
        """
        if not 0 < unit_exposure < math.inf:
            raise BadInput("exposure", unit_exposure, "a finite number > 0: some agent is hidden by nothing")
        affordable = self.affordable(budget, gradient_rounds)
        scale = least = float(self.cost(unit_exposure)) / affordable
        while scale < 2 * least:
            needed = float(self.cost(unit_exposure, grid_of(scale, bits))) / affordable
            if needed <= scale:
                return scale
            scale = math.nextafter(needed, math.inf)
        raise BadInput("noise.bits", bits, "a finer grid: with this one the rounding alone costs half of the budget")

    def most_gradient_rounds(self, cost: float, budget: Budget) -> int:
        """The largest G that keeps the budget; 0 if not even one does."""
        if cost <= 0:
            return MOST_GRADIENT_ROUNDS
        one = self.affordable(budget, 1) / cost
        found = min(one if self.kind == "laplace" else one**2, MOST_GRADIENT_ROUNDS)
        G = int(found) + 1
        while G > 0 and self.epsilon(cost, G, budget.delta) > budget.epsilon:  # settles the last bit
            G -= 1
        return min(G, MOST_GRADIENT_ROUNDS)


def grid_of(scale: float, bits: int | None) -> float:
    """The largest power of two up to 2^−bits·scale; 0 without bits: real numbers."""
    if bits is None:
        return 0.0
    _, exponent = math.frexp(scale)  # scale = mantissa·2^exponent with ½ ≤ mantissa < 1
    return math.ldexp(1.0, exponent - 1 - bits)


def mean_variance(kind: Kind, own: Array, quorum: int = 1) -> float:
    """The variance of a coordinate of the agents' mean noise: edges add nothing to it."""
    single = own**2 if kind == "gaussian" else 2 * own**2 / quorum
    return float(single.sum()) / len(own) ** 2


def _delta(delta: float | None) -> float:
    if delta is None:
        raise BadInput("privacy.delta", delta, "a number > 0 and < 1: Gaussian noise has no pure ε")
    return delta
