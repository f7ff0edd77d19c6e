"""The paper's own privacy figures, for comparison only. Each is wrong or loose; the accountant is what holds.

Everything returned from here carries `source`, so that no report can show it without saying whose figure it
is. M̄ is the largest smoothness in the network; where only one agent is known, its own M stands in for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpp2.errors import BadInput
from dpp2.privacy.epsilon_value import LN10, Unsupported
from dpp2.privacy.releases import log_geometric_sum

if TYPE_CHECKING:
    from dpp2.privacy.dpp2_releases import Dpp2Releases

_LOG_LARGEST = math.log(np.finfo(np.float64).max)
C_TILDE = "the paper's c̃ (its cost of one late round)"
THEOREM_3 = "the paper's Theorem 3 (leaves out round 0)"
COROLLARY_1 = "the paper's Corollary 1 (does not keep its budget)"


@dataclass(frozen=True)
class PaperEpsilon:
    """An ε that the paper claims."""

    log10: float
    value: float | None
    source: str

    def __str__(self) -> str:
        return f"{self.value:.6g}" if self.value is not None else f"10^{self.log10:.1f}"


@dataclass(frozen=True)
class PaperDecay:
    """A decay that the paper recommends: it says any r above this one keeps the budget."""

    decay: float
    promised: float
    source: str = COROLLARY_1


@dataclass(frozen=True)
class Corollary1Bounds:
    """Corollary 1's conditions for c̃ < ε: as printed, and as its own derivation requires (u_e >, α <)."""

    u_e_printed: float
    alpha_printed: float
    u_e_meant: float
    alpha_meant: float
    source: str = COROLLARY_1


def c_tilde(mechanism: Dpp2Releases, *, network_smoothness: float | None = None) -> PaperEpsilon | Unsupported:
    """c̃ = √d (1/(αu_e) + 1/u_w)·αδ/(1 − αM̄), the paper's cost of one round before the factor r^{−k}.

    It is the limit of √d(a_k/u_e + α·a_{k−1}/u_w) as k → ∞, so it needs αM̄ < 1; the exact a_k does not.
    """
    m = mechanism
    M = m.smoothness if network_smoothness is None else network_smoothness
    outside = m.unsupported_reason(0) or _outside_theorem_3(m, M)
    if outside:
        return outside
    log_noise = float(np.logaddexp(-math.log(m.u_e), math.log(m.alpha) - math.log(m.u_w)))
    log_value = 0.5 * math.log(m.dimension) + math.log(m.adjacency) + log_noise - math.log1p(-m.alpha * M)
    return _claim(log_value, C_TILDE)


def theorem_3(
    mechanism: Dpp2Releases, rounds: int, *, network_smoothness: float | None = None
) -> PaperEpsilon | Unsupported:
    """Theorem 3: c̃ Σ_{k=1}^{K} r^{−k}.

    What is wrong: Algorithm 1 runs k = 0 … K, but the sum starts at k = 1, because the proof bounds ‖Δe^0‖
    by δ(1−(αM̄)^0)/(1−αM̄) = 0 (its exponents are one too small). Round 0 releases ∇f(x^0) + e^0 and costs
    √d·δ/u_e. What is loose: 1/(1−αM̄) in place of Σ_{j≤k}(αM)^j, and M̄ in place of the agent's own M. Read
    as the cost of the K rounds 0 … K−1 the number is an upper bound, one factor 1/r too large; read as
    printed it is not one.
    """
    per_round = c_tilde(mechanism, network_smoothness=network_smoothness)
    if isinstance(per_round, Unsupported):
        return per_round
    if rounds < 1:
        raise BadInput("rounds", rounds, "a whole number ≥ 1")
    log_p = -math.log(mechanism.decay)
    log_sum = log_p + float(log_geometric_sum(log_p, np.array([float(rounds)]))[0])
    log_value = per_round.log10 * LN10 + log_sum
    return _claim(log_value, THEOREM_3)


def corollary_1_decay(
    mechanism: Dpp2Releases, rounds: int, budget: float, *, network_smoothness: float | None = None
) -> PaperDecay | Unsupported:
    """Corollary 1's recipe: any r in ((c̃/ε)^{1/(K−1)}, 1) is said to keep the budget ε over K rounds.

    What is wrong, with p = 1/r: Σ_{k=1}^{K} p^k ≤ ε/c̃ is p^{K+1} − (1+ε/c̃)p + ε/c̃ ≤ 0 (the paper prints
    p^K), and the "more strict" p^K − (ε/c̃)p ≤ 0 is weaker: it drops ε/c̃ − p > 0 from the left-hand side.
    Since every p^k ≥ 1 the sum is at least K, so no r < 1 works unless ε > K·c̃. At ε = 2c̃ and K = 500 the
    recipe gives r = 0.99861, and Theorem 3 itself then charges 722·c̃.
    """
    per_round = c_tilde(mechanism, network_smoothness=network_smoothness)
    if isinstance(per_round, Unsupported):
        return per_round
    if rounds < 2:
        return Unsupported(f"Corollary 1 takes a (K−1)-th root, and rounds is {rounds}")
    if per_round.value is None or per_round.value >= budget:
        return Unsupported(f"Corollary 1 needs c̃ < ε, and c̃ = 10^{per_round.log10:.3f} against ε = {budget:g}")
    return PaperDecay((per_round.value / budget) ** (1 / (rounds - 1)), budget)


def corollary_1_bounds(
    mechanism: Dpp2Releases, budget: float, *, network_smoothness: float | None = None
) -> Corollary1Bounds | Unsupported:
    """The conditions on u_e and α that Corollary 1 prints for c̃ < ε, beside those that are equivalent to it.

    c̃ < ε  ⇔  √dδ/u_e + α√dδ/u_w < ε − αεM̄  ⇔  u_e > √dδ/ε and α < (ε − √dδ/u_e)/(√dδ/u_w + εM̄). The
    paper prints u_e > √dM̄/ε and α < (ε − √dM̄/u_e)/(δ(√d/u_w + ε)): M̄ where δ belongs, and δ where M̄
    does. Even the right form is necessary for the paper's bound only; the exact recursion needs no αM̄ < 1.
    """
    m = mechanism
    if not (m.u_e > 0 and m.u_w > 0 and m.adjacency > 0):
        return Unsupported("Corollary 1 needs u_e, u_w and the adjacency above 0")
    M = m.smoothness if network_smoothness is None else network_smoothness
    root_d = math.sqrt(m.dimension)
    return Corollary1Bounds(
        u_e_printed=root_d * M / budget,
        alpha_printed=(budget - root_d * M / m.u_e) / (m.adjacency * (root_d / m.u_w + budget)),
        u_e_meant=root_d * m.adjacency / budget,
        alpha_meant=(budget - root_d * m.adjacency / m.u_e) / (root_d * m.adjacency / m.u_w + budget * M),
    )


def _claim(log_value: float, source: str) -> PaperEpsilon:
    return PaperEpsilon(log_value / LN10, math.exp(log_value) if log_value < _LOG_LARGEST else None, source)


def _outside_theorem_3(m: Dpp2Releases, M: float) -> Unsupported | None:
    """Why not, in words that follow "the paper's Theorem 3 …"."""
    if not 0 <= m.alpha * M < 1:
        return Unsupported(f"it needs αM̄ < 1, and αM̄ = {m.alpha * M:g}")
    if m.u_e == 0 or m.u_w == 0 or m.decay == 0:
        return Unsupported("it needs u_e, u_w and the decay above 0")
    if m.start_adjacency > 0:
        return Unsupported("it starts both runs at one x^0")
    return None
