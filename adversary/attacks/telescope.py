"""Telescope: x̂^k = y⁰/t + Σ_{j<k} i_j, from round 0 on and without η.

y⁰ goes out unmixed (D⁰ = 0) and every increment is public, so this is exact whenever there is no noise: tier one alone
protects nothing. With noise the error is that of w⁰ + Σ (αe^j + w^{j+1}) less w^k. The gradient follows from
D^k = Σ_{j<k} x̂^j, which is exact as well.
"""

from __future__ import annotations

import numpy as np

from dpp2.adversary.attacks.algebra import Messages, gradient, lacks_followed
from dpp2.adversary.attacks.base import Attack, Estimate, lacks_messages, lacks_start, lacks_steps, only
from dpp2.adversary.views import View
from dpp2.arrays import Array


class Telescope(Attack):
    name = "telescope"
    summary = "Adds up the public increments, starting from the first message."
    algebra = "two tiers"

    def needs(self, view: View) -> str | None:
        return lacks_messages(view) or lacks_start(view) or lacks_steps(view) or lacks_followed(view)

    def run(self, view: View) -> Estimate:
        messages = Messages.of(view)
        x = messages.y[0] / messages.t + _before(messages.i)
        D = _before(x)
        return Estimate(
            self.name,
            x=only(view, x),
            grad=only(view, gradient(messages, view.knowledge.rho, x, D)),
            eta=_fitted_eta(messages, x, D),
        )


def _before(rows: Array) -> Array:
    """Sums over the rounds before each one."""
    total = np.zeros_like(rows)
    np.cumsum(rows[:-1], axis=0, out=total[1:])
    return total


def _fitted_eta(messages: Messages, s: Array, D: Array) -> Array:
    """η̂ = 1 − ⟨y − t s, D⟩/⟨D, D⟩ over the agents that were followed; none in round 0, where D = 0."""
    mixed, along = messages.flat(messages.y - messages.t * s), messages.flat(D)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - (mixed * along).sum(axis=1) / (along * along).sum(axis=1))
