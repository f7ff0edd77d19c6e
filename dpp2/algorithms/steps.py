"""What the algorithms have in common that send x + noise once a round and take one gradient step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from dpp2.algorithms.accounts import step_releases
from dpp2.algorithms.base import AlgorithmSection, NoiseSection
from dpp2.algorithms.noise import XNoise
from dpp2.arrays import Array
from dpp2.privacy.releases import Memory, Releases
from dpp2.schedule import Schedule


class StepSection(AlgorithmSection):
    noise_section: ClassVar[type[NoiseSection]] = XNoise
    phases: ClassVar[tuple[str, ...]] = ("xa",)
    noises: ClassVar[tuple[str, ...]] = ("noise_x",)
    scalars = ()
    x_phase = "xa"
    algebra = "one message"
    memory: ClassVar[Memory] = "none"  # what of earlier gradients, besides what was sent, the next x rests on

    @property
    @abstractmethod
    def steps(self) -> Schedule:
        """The step of every round."""

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        assert isinstance(noise, XNoise)
        return step_releases(noise, dimension, adjacency, smoothness, self.steps, self.memory)
