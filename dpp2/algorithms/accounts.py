"""Sections into what the accountants ask for: one description of the releases per agent."""

from __future__ import annotations

from dpp2.algorithms.base import NoiseSection
from dpp2.algorithms.noise import XNoise, one_for_alike, per_agent
from dpp2.arrays import Array
from dpp2.privacy.baselines import StepReleases, TrackingReleases
from dpp2.privacy.releases import Memory
from dpp2.schedule import Schedule


def step_releases(
    noise: XNoise, dimension: int, adjacency: float, smoothness: Array, steps: Schedule, memory: Memory = "none"
) -> list[StepReleases]:
    """Of an algorithm that sends x + noise and takes one gradient step a round."""
    scales = _listed(noise, smoothness, "u_x", "decay")

    def releases(M: float, u_x: float, r: float) -> StepReleases:
        return StepReleases(
            dimension=dimension,
            smoothness=M,
            adjacency=adjacency,
            u_x=u_x,
            decay=r,
            memory=memory,
            steps=steps,
            bits=noise.grid,
        )

    return one_for_alike(releases, smoothness.tolist(), *scales)


def tracking_releases(
    noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array, alpha: float
) -> list[TrackingReleases]:
    """Of gradient tracking with x + noise and y + noise sent."""
    scales = _listed(noise, smoothness, "u_x", "u_y", "decay")

    def releases(M: float, u_x: float, u_y: float, r: float) -> TrackingReleases:
        return TrackingReleases(
            dimension=dimension,
            alpha=alpha,
            smoothness=M,
            adjacency=adjacency,
            u_x=u_x,
            u_y=u_y,
            decay=r,
            bits=noise.grid,
        )

    return one_for_alike(releases, smoothness.tolist(), *scales)


def _listed(noise: NoiseSection, smoothness: Array, *keys: str) -> list[list[float]]:
    """These settings, each with one entry per agent."""
    return [per_agent(getattr(noise, key), len(smoothness)).tolist() for key in keys]
