"""Tracked: gradient tracking tells how the gradient changes in every round, and where it began.

y⁺ = W y^a + g⁺ − g and y⁰ = g⁰, with y^a = y + ξ sent, so
    ĝ^k = y^{a,0} + Σ_{j<k} (y^{a,j+1} − W y^{a,j}) = g^k + Σ_{j≤k} ξ^j
    x̂^{k+1} = W x^{a,k} − α y^{a,k} = x^{k+1} − α ξ^k
Exact without noise. With noise x̂ is off by αξ, not by the noise on x, which therefore hides x⁰ only; and ĝ is off by a
sum of ξ that soon stands still: the same constant for every later round of an agent, so that changes of its gradient
are recovered. PGTC sends differences to references that everybody can follow; its compression adds an error.
"""

from __future__ import annotations

from dpp2.adversary.attacks.solved import Solved


class Tracked(Solved):
    name = "tracked"
    summary = "Adds up the changes of the tracked gradient, and takes the public step for x."
    algebra = "tracking"
    rests_on = "gradient tracking"
