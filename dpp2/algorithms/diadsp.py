"""DiaDSP (Ding, Zhu, He, Chen and Guan 2022): gradient tracking with its state and its direction perturbed.

    x⁺ = W (x + ζ) − α y
    y⁺ = W (y + ξ) + g⁺ − g,    ζ ~ Lap(u_x r^k),  ξ ~ Lap(u_y r^k)
Source: the DPP² paper names the method and its parameters, not its equations; these are reconstructed, with both noisy
values mixed everywhere, the agent's own among them. Surety: fair. The ξ add up in Σ y, so the limit is off by their sum
and convergence is to a neighbourhood. Defaults: those of the DPP² paper's Fig. 3.

*Its ε* is that of `TrackingReleases`, for adjacency as everywhere here. The published account assumes more, namely that
∇f − ∇f' is the same vector at every point; it then cancels in g⁺ − g, and less is spent.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dpp2.algorithms.gradient_tracking import GradientTrackingSection, TrackingNoise
from dpp2.algorithms.noise import Scale, scale_field


class DiadspNoise(TrackingNoise):
    u_x: Scale = scale_field(2.0)
    u_y: Scale = scale_field(5.0)


class DiadspSection(GradientTrackingSection):
    noise_section = DiadspNoise
    with_noise_it_is = None

    name: Literal["diadsp"] = "diadsp"  # type: ignore[assignment]  # another tag, the same program
    alpha: float = Field(0.01, gt=0, description="a number > 0")
