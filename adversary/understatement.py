"""The smallest understatement of ε that a game would have caught: how sharp an instrument it is.

An account that claims too little is caught where a measured pair of error rates lies below everything that it admits,
or where the guesses prove more than it claims. So ε is claimed smaller and smaller, as if there were `factor` times as
much noise, until that happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from adversary.bounds import Curve, TradeOff
from dpp2.privacy import Unsupported

FACTORS = (1.02, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.6, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0)
MOST = 100.0  # whatever takes more is not worth a sentence
Claim = Callable[[float], Curve | Unsupported]  # of a run with so many times the noise


def smallest_caught(curve: TradeOff, claim: Claim, epsilon: float, proven: float) -> float:
    """By what factor ε must have been understated to be caught; ∞ where the game catches nothing."""
    by_guesses = epsilon / proven if proven > epsilon / MOST else math.inf
    for factor in FACTORS:
        if factor >= by_guesses:
            break
        claimed = claim(factor)
        if not isinstance(claimed, Unsupported) and not curve.keeps(claimed):
            return factor
    return by_guesses
