"""What the account of a user's method is asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dpp2.algorithms.base import NoiseSection
from dpp2.algorithms.noise import per_agent
from dpp2.arrays import Array
from dpp2.privacy.baselines import StepReleases
from dpp2.privacy.releases import Memory
from dpp2.schedule import Schedule


class AccountedAgent:
    """What an account is asked about: one agent's parameters, noise, smoothness M_i and adjacency δ."""

    def __init__(self, parameters: Mapping[str, Any], scales: Mapping[str, float], **facts: Any) -> None:
        self.dimension: int = facts["dimension"]
        self.smoothness: float = facts["smoothness"]
        self.adjacency: float = facts["adjacency"]
        self.decay: float = facts["decay"]
        self.bits: int = facts["bits"]  # of the noise's grid
        self.parameters, self.scales = parameters, scales

    def __getattr__(self, name: str) -> Any:
        """A parameter (`agent.alpha`) or a first scale (`agent.u_x`)."""
        for known in (self.__dict__.get("parameters", {}), self.__dict__.get("scales", {})):
            if name in known:
                return known[name]
        raise AttributeError(name)

    def step_releases(self, steps: float | Schedule, memory: Memory = "none") -> StepReleases:
        """Of a method that sends x + noise once a round and takes a step along its gradient (`privacy.baselines`)."""
        return StepReleases(
            dimension=self.dimension,
            smoothness=self.smoothness,
            adjacency=self.adjacency,
            u_x=self.scales["u_x"],
            decay=self.decay,
            bits=self.bits,
            memory=memory,
            steps=steps if isinstance(steps, Schedule) else Schedule(steps),
        )


def accounted_agents(
    parameters: Mapping[str, Any], noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
) -> Iterable[AccountedAgent]:
    """One for each M_i in `smoothness`."""
    agents = len(smoothness)
    scales = {name: per_agent(getattr(noise, name), agents) for name in noise.scales}
    decay = per_agent(getattr(noise, "decay", 1.0), agents)
    for n, M in enumerate(smoothness.tolist()):
        own = {name: float(scale[n]) for name, scale in scales.items()}
        facts = {"smoothness": M, "decay": float(decay[n]), "bits": noise.grid}
        yield AccountedAgent(parameters, own, dimension=dimension, adjacency=adjacency, **facts)
