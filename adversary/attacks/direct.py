"""Direct read: takes every message for what it looks like; for DPP² x̂ = y/t and ĝ = z.

Exact for x where both tiers are off. Tier one adds (1−η)D to y, which grows with k; z carries q = ρPD whatever
the tiers, so ĝ is off everywhere, and its relative error tends to 1 as z vanishes at a stationary point.
"""

from __future__ import annotations

from adversary.attacks.base import Attack, Estimate, only
from adversary.views import View

# Phases of any algorithm that stand for the iterate, or for the gradient, up to noise and mixing.
_ITERATES = ("y", "xa", "x_half", "x_new", "cx")
_GRADIENTS = ("z", "ya", "d", "cy")


class Direct(Attack):
    name = "direct"
    summary = "Reads the messages as if nothing had been done to them."

    def needs(self, view: View) -> str | None:
        if not view.agents:
            return "no agent was overheard"
        phases = view.observation.phases
        if not any(phase in phases for phase in _ITERATES + _GRADIENTS):
            return f"nothing that {view.knowledge.algorithm} sends stands for an iterate or a gradient"
        return None

    def run(self, view: View) -> Estimate:
        phases = view.observation.phases
        x = next((phases[phase] / view.knowledge.t for phase in _ITERATES if phase in phases), None)
        grad = next((phases[phase] for phase in _GRADIENTS if phase in phases), None)
        return Estimate(self.name, x=only(view, x), grad=only(view, grad))
