"""The primal–dual method of Yi et al. (2021) for nonconvex problems. Surety: good.

    x⁺ = x − η (γ P x + ω v + g)
    v⁺ = v + η ω P x,    v⁰ = 0, so that Σ v = 0 for ever
Exact. The published method has no noise (u_x = 0, the default); with x^a = x + Lap(u_x r^k) sent and in the place of x
everywhere but in g it is PPDC without noise on v (see `ppdc`), and still exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from dpp2.algorithms.accounts import step_releases
from dpp2.algorithms.base import AlgorithmSection, Broadcast, NoiseSection, NoisyProgram, Private, Round, Setup
from dpp2.algorithms.noise import XNoise, laplace
from dpp2.arrays import Array
from dpp2.keys import SILENCE, Noise
from dpp2.privacy.accountant import Releases
from dpp2.schedule import Schedule


class YiSection(AlgorithmSection):
    noise_section = XNoise
    phases = ("xa",)
    noises: ClassVar[tuple[str, ...]] = ("noise_x",)
    scalars = ()
    step = "eta"

    name: Literal["yi"] = "yi"
    gamma: float = Field(5.0, gt=0, description="a number > 0")
    omega: float = Field(5.0, gt=0, description="a number > 0")
    eta: float = Field(0.2, gt=0, description="a number > 0")

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        assert isinstance(noise, XNoise)
        return step_releases(noise, dimension, adjacency, smoothness, Schedule(self.eta))

    def program(self, setup: Setup, noise: NoiseSection) -> PrimalDual:
        assert isinstance(noise, XNoise)
        return PrimalDual(self, setup, noise_x=laplace("x", noise.u_x, noise.decay, setup))


@dataclass(frozen=True, eq=False)
class PrimalDualState:
    x: Array
    v: Array


class PrimalDual(NoisyProgram):
    """With noise on x, which is sent, and on v, which is not."""

    def __init__(self, section: YiSection, setup: Setup, **noise: Callable[[int], Noise]) -> None:
        super().__init__(setup.objective, **noise)
        self.gamma, self.omega, self.eta = section.gamma, section.omega, section.eta

    def start(self, x0: Array) -> PrimalDualState:
        return PrimalDualState(x=x0, v=np.zeros_like(x0))

    def round(self, s: PrimalDualState, k: int) -> Round:
        noise = self.drawn(k)
        xa, va = s.x + noise["noise_x"], s.v + noise.get("noise_v", SILENCE)
        Lxa = yield Broadcast("xa", xa)
        f, grad = self.objective(s.x)
        state = PrimalDualState(
            x=xa - self.eta * (self.gamma * Lxa + self.omega * va + grad),
            v=va + self.eta * self.omega * Lxa,
        )
        return state, Private(f, grad, noise, scalars={})
