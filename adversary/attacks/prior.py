"""Prior: no observation at all. The yardstick: whoever is not better than this has learnt nothing."""

from __future__ import annotations

import numpy as np

from dpp2.adversary.attacks.base import Attack, Estimate, only
from dpp2.adversary.views import View


class Prior(Attack):
    """x̂ = 0, ĝ = 0 and η̂ = ½: the means of what is public (a symmetric start, stationarity, η uniform in (0, 1))."""

    name = "prior"
    summary = "Guesses zero without listening; its relative error is 1 by definition."
    listens = False
    compared = False

    def needs(self, view: View) -> str | None:
        return None

    def run(self, view: View) -> Estimate:
        zero = only(view, np.zeros(view.observation.shape))
        eta = np.full(view.observation.shape[0], 0.5) if view.knowledge.algorithm.tier_one is not None else None
        return Estimate(self.name, x=zero, grad=zero, eta=eta)
