"""Decentralised gradient descent. Source: textbook (Nedić and Ozdaglar 2009).

    x⁺ = W x^a − α_k ∇f(x),    x^a = x + Lap(u_x r^k) sent,    W = I − P,    α_k = α/(1 + k)^power
With a constant step it stops at distance O(α) from the optimum, with a shrinking one it gets there slowly. The textbook
method has no noise (u_x = 0, the default); where it is switched on, an agent mixes the same x^a that it sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from dpp2.algorithms.accounts import step_releases
from dpp2.algorithms.base import (
    AlgorithmSection,
    Broadcast,
    NoiseSection,
    NoisyProgram,
    Private,
    Round,
    Setup,
    check_mixing,
)
from dpp2.algorithms.noise import XNoise, laplace
from dpp2.arrays import Array
from dpp2.privacy.accountant import Releases
from dpp2.schedule import Schedule
from dpp2.weights import Spectrum


class DgdSection(AlgorithmSection):
    noise_section = XNoise
    phases = ("xa",)
    noises = ("noise_x",)
    scalars = ()

    name: Literal["dgd"] = "dgd"
    alpha: float = Field(0.2, gt=0, description="a number > 0")
    power: float = Field(0.7, ge=0, description="a number ≥ 0 (0: a constant step)")

    @property
    def steps(self) -> Schedule:
        return Schedule(self.alpha, slowdown=1.0, power=self.power)

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_mixing(eigenvalues)

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        assert isinstance(noise, XNoise)
        return step_releases(noise, dimension, adjacency, smoothness, self.steps)

    def program(self, setup: Setup, noise: NoiseSection) -> Dgd:
        assert isinstance(noise, XNoise)
        return Dgd(self, noise, setup)


@dataclass(frozen=True, eq=False)
class DgdState:
    x: Array


class Dgd(NoisyProgram):
    def __init__(self, section: DgdSection, noise: XNoise, setup: Setup) -> None:
        super().__init__(setup.objective, noise_x=laplace("x", noise.u_x, noise.decay, setup))
        self.alpha = section.steps

    def start(self, x0: Array) -> DgdState:
        return DgdState(x0)

    def round(self, s: DgdState, k: int) -> Round:
        noise = self.drawn(k)
        xa = s.x + noise["noise_x"]
        Lxa = yield Broadcast("xa", xa)
        f, grad = self.objective(s.x)
        return DgdState(xa - Lxa - self.alpha(k) * grad), Private(f, grad, noise, scalars={})
