"""Which noise, or how many rounds, fit a budget: solves ε ≤ budget exactly, or says why nothing does.

ε falls as the decay r or the scale u grows and rises with every round, so each question has one answer: the
smallest r, the smallest common factor on (u_e, u_w), the largest K. r and the factor are bisected over the
bit patterns of positive float64 numbers, which are ordered like the numbers themselves; the search ends at
two neighbouring floats, one over budget and one within. What is returned has been through the accountant as
it stands, so running with it spends ε ≤ budget, and not less than (1 − 1e-9)·budget unless `reason` says
that the answer was cut off. (One ulp of r moves ε by about 1e-16·K relative, so this resolution is there up
to several million rounds.)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpp2.errors import BadInput
from dpp2.privacy.accountant import epsilon, largest_rounds
from dpp2.privacy.epsilon_value import LN10, Epsilon, Unsupported
from dpp2.privacy.releases import Releases

Unknown = Literal["decay", "scale", "rounds"]

# A little inside float64's range, so that no product on the way leaves it.
_SMALLEST = 4 * float(np.finfo(np.float64).tiny)
_LARGEST = float(np.finfo(np.float64).max) / 4
_BEYOND = 300.0  # log10 of an ε beside which nothing else counts


@dataclass(frozen=True)
class Calibration:
    """The answer. Where feasible, `mechanism` over `rounds` rounds spends `epsilon`, which fits the budget.

    Where it is not, `epsilon` is the smallest ε that any value of the unknown reaches, and `reason` says so.
    """

    solved: Unknown
    feasible: bool
    mechanism: Releases  # with the decay or scales found, if any
    rounds: int
    epsilon: Epsilon
    factor: float = 1.0  # what all scales were multiplied by
    reason: str | None = None  # why infeasible, or why a feasible answer leaves budget unspent

    @property
    def decay(self) -> float:
        """Of mechanisms whose noise decays; 1 for all others."""
        return float(getattr(self.mechanism, "decay", 1.0))


def calibrate(
    mechanism: Releases,
    budget: float,
    solve: Unknown,
    *,
    rounds: int | None = None,
    published: bool = False,
    most_rounds: int = 1_000_000,
) -> Calibration | Unsupported:
    """Solve ε(mechanism, rounds) ≤ budget for the decay, a common factor on all scales, or the rounds.

    `rounds` is required unless it is what is solved for; the mechanism's own decay is ignored when that is
    solved for. `published` counts the release of x^K + w^K in.
    """
    if not (math.isfinite(budget) and budget > 0):
        raise BadInput("epsilon", budget, "a finite number > 0")
    outside = mechanism.unsupported_reason(rounds or 1)
    if outside:
        return outside
    if solve == "rounds":
        return _solve_rounds(mechanism, budget, published, most_rounds)
    if rounds is None or rounds < 1:
        raise BadInput("rounds", rounds, f"a whole number ≥ 1 when the {solve} is asked for")
    if solve == "decay":
        return _solve_decay(mechanism, budget, rounds, published)
    if solve == "scale":
        return _solve_scale(mechanism, budget, rounds, published)
    raise BadInput("solve", solve, "decay, scale or rounds")


def _solve_decay(mechanism: Releases, budget: float, rounds: int, published: bool) -> Calibration:
    def spent(r: float) -> Epsilon:
        return _epsilon(mechanism.changed(decay=r), rounds, published)

    def answer(r: float, reason: str | None = None, feasible: bool = True) -> Calibration:
        return Calibration("decay", feasible, mechanism.changed(decay=r), rounds, spent(r), reason=reason)

    least = spent(1.0)
    if not least.fits(budget):
        return answer(1.0, f"even decay = 1, noise that never shrinks, spends {_shown(least)}", feasible=False)
    if rounds == 1 and not published:
        return answer(1.0, "with one round the decay does not matter: every decay spends the same")
    if spent(_SMALLEST).fits(budget):
        return answer(_SMALLEST, "the smallest decay that float64 holds is within the budget already")
    return answer(_smallest_within(lambda r: spent(r).fits(budget), _SMALLEST, 1.0))


def _solve_scale(mechanism: Releases, budget: float, rounds: int, published: bool) -> Calibration:
    def answer(factor: float, reason: str | None = None, feasible: bool = True) -> Calibration:
        spent = _epsilon(mechanism.scaled(factor), rounds, published)
        return Calibration("scale", feasible, mechanism.scaled(factor), rounds, spent, factor, reason)

    unscaled = _epsilon(mechanism, rounds, published)
    if unscaled.value == 0:
        return answer(1.0, "so few rounds release nothing that depends on the data")
    if math.isinf(unscaled.log10):
        return answer(1.0, f"no factor helps: {unscaled.reason}; the smallest ε is ∞", feasible=False)
    u = [scale for name in mechanism.scales if (scale := getattr(mechanism, name)) > 0]
    lowest, highest = max(_SMALLEST, _SMALLEST / min(u)), min(_LARGEST, _LARGEST / max(u))

    def fits(factor: float) -> bool:
        return _epsilon(mechanism.scaled(factor), rounds, published).fits(budget)

    if not fits(highest):
        least = _epsilon(mechanism.scaled(highest), rounds, published)
        grid = f" (its grid of {mechanism.bits} bits costs that much at any scale)" if mechanism.bits else ""
        return answer(highest, f"the largest noise that float64 holds spends {_shown(least)}{grid}", feasible=False)
    if fits(lowest):
        return answer(lowest, "the smallest noise that float64 holds is within the budget already")
    # ε is proportional to 1/factor, but for what a grid costs at any scale: the bracket is known up to rounding, and
    # bisection settles the last bits.
    fixed = _epsilon(mechanism.scaled(highest), rounds, published).value or 0.0
    share = fixed * 10.0**-unscaled.log10 if unscaled.log10 < _BEYOND else 0.0
    log_guess = (unscaled.log10 - math.log10(budget - fixed)) * LN10 + (math.log1p(-share) if share < 1 else 0.0)
    guess = math.exp(min(max(log_guess, math.log(lowest)), math.log(highest)))
    low, high = max(lowest, guess * (1 - 1e-6)), min(highest, guess * (1 + 1e-6))
    if fits(low) or not fits(high):
        low, high = lowest, highest
    return answer(_smallest_within(fits, low, high))


def _solve_rounds(mechanism: Releases, budget: float, published: bool, most: int) -> Calibration:
    def answer(K: int, reason: str | None = None, feasible: bool = True) -> Calibration:
        return Calibration("rounds", feasible, mechanism, K, _epsilon(mechanism, K, published), reason=reason)

    found = largest_rounds(mechanism, budget, most, published=published)
    assert isinstance(found, int)  # the caller has asked already
    if found == 0:
        least = _epsilon(mechanism, 1, published)
        return answer(1, f"a single round spends {_shown(least)}", feasible=False)
    cut_off = f"the search ends at {most} rounds; more would fit" if found == most else None
    return answer(found, cut_off)


def _epsilon(mechanism: Releases, rounds: int, published: bool) -> Epsilon:
    spent = epsilon(mechanism, rounds, published=published)
    assert isinstance(spent, Epsilon)  # the caller has asked already
    return spent


def _shown(least: Epsilon) -> str:
    number = f"ε = {least.value:.10g}" if least.value is not None else f"ε = {least}"
    why = f" ({least.reason})" if least.reason else ""
    return f"{number}{why}, the smallest that is feasible"


def _smallest_within(fits: Callable[[float], bool], low: float, high: float) -> float:
    """The positive float next above a failing one, given that `low` fails and `high` fits."""
    below, within = _bits(low), _bits(high)
    while within - below > 1:
        middle = (below + within) // 2
        if fits(_number(middle)):
            within = middle
        else:
            below = middle
    return _number(within)


def _bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def _number(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])
