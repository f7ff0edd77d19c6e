"""Persistent Gaussian noise in one shared variable, after Wang and Başar (2023). Surety: surrogate.

The weakening template of `wang_nedic` with noise N(0, σ²) that never decays; one message a round. Only the template
is known here, not the published update: it stands for the class of methods that bear persistent noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dpp2.algorithms.base import AgentContext, Draw, NoiseSection
from dpp2.algorithms.noise import Scale, gaussian, per_agent, scale_field
from dpp2.algorithms.wang_nedic import WangNedicSection
from dpp2.arrays import Array
from dpp2.privacy.baselines import GaussianStepReleases
from dpp2.privacy.releases import Releases


class WangBasarNoise(NoiseSection):
    scales = ("sigma",)

    sigma: Scale = scale_field(1.0)

    def streams(self, context: AgentContext) -> dict[str, Draw]:
        return {"noise_x": gaussian("x", self.sigma, self.grid, context)}


class WangBasarSection(WangNedicSection):
    noise_section = WangBasarNoise

    name: Literal["wang-basar"] = "wang-basar"  # type: ignore[assignment]  # another tag, the same program

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        """Gaussian noise has no pure ε; (ε, δ_dp) is in the reason."""
        assert isinstance(noise, WangBasarNoise)
        sigmas = per_agent(noise.sigma, len(smoothness)).tolist()
        return [
            GaussianStepReleases(
                dimension=dimension,
                smoothness=M,
                adjacency=adjacency,
                sigma=sigma,
                memory=self.memory,
                steps=self.steps,
                bits=noise.grid,
            )
            for M, sigma in zip(smoothness.tolist(), sigmas, strict=True)
        ]
