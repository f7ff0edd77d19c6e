"""Tracked: gradient tracking tells how the gradient changes in every round, and where it began.

y⁺ = W y^a + g⁺ − g and y⁰ = g⁰, with y^a = y + ξ sent, so
    ĝ^k = y^{a,0} + Σ_{j<k} (y^{a,j+1} − W y^{a,j}) = g^k + Σ_{j≤k} ξ^j
    x̂^{k+1} = W x^{a,k} − α y^{a,k} = x^{k+1} − α ξ^k
Exact without noise. With noise x̂ is off by αξ, not by the noise on x, which therefore hides x⁰ only; and ĝ is off by a
sum of ξ that soon stands still: the same constant for every later round of an agent, so that changes of its gradient
are recovered. PGTC sends differences to references that everybody can follow; its compression adds an error.
"""

from __future__ import annotations

import numpy as np

from adversary.attacks.algebra import mix
from adversary.attacks.base import Attack, Estimate, lacks_parameters, lacks_start, only
from adversary.views import View
from dpp2.arrays import Array

_TRACKING = ("gradient-tracking", "diadsp", "pgtc")


class Tracked(Attack):
    name = "tracked"
    summary = "Adds up the changes of the tracked gradient, and takes the public step for x."

    def needs(self, view: View) -> str | None:
        if view.knowledge.algorithm not in _TRACKING:
            return f"rests on gradient tracking, but {view.knowledge.algorithm} was run"
        if not view.agents:
            return "no agent was overheard"
        return lacks_start(view) or lacks_parameters(view)

    def run(self, view: View) -> Estimate:
        phases, P, p = view.observation.phases, view.observation.P, view.knowledge.parameters
        if view.knowledge.algorithm == "pgtc":
            xa, ya = (_uncompressed(phases[name], p["psi"]) for name in ("cx", "cy"))
        else:
            xa, ya = phases["xa"], phases["ya"]
        gamma = p.get("gamma", 1.0)
        mixed_x, mixed_y = xa - gamma * mix(P, xa), ya - gamma * mix(P, ya)
        grad = np.cumsum(np.concatenate([ya[:1], ya[1:] - mixed_y[:-1]]), axis=0)
        x = np.concatenate([xa[:1], (mixed_x - p["alpha"] * ya)[:-1]])
        return Estimate(self.name, x=only(view, x), grad=only(view, grad))


def _uncompressed(sent: Array, psi: float) -> Array:
    """Reference + message; the reference is ψ times all messages before."""
    return np.asarray(psi * (np.cumsum(sent, axis=0) - sent) + sent)
