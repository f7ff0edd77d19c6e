"""DMSP (Huang, Mitra and Vaidya 2015). Surety: good.

    y = x + w sent,    w ~ Lap(u_x r^k)
    z = W y
    x⁺ = Π_X [z − γ_k ∇f(z)],    γ_k = c q^k,    X the ball of the given radius
The published noise at round t = k + 1 is Lap(2C√d·c·p^{t−1}/(ε(p − q))), C a bound on every gradient and q < p < 1:
that is decay r = p and u_x = 2C√d·c/(ε(p − q)). The gradient is taken at z, which the messages determine, so its
change alone enters the next x and ‖Δx^{k+1}‖ ≤ γ_k δ. The account then sums to √d·cδ/(u_x(p − q)) over all rounds that
there will ever be, which with δ = 2C is the published ε. The price: steps that shrink so fast end before the optimum.
On a grid: z is equal in both worlds, so Δx⁺ = −γ_k Δ∇f(z) at most, and x is rounded once, when it is released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from dpp2.algorithms.base import Broadcast, NoiseSection, NoisyProgram, Private, Round, check_mixing
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.algorithms.noise import Decay, Scale, XNoise, decay_field, scale_field
from dpp2.algorithms.projection import onto_ball
from dpp2.algorithms.steps import StepSection
from dpp2.arrays import Array
from dpp2.privacy.releases import Releases
from dpp2.schedule import Schedule
from dpp2.weights import Spectrum


class DmspNoise(XNoise):
    u_x: Scale = scale_field(1.0)
    decay: Decay = decay_field(0.99)


@dataclass(frozen=True, eq=False)
class DmspState:
    x: Array


class Dmsp(NoisyProgram):
    section: DmspSection

    def start(self, x0: Array) -> DmspState:
        return DmspState(x0)

    def round(self, s: DmspState, k: int) -> Round:
        noise, gamma, radius = self.drawn(k), self.section.steps, self.section.radius
        y = self.noise["noise_x"].add(k, s.x)
        Ly = yield Broadcast("y", y, self.covers(k, noise_x=s.x))
        z = y - Ly
        _, at_z = self.objective(z)
        f, grad = self.objective(s.x)  # for the metrics alone
        return DmspState(onto_ball(z - gamma(k) * at_z, radius)), Private(f, grad, noise, scalars={})


class DmspSection(StepSection):
    noise_section = DmspNoise
    phases = ("y",)
    program_class = Dmsp
    step = "c"
    x_phase = "y"
    needs_smoothness = False
    tunables = (
        Tunable("c", 1e-2, 100.0),
        Tunable("q", 0.02, 0.999, "linear", least=1e-6, most=1 - 1e-6),
        Tunable("radius", 1.0, 100.0),
    )

    name: Literal["dmsp"] = "dmsp"
    c: float = Field(1.0, gt=0, description="a number > 0: the first step")
    q: float = Field(0.985, gt=0, lt=1, description="a number in (0, 1), below noise.decay for a finite ε")
    radius: float = Field(10.0, gt=0, description="a number > 0")

    @property
    def steps(self) -> Schedule:
        return Schedule(self.c, ratio=self.q)

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_mixing(eigenvalues)

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        """How steep f is does not matter where both worlds share the point."""
        return super().mechanisms(noise, dimension, adjacency, np.zeros_like(smoothness))

    def recovered(self, heard: Heard) -> Recovered:
        """g = (Wm − m⁺)/γ_k, at the point Wm, which near consensus is x."""
        m, Pm, after, k = heard.only()
        return Recovered(m, (m - Pm - after) / (self.c * self.q**k))
