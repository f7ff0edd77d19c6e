"""PPDC (Xie et al. 2025) without its compression: Yi's primal–dual method with noise.

    x^a = x + ξ,  v^a = v + ζ,    ξ ~ Lap(u_x r^k),  ζ ~ Lap(u_v r^k)
    x⁺ = x^a − η (γ P x^a + ω v^a + g)
    v⁺ = v^a + η ω P x^a,    v⁰ = 0
Only x^a is sent. Source: the DPP² paper names the method and its parameters; where the noise goes is reconstructed.
The ζ add up in Σ v, so with u_v > 0 the limit is off; u_v = 0 is exact.

*Its ε.* Fix the messages x^a and leave ζ as it is: v is then the same in both worlds, and only −η g differs in the next
x, whatever u_v. Moving ζ instead, so that ω v^a absorbs the gradient, would cost √d·2δ/(ω u_v r^k) a round, which is
less only where ηω > 2u_x/u_v or so; with the defaults ηω = 0.05, and the noise on v buys nothing.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dpp2.algorithms.declared import Tunable
from dpp2.algorithms.noise import DECAY, Scale, XNoise, scale_field
from dpp2.algorithms.yi import YiSection


class PpdcNoise(XNoise):
    """Defaults: those of the DPP² paper's Fig. 3."""

    scales = ("u_x", "u_v")
    without_epsilon = ("u_v",)  # v is never sent
    tunables = (DECAY, Tunable("u_v", 0.0, 2.0, "linear", relative=True, least=0.0))

    u_x: Scale = scale_field(1.0)
    u_v: Scale = scale_field(1.0)


class PpdcSection(YiSection):
    noise_section = PpdcNoise
    noises = ("noise_x", "noise_v")

    name: Literal["ppdc"] = "ppdc"  # type: ignore[assignment]  # another tag, the same program
    gamma: float = Field(65.0, gt=0, description="a number > 0")
    omega: float = Field(5.0, gt=0, description="a number > 0")
    eta: float = Field(0.01, gt=0, description="a number > 0")
