"""Direct read: takes every message for what it looks like; for DPP² x̂ = y/t and ĝ = z.

Exact for x where both tiers are off. Tier one adds (1−η)D to y, which grows with k; z carries q = ρPD whatever
the tiers, so ĝ is off everywhere, and its relative error tends to 1 as z vanishes at a stationary point.
"""

from __future__ import annotations

from dpp2.adversary.attacks.base import Attack, Estimate, only
from dpp2.adversary.views import View


class Direct(Attack):
    name = "direct"
    summary = "Reads the messages as if nothing had been done to them."

    def needs(self, view: View) -> str | None:
        if not view.agents:
            return "no agent was overheard"
        algorithm = view.knowledge.algorithm
        if algorithm.x_phase is None and algorithm.gradient_phase is None:
            return f"nothing that {algorithm.own_name} sends stands for an iterate or a gradient"
        return None

    def made_for(self, view: View) -> bool:
        return bool(view.knowledge.algorithm.x_phase or view.knowledge.algorithm.gradient_phase)

    def run(self, view: View) -> Estimate:
        phases, algorithm = view.observation.phases, view.knowledge.algorithm
        x = phases[algorithm.x_phase] / view.knowledge.t if algorithm.x_phase else None
        grad = phases[algorithm.gradient_phase] if algorithm.gradient_phase else None
        return Estimate(self.name, x=only(view, x), grad=only(view, grad))
