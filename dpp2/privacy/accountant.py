"""What one agent's privacy costs: exact pure ε of whatever it releases, in logarithms.

A kind of `Releases` says what each message costs, and derives it (`dpp2_releases` for DPP², `baselines` for the
others). Here these costs are added up: over the messages of a round, over rounds, with the published result or without.

Accuracy: log10 ε to about 1e-15 of its size, hence ε itself to about 1e-16·(K + |ln ε|) relative.
"""

from __future__ import annotations

from functools import lru_cache, reduce

import numpy as np

from dpp2.arrays import Array
from dpp2.privacy.epsilon_value import Curve, Epsilon, Unsupported, curve, exp, running_sum, running_total, total
from dpp2.privacy.releases import Releases


@lru_cache(maxsize=4096)  # a network's agents usually share one mechanism, and each has its own ledger to add up
def epsilon(mechanism: Releases, rounds: int, *, published: bool = False) -> Epsilon | Unsupported:
    """ε of rounds 0 … K−1, K = `rounds`; with `published`, that of releasing x^K + w^K as well."""
    outside = _outside(mechanism, rounds, published)
    if outside:
        return outside
    logs = _log_rounds(mechanism, rounds)
    if published:
        logs = np.append(logs, _log_published(mechanism, rounds)[-1:])
    spent = total(logs, mechanism.why_infinite())
    return spent.with_tail(mechanism.log2_delta(rounds, published=published))


def publish_term(mechanism: Releases, rounds: int) -> Epsilon | Unsupported:
    """What releasing the result after K rounds adds; for DPP² that of x^K + w^K, √d·α·a_{K−1}/(u_w r^K)."""
    added = mechanism.log_published(rounds)
    return added if isinstance(added, Unsupported) else total(added[-1:], mechanism.why_infinite())


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
    """Why there is no ε of these rounds, or none of publishing their result."""
    added = mechanism.log_published(0) if published else None
    return added if isinstance(added, Unsupported) else mechanism.unsupported_reason(rounds)


def _log_rounds(mechanism: Releases, rounds: int) -> Array:
    """ln of what each round costs: its messages together."""
    return reduce(np.logaddexp, mechanism.log_releases(rounds))


def _log_published(mechanism: Releases, rounds: int) -> Array:
    """ln of what releasing the result after K rounds costs, for K = 0 … `rounds`."""
    added = mechanism.log_published(rounds)
    assert not isinstance(added, Unsupported)  # `_outside` has asked
    return added
