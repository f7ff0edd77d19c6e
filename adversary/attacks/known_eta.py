"""Known η: a participant undoes tier one, ŝ = (y − (1−η)D)/t and D ← D + ŝ, exactly and from the first message on.

What is left is the noise: x̂ = x + w, and ĝ = ∇f + e for neighbours all of whose own neighbours are heard too.
"""

from __future__ import annotations

from dpp2.adversary.attacks.algebra import Messages, gradient, replay
from dpp2.adversary.attacks.base import Attack, Estimate, lacks_messages, only
from dpp2.adversary.views import View


class KnownEta(Attack):
    name = "known-eta"
    summary = "Undoes the mixing with the η that every participant knows."
    algebra = "two tiers"

    def needs(self, view: View) -> str | None:
        known = "needs η, which only participants know" if view.knowledge.eta is None else None
        return lacks_messages(view) or known

    def made_for(self, view: View) -> bool:
        return super().made_for(view) and view.knowledge.eta is not None

    def run(self, view: View) -> Estimate:
        assert view.knowledge.eta is not None
        messages, first = Messages.of(view), view.observation.first
        eta = view.knowledge.eta[first : first + len(messages.y)]
        s, D = replay(messages.y, eta, messages.t)
        return Estimate(
            self.name, x=only(view, s), grad=only(view, gradient(messages, view.knowledge.rho, s, D)), eta=eta
        )
