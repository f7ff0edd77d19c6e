"""The smallest understatement of ε that a game would have caught: how sharp an instrument it is.

An account that claims too little is caught where a measured pair of error rates lies below everything that it admits,
or where the guesses prove more than it claims. So ε is claimed smaller and smaller, until that happens.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

from dpp2.adversary.bounds import Curve, TradeOff
from dpp2.privacy import Unsupported

FACTORS = (1.02, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.6, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0)
MOST = 100.0  # whatever takes more is not worth a sentence
Claim = Callable[[float], Curve | Unsupported]  # what an account admits that says ε/factor


def smallest_caught(curve: TradeOff, claim: Claim, epsilon: float, proven: float) -> float:
    """By what factor ε must have been understated to be caught; ∞ where the game catches nothing."""
    by_guesses = epsilon / proven if proven > epsilon / MOST else math.inf
    tried = [factor for factor in FACTORS if factor < by_guesses]

    def is_caught(factor: float) -> bool:
        claimed = claim(factor)
        return not isinstance(claimed, Unsupported) and not curve.keeps(claimed)

    # If a claim is caught, so is every bolder one: each trial settles half of the factors that are left.
    first = bisect_left(tried, True, key=is_caught)
    return tried[first] if first < len(tried) else by_guesses
