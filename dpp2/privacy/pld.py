"""(ε, δ_dp) of a run by privacy-loss distributions: tighter than the pure sum over many releases.

(δ_dp is the probability in (ε, δ)-differential privacy; it has nothing to do with the adjacency δ.)

*One release in d dimensions costs no more than one in a single dimension.* Let p(x) ∝ e^{−‖x‖₁} and q(x) =
p(x − v) with ‖v‖₁ ≤ s (shifts in units of the scale). For |ε| ≤ s put c = (s−ε)/2 and let m be the point
(c/s)·v. By the triangle inequality ‖x‖₁ ≤ ‖x−m‖₁ + c and ‖x−v‖₁ − ε ≤ ‖x−m‖₁ + (s−c) − ε = ‖x−m‖₁ + c, so

    ∫ min(p, e^ε q) = ∫ 2^{−d} exp(−max(‖x‖₁, ‖x−v‖₁ − ε)) dx ≥ e^{−c},   that is   δ_dp(ε) ≤ 1 − e^{(ε−s)/2},

with equality in one dimension. For ε ≥ s, δ_dp = 0. So the pair (Lap(0), Lap(s)) on the line dominates the
release, for every shift within the bound, and dominating pairs compose under adaptive choice (Zhu, Dong,
Wang 2022, Theorem 10). The choice is adaptive here: given the messages so far and η, x^k is determined
under either objective, and the next shift with it.

*All releases together* are dominated by the product of those pairs, with s_j = √d·a_k/(u_e r^k) and
√d·α·a_{k−1}/(u_w r^k). By the same inequality on the product, one line with s = Σ s_j = the pure sum
dominates that: δ_dp ≤ 1 − e^{(ε − Σ s_j)/2} always holds, and costs no computation. Reported is the smaller
of it and of the PLD.

*The grid.* There are 2·10⁴ to 10⁵ steps from 0 to the pure sum, more for more releases, and the releases together
take about twice as many points. Every rounding is pessimistic (connect-the-dots keeps even releases far below one
step sound). Many releases are grouped by size, each group at the size of its largest member; the least ones, a
ten-thousandth of the sum at most, are added as pure ε. The FFT rounds both ways, by more the more releases there
are (δ_dp came out as −9·10⁻¹² for 10⁶ of them), so an allowance for that is added to δ_dp.

*Noise on a grid* (`dpp2.privacy.grid`). Shifts are larger by the rounding, and each bin is right to a factor 1 ± η. By
P' ≤ (1+η)P and Q ≤ Q'/(1−η) for every variate, δ'(ε + ln((1+η)/(1−η))) ≤ (1+η)·δ(ε). The first is in the sizes, the
second is the `factor` here, and the sampler's tail is added to δ_dp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy.accountant import epsilon
from dpp2.privacy.epsilon_value import Epsilon, Unsupported
from dpp2.privacy.releases import Releases

LARGEST_PURE_SUM = 100.0
# A spectrum that is right to 1e-16 and raised to the n-th power is right to n·1e-16; measured were at most 6e-17·n.
_ROUNDING, _ROUNDING_PER_RELEASE = 1e-12, 3e-16
_STEPS_PER_RELEASE, _FEWEST_STEPS, _MOST_STEPS = 1_000, 20_000, 100_000
_MOST_GROUPS = 256
_PURE_SHARE = 1e-4


@dataclass(frozen=True, eq=False)
class PrivacyProfile:
    """δ_dp as a function of ε for one run: an upper bound, hence a lower bound on any attacker's errors."""

    pure: float  # the pure-ε sum
    releases: int
    grid: float  # the step of the loss distribution
    added: float  # ε of the least releases, kept outside the distribution
    rounding: float  # what floating point may have taken from δ_dp; it is given back
    _distribution: Any = field(repr=False)  # dp_accounting's PrivacyLossDistribution
    factor: float = 1.0  # on δ_dp, for the bins of noise on a grid
    tail: float = 0.0  # added to δ_dp, for its finite tail

    def epsilon(self, delta: float) -> float:
        """The smallest ε for which (ε, δ_dp) is proven here; never above the pure sum, ∞ below the tail's δ_dp."""
        if not 0 <= delta < 1:
            raise BadInput("delta", delta, "a number in [0, 1)")
        if delta < self.tail:
            return math.inf
        delta = (delta - self.tail) / self.factor
        closed_form = max(0.0, self.pure + 2 * math.log1p(-delta))
        if delta <= self.rounding:
            return closed_form
        composed = float(self._distribution.get_epsilon_for_delta(delta - self.rounding)) + self.added
        return min(closed_form, composed)

    def delta(self, epsilons: float | Array) -> Array:
        """The smallest δ_dp that is proven here for each ε ≥ 0; 0 from the pure sum on."""
        wanted = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
        if not (wanted >= 0).all():
            raise BadInput("epsilon", float(wanted.min()), "a number ≥ 0")
        closed_form = -np.expm1(np.minimum(wanted - self.pure, 0.0) / 2)
        order = np.argsort(wanted)
        composed = np.empty_like(wanted)
        at = wanted[order] - self.added  # may be negative: the bound holds for every real ε
        composed[order] = np.maximum(_deltas(self._distribution, at), 0.0) + self.rounding
        return np.minimum(np.minimum(closed_form, composed) * self.factor + self.tail, 1.0)

    def trade_off(self, false_positive: float | Array, points: int = 401) -> Array:
        """The least false-negative rate that any test with this false-positive rate can have.

        (ε, δ_dp) forces β ≥ 1 − δ_dp − e^ε·α and, with the two worlds exchanged, β ≥ e^{−ε}(1 − δ_dp − α).
        The bound is the largest of these over a grid of ε from 0 to the pure sum; a finer grid can only
        raise it.
        """
        alpha = np.atleast_1d(np.asarray(false_positive, dtype=np.float64))[:, None]
        if not ((alpha >= 0) & (alpha <= 1)).all():
            raise BadInput("false_positive", false_positive, "numbers in [0, 1]")
        grid = np.linspace(0.0, self.pure, points)
        kept = 1 - self.delta(grid)
        lines = np.maximum(kept - np.exp(grid) * alpha, np.exp(-grid) * (kept - alpha))
        return np.asarray(np.maximum(lines.max(axis=1), 0.0))


def profile(mechanism: Releases, rounds: int, *, published: bool = False) -> PrivacyProfile | Unsupported:
    """Compose the releases of rounds 0 … K−1 (and of x^K + w^K, if published)."""
    pure = epsilon(mechanism, rounds, published=published)
    if isinstance(pure, Unsupported):
        return pure
    if pure.value is None or pure.value > LARGEST_PURE_SUM:
        return _pure_only(pure)
    sizes = release_sizes(mechanism, rounds, published=published)
    if sizes.size == 0:
        raise BadInput("rounds", rounds, "a whole number ≥ 1")
    grid = pure.value / min(max(_STEPS_PER_RELEASE * sizes.size, _FEWEST_STEPS), _MOST_STEPS)
    groups, added = _grouped(sizes)
    rounding = _ROUNDING + _ROUNDING_PER_RELEASE * sizes.size
    factor, tail = math.exp(mechanism.grid.extra(sizes.size)), 2.0**pure.log2_delta
    return PrivacyProfile(pure.value, sizes.size, grid, added, rounding, _composed(groups, grid), factor, tail)


def laplace_profile(size: float, count: int) -> PrivacyProfile:
    """Of so many Laplace mechanisms on the line, shifted by `size` in units of their scale: exact but for rounding."""
    pure = size * count
    step = pure / min(max(_STEPS_PER_RELEASE * count, _FEWEST_STEPS), _MOST_STEPS)
    rounding = _ROUNDING + _ROUNDING_PER_RELEASE * count
    return PrivacyProfile(pure, count, step, 0.0, rounding, _composed([(size, count)], step))


def release_sizes(mechanism: Releases, rounds: int, *, published: bool = False) -> Array:
    """The L1 sensitivity of every release in units of its noise scale, largest first, without the zeros."""
    parts = mechanism.log_releases(rounds)
    if published:
        added = mechanism.log_published(rounds)
        assert not isinstance(added, Unsupported)  # the accountant would have refused it
        parts.append(added[-1:])
    logs = np.concatenate(parts)
    return np.sort(np.exp(logs[logs > -np.inf]))[::-1]


def _pure_only(pure: Epsilon) -> Unsupported:
    why = pure.reason if pure.value is None and math.isinf(pure.log10) else None
    return Unsupported(
        f"pure ε only, because the pure sum is {pure}"
        + (f" ({why})" if why else f", above {LARGEST_PURE_SUM:g}: no δ_dp of any use makes up for that")
    )


def _grouped(sizes: Array) -> tuple[list[tuple[float, int]], float]:
    """Releases as (size, how many), each size rounded up to the largest of its group; and the ε left outside.

    Sound, because a larger shift dominates a smaller one, and because leaving out releases whose ε add up
    to t is undone by adding t to the ε of the rest.
    """
    if sizes.size <= _MOST_GROUPS:
        return [(float(size), 1) for size in sizes], 0.0
    tails = np.cumsum(sizes[::-1])[::-1]  # entry j: the sum from j on
    kept = int(np.count_nonzero(tails > _PURE_SHARE * tails[0]))
    added = float(tails[kept]) * (1 + 1e-12) if kept < sizes.size else 0.0
    depth = -np.log(sizes[:kept] / sizes[0])
    width = max(float(depth[-1]) / _MOST_GROUPS, 1e-12)
    _, first, counts = np.unique(np.floor(depth / width), return_index=True, return_counts=True)
    return [(float(sizes[j]), int(n)) for j, n in zip(first, counts, strict=True)], added


def _composed(groups: list[tuple[float, int]], grid: float) -> Any:
    """Compose in pairs, then pairs of pairs: every FFT is then about as long as its result needs."""
    laplace = _laplace()
    row = [_repeated(laplace, size, n, grid) for size, n in groups]
    while len(row) > 1:
        paired = [first.compose(second) for first, second in zip(row[::2], row[1::2], strict=False)]
        row = paired + row[2 * len(paired) :]
    return row[0]


def _repeated(laplace: Any, size: float, times: int, grid: float) -> Any:
    """So many releases of one size. One alone is there already: composing it with nothing costs as much as many."""
    one = laplace(1.0, sensitivity=size, pessimistic_estimate=True, value_discretization_interval=grid)
    return one if times == 1 else one.self_compose(times)


def _deltas(distribution: Any, epsilons: Array) -> Array:
    """inf + Σ_{loss > ε} p − e^ε Σ_{loss > ε} p e^{−loss} for ascending ε: dp_accounting's sums in its order, at once.

    It goes through a hundred thousand losses one by one in Python. Where its insides have changed, it may.
    """
    try:
        sides = {id(pmf): pmf for pmf in (distribution._pmf_remove, distribution._pmf_add)}
        found = [_tail_sums(pmf.to_dense_pmf(), epsilons) for pmf in sides.values()]
    except AttributeError:
        return np.asarray(distribution.get_delta_for_epsilon(epsilons))
    return np.asarray(np.max(found, axis=0))


def _tail_sums(pmf: Any, epsilons: Array) -> Array:
    losses = (np.arange(pmf.size) + pmf._lower_loss) * pmf._discretization
    above, below = pmf._probs[::-1], (pmf._probs * np.exp(-losses))[::-1]
    upper = np.cumsum(np.concatenate([[pmf._infinity_mass], above]))
    lower = np.cumsum(np.concatenate([[0.0], below]))
    count = len(losses) - np.searchsorted(losses, epsilons, side="right")
    finite = np.minimum(epsilons, losses[-1])  # beyond the last loss nothing is left but the infinite one
    return np.asarray(upper[count] - np.exp(finite) * lower[count])


def _laplace() -> Any:
    try:
        from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism
    except ImportError as missing:
        raise BadInput("dp_accounting", "not installed", "the package: pip install dp-accounting") from missing
    return from_laplace_mechanism
