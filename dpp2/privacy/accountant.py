"""What one agent's privacy costs: the exact pure-ε accountant of DPP², in logarithms.

Every message of an agent is a value plus independent Laplace noise in each coordinate, so the whole account
is a bound on how far that value can move when the agent's objective is exchanged for an adjacent one.

*Adjacency.* F and F' differ in one objective f, f' only, and ‖∇f(x) − ∇f'(x)‖ ≤ δ for every x. Both are
M-smooth. *The attacker* sees all messages O = {y^k, z^k} of all agents and knows η, P, α, β, ρ, the damping
and the noise scales. x^0 does not depend on the data (δ_0 = 0), or may differ by ‖Δx^0‖ ≤ δ_0. Nothing but
O is released.

*Sensitivity.* Fix O and write Δ for (quantity under f) − (quantity under f'). With η known, O alone
determines s = x + w, d and q, so both worlds share them and the noise has to load_node_records what differs:

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

*Publishing* x^K as it is reveals e^{K−1} = (x^K − s^{K−1} + αz^{K−1} − βPz^{K−1})/α: ε = ∞. Publishing x^K
+ w^K, with the w^K that round K would use, costs √d·α·a_{K−1}/(u_w r^K) more.

Accuracy: log10 ε to about 1e-15 of its size, hence ε itself to about 1e-16·(K + |ln ε|) relative.
"""

from __future__ import annotations

import math
from dataclasses import Field, dataclass
from functools import lru_cache, reduce
from typing import Any, ClassVar, Protocol

import numpy as np

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy.epsilon_value import (
    Curve,
    Epsilon,
    Unsupported,
    curve,
    exp,
    running_sum,
    running_total,
    total,
)

MOST_ROUNDS = 10_000_000


class Releases(Protocol):
    """What one agent releases in a run of any algorithm: a frozen dataclass of plain values, which ledgers keep."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    kind: ClassVar[str]  # its name in a ledger
    scales: ClassVar[tuple[str, ...]]  # the fields that make ε smaller by as much as they are made larger, together

    def __hash__(self) -> int: ...

    @property
    def smoothness(self) -> float: ...

    def unsupported_reason(self, rounds: int) -> Unsupported | None:
        """Why there is no pure ε after so many rounds, if there is none."""

    def log_releases(self, rounds: int) -> list[Array]:
        """For each message of a round an array (K,): ln of the most that its noise must shift, in units of its size."""

    def why_infinite(self) -> str:
        """What is to blame where a release hides nothing."""


@dataclass(frozen=True)
class Dpp2Releases:
    """All that one agent's ε depends on when it runs DPP²."""

    kind: ClassVar[str] = "dpp2"
    scales: ClassVar[tuple[str, ...]] = ("u_e", "u_w")

    dimension: int  # d ≥ 1, of the decision variable
    alpha: float  # step size α > 0
    smoothness: float  # M ≥ 0, a public Lipschitz bound of this agent's gradient
    adjacency: float  # δ > 0, the most that the gradients of adjacent objectives differ by, in the 2-norm
    u_e: float  # first Laplace scale of e (in the z message), ≥ 0; 0 means no noise
    u_w: float  # first Laplace scale of w (in the y message), ≥ 0; 0 means no noise
    decay: float  # r in [0, 1]: round k uses the scale u·r^k; 0 means noise in round 0 only
    start_adjacency: float = 0.0  # δ_0 ≥ 0, the most that x^0 may differ by; 0 when x^0 is independent of the data

    def __post_init__(self) -> None:
        if not _is_whole(self.dimension) or self.dimension < 1:
            raise BadInput("dimension", self.dimension, "a whole number ≥ 1")
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise BadInput("alpha", self.alpha, "a finite number > 0")
        for name, scale in (("u_e", self.u_e), ("u_w", self.u_w)):
            if not (math.isfinite(scale) and scale >= 0):
                raise BadInput(name, scale, "a finite number ≥ 0")
        if not 0 <= self.decay <= 1:
            raise BadInput("decay", self.decay, "a number in [0, 1]")

    def unsupported_reason(self, rounds: int) -> Unsupported | None:
        return unsupported(self)

    def log_releases(self, rounds: int) -> list[Array]:
        log_e, log_w = log_costs(self, rounds)
        return [log_e, log_w[:-1]]

    def why_infinite(self) -> str:
        if self.u_e == 0:
            return "u_e = 0: every z message carries a bare gradient"
        if self.u_w == 0:
            return "u_w = 0: every y message carries a bare x"
        return "decay = 0: no noise after round 0"


def unsupported(mechanism: Dpp2Releases) -> Unsupported | None:
    """Which assumption of the module's docstring the mechanism breaks, if any."""
    m = mechanism
    if not (math.isfinite(m.smoothness) and m.smoothness >= 0):
        return Unsupported(f"the gradient needs a finite Lipschitz bound, and smoothness is {m.smoothness:g}")
    if not (math.isfinite(m.adjacency) and m.adjacency > 0):
        return Unsupported(f"adjacent objectives need a finite distance > 0, and adjacency is {m.adjacency:g}")
    if not (math.isfinite(m.start_adjacency) and m.start_adjacency >= 0):
        return Unsupported(f"the starts need a finite distance ≥ 0, and start_adjacency is {m.start_adjacency:g}")
    return None


@lru_cache(maxsize=4096)  # a network's agents usually share one mechanism, and each has its own ledger to add up
def epsilon(mechanism: Releases, rounds: int, *, published: bool = False) -> Epsilon | Unsupported:
    """ε of rounds 0 … K−1, K = `rounds`; with `published`, that of releasing x^K + w^K as well."""
    outside = _outside(mechanism, rounds, published)
    if outside:
        return outside
    logs = _log_rounds(mechanism, rounds)
    if published:
        logs = np.append(logs, _log_published(mechanism, rounds)[-1:])
    return total(logs, mechanism.why_infinite())


def publish_term(mechanism: Dpp2Releases, rounds: int) -> Epsilon | Unsupported:
    """What releasing x^K + w^K after K rounds adds: √d·α·a_{K−1}/(u_w r^K) (√d·δ_0/u_w when K = 0)."""
    outside = unsupported(mechanism)
    if outside:
        return outside
    return total(_log_published(mechanism, rounds)[-1:], mechanism.why_infinite())


def per_round(mechanism: Releases, rounds: int) -> Curve | Unsupported:
    """What each of the rounds 0 … K−1 costs; for DPP² √d·[a_k/u_e + ‖Δw^k‖/u_w]/r^k."""
    return mechanism.unsupported_reason(rounds) or curve(_log_rounds(mechanism, rounds))


def cumulative(mechanism: Releases, rounds: int) -> Curve | Unsupported:
    """ε(1), …, ε(K): entry k is what rounds 0 … k spend together. Its last entry equals `epsilon`'s value."""
    return mechanism.unsupported_reason(rounds) or running_total(_log_rounds(mechanism, rounds))


def largest_rounds(mechanism: Releases, budget: float, most: int, *, published: bool = False) -> int | Unsupported:
    """The largest K ≤ `most` with ε(K) ≤ budget (0 if not even one round fits). `epsilon` decides."""
    outside = _outside(mechanism, most, published)
    if outside:
        return outside

    def fits(K: int) -> bool:
        spent = epsilon(mechanism, K, published=published)
        return isinstance(spent, Epsilon) and spent.fits(budget)

    high = 1
    while high < most and fits(high):
        high = min(2 * high, most)
    spent = running_sum(_log_rounds(mechanism, high))
    if published:
        spent = spent + exp(_log_published(mechanism, high)[1:])
    found = min(int(np.searchsorted(spent, budget, side="right")), most)
    while found > 0 and not fits(found):  # these two loops settle the last bit; they rarely turn at all
        found -= 1
    while found < most and fits(found + 1):
        found += 1
    return found


def _outside(mechanism: Releases, rounds: int, published: bool) -> Unsupported | None:
    if published and not isinstance(mechanism, Dpp2Releases):
        return Unsupported("what publishing the result costs is known for dpp2 only")
    return mechanism.unsupported_reason(rounds)


def _log_rounds(mechanism: Releases, rounds: int) -> Array:
    """ln of what each round costs: its messages together."""
    return reduce(np.logaddexp, mechanism.log_releases(rounds))


def _log_published(mechanism: Releases, rounds: int) -> Array:
    """ln of what releasing x^K + w^K costs, for K = 0 … `rounds`."""
    assert isinstance(mechanism, Dpp2Releases)  # `_outside` has asked
    return log_costs(mechanism, rounds)[1]


def log_costs(mechanism: Dpp2Releases, rounds: int) -> tuple[Array, Array]:
    """ln of √d‖Δe^k‖/(u_e r^k) for k < K, and ln of √d‖Δw^k‖/(u_w r^k) for k ≤ K (the last: publishing).

    −inf is a release that costs nothing, +inf one that hides nothing.
    """
    if not _is_whole(rounds) or not 0 <= rounds <= MOST_ROUNDS:
        raise BadInput("rounds", rounds, f"a whole number from 0 to {MOST_ROUNDS}")
    m = mechanism
    log_a = _log_e_sensitivity(m, rounds)
    log_dx = np.concatenate([[_log(m.start_adjacency)], math.log(m.alpha) + log_a])
    log_shrink = np.arange(rounds + 1, dtype=np.float64)
    log_shrink[1:] *= _log(m.decay)  # entry 0 stays 0: 0^0 = 1
    half_log_d = 0.5 * math.log(m.dimension)
    log_e = half_log_d + log_a - (_log(m.u_e) + log_shrink[:-1])
    with np.errstate(invalid="ignore"):  # −inf − (−inf): nothing moved, so even a bare release costs nothing
        log_w = half_log_d + log_dx - (_log(m.u_w) + log_shrink)
    return log_e, np.where(np.isneginf(log_dx), -np.inf, log_w)


def log_geometric_sum(log_ratio: float, counts: Array) -> Array:
    """ln Σ_{j=0}^{n−1} q^j for every n ≥ 1 in `counts`, q = e^{log_ratio}; no overflow for q > 1.

    For q < 1 the sum is (1−q^n)/(1−q); for q > 1 it is q^{n−1} times the same sum with 1/q.
    """
    if log_ratio == 0:
        return np.log(counts)
    size = abs(log_ratio)
    return max(log_ratio, 0.0) * (counts - 1) + np.log(-np.expm1(-size * counts)) - math.log(-math.expm1(-size))


def _log_e_sensitivity(m: Dpp2Releases, rounds: int) -> Array:
    """ln a_k for k = 0 … K−1."""
    k = np.arange(rounds, dtype=np.float64)
    product = m.alpha * m.smoothness
    # The product keeps the digits near αM = 1; the sum of logarithms survives where it leaves float64.
    in_range = 1e-300 < product < 1e300
    log_ratio = math.log(product) if in_range else math.log(m.alpha) + _log(m.smoothness)
    log_a = math.log(m.adjacency) + log_geometric_sum(log_ratio, k + 1)
    if m.start_adjacency > 0 and m.smoothness > 0:
        log_a = np.logaddexp(log_a, k * log_ratio + math.log(m.smoothness) + math.log(m.start_adjacency))
    return log_a


def _is_whole(number: object) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def _log(number: float) -> float:
    return math.log(number) if number > 0 else -math.inf
