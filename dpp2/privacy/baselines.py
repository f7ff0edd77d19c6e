"""What one agent's privacy costs in the algorithms that DPP² is compared with.

The argument is that of `accountant`: fix everything that is seen on the channels, write Δ for (quantity under f) −
(quantity under f'), and bound how far the noise of each message must shift to make up for it. Adjacency is the same,
too: one objective changes, ‖∇f − ∇f'‖ ≤ δ everywhere, both M-smooth, x⁰ does not depend on the data. Throughout,
h_k = δ + M‖Δx^k‖ bounds ‖Δg^k‖, the change of the gradient at x^k. A message x + noise needs ‖Δnoise‖ = ‖Δx‖, and
Laplace noise of scale b shifted by Δ costs at most √d‖Δ‖/b.

*One message x^a = x + noise, a step along the gradient* (`StepReleases`). What mixes x^a alone is shared by both
worlds, so only the gradient's part of the next x differs:

    memory "none"        x⁺ = (shared) − α_k g                ⇒  s_{k+1} = α_k h_k
    memory "own"         x⁺ = x + (shared) − α_k g            ⇒  s_{k+1} = s_k + α_k h_k
    memory "difference"  x⁺ = (shared) − α_k (g^k − g^{k−1})  ⇒  s_{k+1} = α_k (h_k + h_{k−1}),  s_1 = α_0 h_0

with s_k ≥ ‖Δx^k‖ and s_0 = 0: round 0 sends x⁰ and costs nothing. Where the gradient is taken at a point that the
messages determine, h_k = δ, which is M = 0. A projection onto a convex set can only bring two points closer. All
three are reached: by a constant change of the gradient along (1, …, 1) and a curvature of −M ("none", "own": +M would
turn the shift back), or by one that changes its sign every round and a curvature of +M ("difference").

*Gradient tracking with x^a = x + noise and y^a = y + noise sent* (`TrackingReleases`): x⁺ = Wx^a − αy and
y⁺ = Wy^a + g⁺ − g with y⁰ = g⁰ leave Δx^{k+1} = −αΔy^k and Δy^{k+1} = Δg^{k+1} − Δg^k. With b_k ≥ ‖Δy^k‖

    b_0 = δ,  h_0 = δ,  h_k = δ + Mα b_{k−1},  b_k = h_k + h_{k−1},   ‖Δx^k‖ ≤ α b_{k−1}

and it is reached where the gradients differ by ±δ in turn at the points visited. Sending compressed differences
instead of x^a and y^a tells no more than x^a and y^a do, so the same ε covers it.

*On a grid* (`dpp2.grid`) what differs between the worlds is as above: the algorithms keep what messages determine apart
from bare gradients, and round a value only when it is released. Each release adds d·2^−b and its bins' share.

*Gaussian noise* of finite variance gives no pure ε: the likelihood ratio is unbounded. What it gives is ρ-zCDP with
ρ = Σ (shift/σ)²/2, hence (ε, δ_dp) with ε = ρ + 2√(ρ ln(1/δ_dp)) (Bun and Steinke 2016, Proposition 3), and that is
what the reason says.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.inversion import TAIL_BITS, Law
from dpp2.privacy import gdp
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.grid import GridCost
from dpp2.privacy.releases import (
    SCHEDULE,
    AdjacentReleases,
    Columns,
    LaplaceReleases,
    Memory,
    Plain,
    Releases,
    SteppingReleases,
    check_positive,
    check_scale,
    log_of,
)
from dpp2.schedule import Schedule

DELTA_DP = 1e-5  # at which an (ε, δ_dp) is quoted
_KEPT = 0.999  # of δ_dp; the rest is for the finite tail of a sampler on a grid
_NO_PURE = "Gaussian noise has no pure ε"


@dataclass(frozen=True, kw_only=True)
class StepReleases(LaplaceReleases, SteppingReleases):
    """Messages x + Lap(u_x r^k), and a step α_k along the gradient."""

    kind = "step"
    columns: ClassVar[Columns] = {
        "dimension": int,
        "smoothness": float,
        "adjacency": float,
        "u_x": float,
        "decay": float,
        "memory": str,
        **SCHEDULE,
    }
    scales = ("u_x",)
    bare: ClassVar[Mapping[str, str]] = {"u_x": "every message carries a bare x"}

    u_x: float

    def log_releases(self, rounds: int) -> list[Array]:
        shifts = _log_step_shifts(self.smoothness, self.adjacency, self.steps, self.memory, rounds)
        return [self.grid.charged(_log_costs(shifts, self.dimension, self.u_x, self.decay))]


@dataclass(frozen=True, kw_only=True)
class TrackingReleases(LaplaceReleases):
    """Messages x + Lap(u_x r^k) and y + Lap(u_y r^k) of gradient tracking with step α."""

    kind = "tracking"
    columns: ClassVar[Columns] = {
        "dimension": int,
        "alpha": float,
        "smoothness": float,
        "adjacency": float,
        "u_x": float,
        "u_y": float,
        "decay": float,
    }
    scales = ("u_x", "u_y")
    bare: ClassVar[Mapping[str, str]] = {
        "u_y": "every y message carries a bare tracked gradient",
        "u_x": "every x message carries a bare x",
    }

    alpha: float
    u_x: float
    u_y: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("step", self.alpha)

    def log_releases(self, rounds: int) -> list[Array]:
        log_x, log_y = self._log_shifts(rounds)
        costs = ((log_x, self.u_x), (log_y, self.u_y))
        return [self.grid.charged(_log_costs(shifts, self.dimension, u, self.decay)) for shifts, u in costs]

    def _log_shifts(self, rounds: int) -> tuple[Array, Array]:
        """ln of the bounds on ‖Δx^k‖ and ‖Δy^k‖."""
        log_delta, log_alpha, log_M = math.log(self.adjacency), math.log(self.alpha), log_of(self.smoothness)
        log_x, log_y = np.full(rounds, -math.inf), np.full(rounds, log_delta)
        before = log_delta
        for k in range(1, rounds):
            log_x[k] = log_alpha + log_y[k - 1]
            h = _log_sum(log_delta, log_M + log_x[k])
            log_y[k], before = _log_sum(h, before), h
        return log_x, log_y


@dataclass(frozen=True, kw_only=True)
class GaussianReleases(AdjacentReleases):
    """Kinds with Gaussian noise: no pure ε, but ρ-zCDP. One message a round."""

    added: ClassVar[Mapping[str, Plain]] = {**AdjacentReleases.added, "dimension": 1}

    dimension: int = 1  # d, which only a grid asks for

    @property
    def grid(self) -> GridCost:
        return GridCost(self.dimension, Law("gaussian", self.bits))

    def unsupported_reason(self, rounds: int) -> Unsupported:
        return super().unsupported_reason(rounds) or _gaussian(self.zcdp(rounds), self.grid, rounds)

    @property
    def gaussian(self) -> bool:
        return True

    @abstractmethod
    def log_ratios(self, rounds: int) -> Array:
        """ln of the most that the noise of each round must shift, in units of its σ; what the grid adds included."""

    def zcdp(self, rounds: int) -> float:
        """ρ of rounds 0 … K−1."""
        return _zcdp(self.log_ratios(rounds))

    def epsilon_at(self, rounds: int, delta: float) -> float:
        """Exact: each round is Gaussian with a shift/σ that nothing private decides, so μ² = Σ (shift/σ)² (`gdp`)."""
        rho, kept = self.zcdp(rounds), delta * (_KEPT if self.bits else 1.0)
        if not math.isfinite(rho):
            return math.inf
        found = gdp.epsilon_at(math.sqrt(2 * rho), kept) + self.grid.extra(rounds)
        return math.inf if self.bits and _tail_is_too_short(found, delta - kept, self.grid, rounds) else found

    def log_releases(self, rounds: int) -> list[Array]:
        return [np.full(rounds, math.inf)]

    def why_infinite(self) -> str:
        return _NO_PURE


@dataclass(frozen=True, kw_only=True)
class GaussianStepReleases(GaussianReleases, SteppingReleases):
    """Messages x + N(0, σ²) with the same σ for ever, and a step as in `StepReleases`."""

    kind = "gaussian step"
    columns: ClassVar[Columns] = {
        "smoothness": float,
        "adjacency": float,
        "sigma": float,
        "memory": str,
        **SCHEDULE,
    }
    scales = ("sigma",)

    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale("sigma", self.sigma)

    def log_ratios(self, rounds: int) -> Array:
        if not self.sigma:
            return np.full(max(rounds, 1), math.inf)
        shifts = _log_step_shifts(self.smoothness, self.adjacency, self.steps, self.memory, rounds)
        return self.grid.charged_shifts(shifts - log_of(self.sigma))


@dataclass(frozen=True, kw_only=True)
class GaussianDifferenceReleases(GaussianReleases):
    """Gradients under N(0, σ²) every `restart` rounds, from round 1 on, and in between their differences.

    A difference ∇f(x) − ∇f(x⁻) carries N(0, (σ_d‖x − x⁻‖)²). The points x are known from the messages, so
    ‖Δ‖ ≤ δ for a gradient, and 2M‖x − x⁻‖ for a difference, because f and f' are both M-smooth.
    """

    kind = "gaussian difference"
    columns: ClassVar[Columns] = {
        "smoothness": float,
        "adjacency": float,
        "sigma": float,
        "sigma_difference": float,
        "restart": int,
    }
    scales = ("sigma", "sigma_difference")

    sigma: float
    sigma_difference: float
    restart: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale("sigma", self.sigma)
        check_scale("sigma_difference", self.sigma_difference)
        if self.restart < 1:
            raise BadInput("restart", self.restart, "a whole number ≥ 1")

    def log_ratios(self, rounds: int) -> Array:
        full = (np.arange(1, max(rounds, 1)) - 1) % self.restart == 0
        gradient = log_of(self.adjacency) - log_of(self.sigma)
        difference = math.log(2) + log_of(self.smoothness) - log_of(self.sigma_difference)
        return self.grid.charged_shifts(np.where(full, gradient, difference))


@dataclass(frozen=True, kw_only=True)
class Unaccounted(Releases):
    """A run of which no ε is known. It is written down all the same: a ledger must not forget it."""

    kind = "unaccounted"
    columns: ClassVar[Columns] = {"reason": str, "smoothness": float}

    reason: str
    smoothness: float = 0.0

    def unsupported_reason(self, rounds: int) -> Unsupported:
        return Unsupported(self.reason)

    def log_releases(self, rounds: int) -> list[Array]:
        return [np.full(rounds, math.inf)]

    def why_infinite(self) -> str:
        return self.reason


BASELINES = (StepReleases, TrackingReleases, GaussianStepReleases, GaussianDifferenceReleases, Unaccounted)


def _log_step_shifts(M: float, delta: float, steps: Schedule, memory: Memory, rounds: int) -> Array:
    """ln s_k for k = 0 … K−1; see the module."""
    log_delta, log_M = math.log(delta), log_of(M)
    shifts = np.full(rounds, -math.inf)
    before = -math.inf  # ln h_{−1}: there is no gradient before the first
    for k in range(rounds - 1):
        h = _log_sum(log_delta, log_M + shifts[k])
        moved = steps.log(k) + (_log_sum(h, before) if memory == "difference" else h)
        shifts[k + 1] = _log_sum(moved, shifts[k]) if memory == "own" else moved
        before = h
    return shifts


def _log_costs(log_shifts: Array, dimension: int, u: float, decay: float) -> Array:
    """ln of √d‖Δ‖/(u r^k): −inf where nothing moved, +inf where something did and no noise hides it."""
    log_scale = np.arange(len(log_shifts), dtype=np.float64)
    log_scale[1:] *= log_of(decay)  # entry 0 stays 0: 0^0 = 1
    log_scale += log_of(u)
    with np.errstate(invalid="ignore"):  # −inf − (−inf): nothing moved, and nothing hides it
        costs = 0.5 * math.log(dimension) + log_shifts - log_scale
    return np.where(np.isneginf(log_shifts), -math.inf, costs)


def _zcdp(log_ratios: Array) -> float:
    """Σ (shift/σ)²/2 from the logarithms of shift/σ; inf where it leaves float64."""
    with np.errstate(over="ignore"):
        return float(np.exp(2 * log_ratios).sum() / 2)


def _gaussian(rho: float, grid: GridCost, messages: int) -> Unsupported:
    """A thousandth of δ_dp is set aside for the finite tail of a sampler on a grid, and must be enough."""
    if not math.isfinite(rho):
        return Unsupported(f"{_NO_PURE}, and this one hides nothing")
    kept = DELTA_DP * (_KEPT if grid.law.bits else 1.0)
    epsilon = rho + 2 * math.sqrt(rho * math.log(1 / kept)) + grid.extra(messages)
    if grid.law.bits and _tail_is_too_short(epsilon, DELTA_DP - kept, grid, messages):
        return Unsupported(
            f"{_NO_PURE}, and at an (ε, δ_dp) of ε = {epsilon:.4g} the finite tail of the sampler hides nothing"
        )
    return Unsupported(f"{_NO_PURE}; what holds is (ε, δ_dp) = ({epsilon:.4g}, {DELTA_DP:g}), by zCDP")


def _tail_is_too_short(epsilon: float, delta: float, grid: GridCost, messages: int) -> bool:
    """Whether the sampler's finite tail takes more than this δ_dp (`privacy.grid`)."""
    return epsilon > math.log(delta * 2.0**TAIL_BITS / (2 * grid.dimension * max(messages, 1)))


def _log_sum(a: float, b: float) -> float:
    """ln(e^a + e^b) without overflow."""
    high, low = (a, b) if a >= b else (b, a)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
