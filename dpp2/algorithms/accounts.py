"""Sections into what the accountants ask for: one description of the releases per agent."""

from __future__ import annotations

from dpp2.algorithms.base import NoiseSection
from dpp2.algorithms.noise import XNoise, per_agent
from dpp2.arrays import Array
from dpp2.privacy.baselines import StepReleases, TrackingReleases
from dpp2.privacy.releases import Memory
from dpp2.schedule import Schedule


def step_releases(
    noise: XNoise, dimension: int, adjacency: float, smoothness: Array, steps: Schedule, memory: Memory = "none"
) -> list[StepReleases]:
    """Of an algorithm that sends x + noise and takes one gradient step a round."""
    scales = _listed(noise, smoothness, "u_x", "decay")
    return [
        StepReleases(
            dimension=dimension,
            smoothness=M,
            adjacency=adjacency,
            u_x=u_x,
            decay=r,
            memory=memory,
            steps=steps,
            bits=noise.grid,
        )
        for M, u_x, r in zip(smoothness.tolist(), *scales, strict=True)
    ]


def tracking_releases(
    noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array, alpha: float
) -> list[TrackingReleases]:
    """Of gradient tracking with x + noise and y + noise sent."""
    scales = _listed(noise, smoothness, "u_x", "u_y", "decay")
    return [
        TrackingReleases(
            dimension=dimension,
            alpha=alpha,
            smoothness=M,
            adjacency=adjacency,
            u_x=u_x,
            u_y=u_y,
            decay=r,
            bits=noise.grid,
        )
        for M, u_x, u_y, r in zip(smoothness.tolist(), *scales, strict=True)
    ]


def _listed(noise: NoiseSection, smoothness: Array, *keys: str) -> list[list[float]]:
    """These settings, each with one entry per agent."""
    return [per_agent(getattr(noise, key), len(smoothness)).tolist() for key in keys]
