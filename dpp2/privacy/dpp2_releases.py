"""What an agent that runs DPP² releases, and what each release costs: the derivation of its exact pure ε.

Every message of an agent is a value plus independent Laplace noise in each coordinate, so the whole account
is a bound on how far that value can move when the agent's objective is exchanged for an adjacent one.

*Adjacency.* F and F' differ in one objective f, f' only, and ‖∇f(x) − ∇f'(x)‖ ≤ δ for every x. Both are
M-smooth. *The attacker* sees all messages O = {y^k, z^k} of all agents and knows η, P, α, β, ρ, the damping
and the noise scales. x^0 does not depend on the data (δ_0 = 0), or may differ by ‖Δx^0‖ ≤ δ_0. Nothing but
O is released.

*Sensitivity.* Fix O and write Δ for (quantity under f) − (quantity under f'). With η known, O alone
determines s = x + w, d and q, so both worlds share them and the noise has to absorb what differs:

    s  = x + w                   shared  ⇒  Δw^k = −Δx^k
    z  = ∇f(x) + (shared) + e    shared  ⇒  Δe^k = −(∇f(x^k) − ∇f'(x'^k))
    x⁺ = s − α(z − e) + βPz              ⇒  Δx^{k+1} = αΔe^k

(∇f(x) − ∇f'(x)) + (∇f'(x) − ∇f'(x')) then bounds ‖Δe^k‖ by δ + M‖Δx^k‖. With a_k for the bound on ‖Δe^k‖:

    a_0 = δ + Mδ_0,  a_k = δ + αM·a_{k−1}    ⇒  a_k = δ Σ_{j≤k} (αM)^j + (αM)^k Mδ_0
    ‖Δw^0‖ ≤ δ_0,    ‖Δw^k‖ ≤ α·a_{k−1}

The recursion asks nothing of αM: at finite k it holds for αM ≥ 1 too. Damping changes only how s enters y,
so it changes nothing here. *Cost.* Coordinate-wise Lap(b) noise shifted by Δ has a log-likelihood ratio of
at most ‖Δ‖₁/b, and ‖Δ‖₁ ≤ √d‖Δ‖₂, with equality for Δ along (±1, …, ±1). Rounds 0 … K−1 with scales u_e·r^k
and u_w·r^k spend

    ε(K) = √d Σ_{k=0}^{K−1} a_k/(u_e r^k)  +  √d [ δ_0/u_w + Σ_{k=1}^{K−1} α·a_{k−1}/(u_w r^k) ].

*On a grid* of b bits (`dpp2.grid`, and the round of `dpp2.algorithms.dpp2`) s = R(x) + w and p = R(∇f) + e are what is
released, and Δx⁺ = αΔe holds for the bare gradients: no rounding enters a_k. Each release is rounded once, which adds
at most g to every coordinate: d·2^−b and the bins' share for every message that differs (`dpp2.privacy.grid`).

*Publishing* x^K as it is reveals e^{K−1} = (x^K − s^{K−1} + αz^{K−1} − βPz^{K−1})/α: ε = ∞. Publishing x^K
+ w^K, with the w^K that round K would use, costs √d·α·a_{K−1}/(u_w r^K) more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.paper import PaperDecay, PaperEpsilon, corollary_1_decay, theorem_3
from dpp2.privacy.releases import Columns, LaplaceReleases, check_positive, is_whole, log_geometric_sum, log_of

MOST_ROUNDS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Dpp2Releases(LaplaceReleases):
    """All that one agent's ε depends on when it runs DPP²."""

    kind = "dpp2"
    columns: ClassVar[Columns] = {
        "dimension": int,
        "alpha": float,
        "smoothness": float,
        "adjacency": float,
        "u_e": float,
        "u_w": float,
        "decay": float,
        "start_adjacency": float,
    }
    scales = ("u_e", "u_w")
    bare: ClassVar[Mapping[str, str]] = {
        "u_e": "every z message carries a bare gradient",
        "u_w": "every y message carries a bare x",
    }
    papers_own = True

    alpha: float  # step size α > 0
    u_e: float  # first Laplace scale of e (in the z message), ≥ 0; 0 means no noise
    u_w: float  # first Laplace scale of w (in the y message), ≥ 0; 0 means no noise
    start_adjacency: float = 0.0  # δ_0 ≥ 0, the most that x^0 may differ by; 0 when x^0 is independent of the data

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("alpha", self.alpha)

    def unsupported_reason(self, rounds: int) -> Unsupported | None:
        """Which assumption of the module's docstring is broken, if any."""
        if outside := super().unsupported_reason(rounds):
            return outside
        if not (math.isfinite(self.start_adjacency) and self.start_adjacency >= 0):
            return Unsupported(
                f"the starts need a finite distance ≥ 0, and start_adjacency is {self.start_adjacency:g}"
            )
        return None

    def log_releases(self, rounds: int) -> list[Array]:
        log_e, log_w = self._log_costs(rounds)
        return [self.grid.charged(log_e), self.grid.charged(log_w[:-1])]

    def log_published(self, rounds: int) -> Array | Unsupported:
        """ln of √d·α·a_{K−1}/(u_w r^K), what x^K + w^K costs (√d·δ_0/u_w when K = 0)."""
        return self.unsupported_reason(rounds) or self.grid.charged(self._log_costs(rounds)[1])

    def paper_epsilon(self, rounds: int, *, network_smoothness: float | None = None) -> PaperEpsilon | Unsupported:
        """Theorem 3."""
        return theorem_3(self, rounds, network_smoothness=network_smoothness)

    def paper_decay(
        self, rounds: int, budget: float, *, network_smoothness: float | None = None
    ) -> PaperDecay | Unsupported:
        """Corollary 1."""
        return corollary_1_decay(self, rounds, budget, network_smoothness=network_smoothness)

    def _log_costs(self, rounds: int) -> tuple[Array, Array]:
        """ln of √d‖Δe^k‖/(u_e r^k) for k < K, and ln of √d‖Δw^k‖/(u_w r^k) for k ≤ K (the last: publishing).

        −inf is a release that costs nothing, +inf one that hides nothing.
        """
        if not is_whole(rounds) or not 0 <= rounds <= MOST_ROUNDS:
            raise BadInput("rounds", rounds, f"a whole number from 0 to {MOST_ROUNDS}")
        log_a = self._log_e_sensitivity(rounds)
        log_dx = np.concatenate([[log_of(self.start_adjacency)], math.log(self.alpha) + log_a])
        log_shrink = np.arange(rounds + 1, dtype=np.float64)
        log_shrink[1:] *= log_of(self.decay)  # entry 0 stays 0: 0^0 = 1
        half_log_d = 0.5 * math.log(self.dimension)
        log_e = half_log_d + log_a - (log_of(self.u_e) + log_shrink[:-1])
        with np.errstate(invalid="ignore"):  # −inf − (−inf): nothing moved, so even a bare release costs nothing
            log_w = half_log_d + log_dx - (log_of(self.u_w) + log_shrink)
        return log_e, np.where(np.isneginf(log_dx), -np.inf, log_w)

    def _log_e_sensitivity(self, rounds: int) -> Array:
        """ln a_k for k = 0 … K−1."""
        k = np.arange(rounds, dtype=np.float64)
        product = self.alpha * self.smoothness
        # The product keeps the digits near αM = 1; the sum of logarithms survives where it leaves float64.
        in_range = 1e-300 < product < 1e300
        log_ratio = math.log(product) if in_range else math.log(self.alpha) + log_of(self.smoothness)
        log_a = math.log(self.adjacency) + log_geometric_sum(log_ratio, k + 1)
        if self.start_adjacency > 0 and self.smoothness > 0:
            start = math.log(self.smoothness) + math.log(self.start_adjacency)
            log_a = np.logaddexp(log_a, k * log_ratio + start)
        return log_a
