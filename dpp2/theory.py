"""The paper's sufficient conditions (eqs. for ξ_1 … ξ_9, c̄_α, c̄_θ, γ, ρ, λ̄_G, α), each with its two sides.

They are very small: M̄ = 5.03 asks for α < 9.24e-4 where the paper's own experiment uses 0.1. So a condition that
fails is a warning and never a refusal; and because the damped analysis is ours, τ does not appear here at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from dpp2.weights import Spectrum


@dataclass(frozen=True)
class Condition:
    """left < right, as the paper asks."""

    name: str
    left: float
    right: float

    @property
    def holds(self) -> bool:
        return self.left < self.right

    def __str__(self) -> str:
        return f"{self.name}: {self.left:.4g} < {self.right:.4g} {'holds' if self.holds else 'fails'}"


def conditions(alpha: float, beta: float, rho: float, smoothness: float, eigenvalues: Spectrum) -> list[Condition]:
    """All conditions, for the free constants c̄_θ and γ that serve them best.

    The paper only asks that some c̄_θ ∈ (0, 1/κ_G) and γ ∈ (0, c̄_θ/5) exist; a grid of both is searched for the
    pair under which the fewest conditions fail, and among those the least violated.
    """
    grid = np.geomspace(1e-3, 0.999, 25)
    network = _Network(np.float64(eigenvalues.connectivity), np.float64(eigenvalues.largest), np.float64(smoothness))
    steps = _Steps(np.float64(alpha), np.float64(beta), np.float64(rho))
    with np.errstate(all="ignore"):  # absurd parameters give conditions with inf or nan, which then do not hold
        candidates = [_conditions(steps, network, *shares) for shares in product(grid, grid)]
    return min(candidates, key=_violation)


@dataclass(frozen=True)
class _Steps:
    alpha: np.float64
    beta: np.float64
    rho: np.float64


@dataclass(frozen=True)
class _Network:
    """λ̲_L and λ̄_L of the network, and M̄ of its objectives."""

    low: np.float64
    high: np.float64
    smoothness: np.float64


def _violation(found: list[Condition]) -> tuple[int, float]:
    """How many fail, then by how many powers of e (a right side that is not positive counts as fifty)."""
    failing = [c for c in found if not c.holds]
    return len(failing), sum(math.log(c.left / c.right) if 0 < c.right < c.left < math.inf else 50.0 for c in failing)


def _conditions(steps: _Steps, network: _Network, theta_share: np.float64, gamma_share: np.float64) -> list[Condition]:
    alpha, beta, rho = steps.alpha, steps.beta, steps.rho
    low, high, M = network.low, network.high, network.smoothness
    lambda_G, least_G = alpha - beta * low, alpha - beta * high  # λ̄_G on the disagreement modes, and λ̲_G
    kappa_L, kappa_G = high / low, lambda_G / least_G
    c_alpha = alpha / lambda_G
    c_theta = theta_share / kappa_G
    gamma = gamma_share * c_theta / 5
    margin = 1 / kappa_G - c_theta

    xi_1 = rho * high / 2 * margin - (1 + 3 * M**2 / 4 + M**2 * c_alpha / 2)
    xi_2 = (
        (1 + 1 / gamma) * rho**2 * high / 2
        + c_theta / 4
        + c_theta * rho * high / 2
        + 11 / 4
        + M**2 * (2 / gamma + c_theta * rho * high / 4 + c_theta**2 / 2)
    )
    xi_3 = c_theta / 2 - 5 * gamma / 2 - 1 / (rho * low) ** 2
    xi_4, xi_5 = c_theta**2 / 4, 7 * c_theta**2 / 4
    xi_6, xi_7 = np.float64(1 / 4), M + 21 / 2 * M**2
    xi_8 = (4 + 3 * M**2 + 2 * M**2 * c_alpha) / (2 * high * margin)
    xi_9 = 1 / np.sqrt(low**2 * (c_theta / 2 - 5 * gamma / 2))
    root = xi_4**2 + 4 * xi_3 * xi_5

    found: list[tuple[str, float, float]] = [
        ("c̄_α < κ_L/(κ_L − 1)", c_alpha, kappa_L / (kappa_L - 1) if kappa_L > 1 else math.inf),
        ("c̄_θ < 1/κ_G", c_theta, 1 / kappa_G),
        ("γ < c̄_θ/5", gamma, c_theta / 5),
        ("ξ_8 < ρ", xi_8, rho),
        ("ξ_9 < ρ", xi_9, rho),
        ("λ̄_G < ξ_1/ξ_2", lambda_G, xi_1 / xi_2),
        (
            "λ̄_G < (−ξ_4 + √(ξ_4² + 4ξ_3ξ_5))/(2ξ_5)",
            lambda_G,
            (np.sqrt(root) - xi_4) / (2 * xi_5) if root >= 0 else -math.inf,
        ),
        ("λ̄_G < ξ_6/(c̄_α ξ_7)", lambda_G, xi_6 / (c_alpha * xi_7)),
        ("α < ξ_6/ξ_7", alpha, xi_6 / xi_7),
    ]
    return [Condition(name, float(left), float(right)) for name, left, right in found]
