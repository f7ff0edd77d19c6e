"""Gradient descent with a weakening of the coupling, after Wang and Nedić (2024). Surety: surrogate.

    x⁺ = Π_X [x − χ_k Σ_j p_ij m_j − λ_k g],    m = x + Lap(u_x r^k) sent
    χ_k = chi/(1 + slowdown·k)^chi_power,    λ_k = alpha/(1 + slowdown·k)^alpha_power
The published update is x + χ_k Σ_j w_ij (m_j − x_i); with P that is the same but for m_i in the place of x_i, which the
agent knows as well, and which puts its own noise under χ_k too. It is made for noise that does not decay (r = 1, the
default): χ_k takes it away in time, if Σχ = Σλ = ∞, Σλ²/χ < ∞ and Σχ²r^{2k} < ∞. With the default powers all four hold.
Without a radius there is no projection.
On a grid: x goes on as it is, not rounded, so Δx⁺ = Δx − λ_k Δg as before; only m carries the rounding, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from dpp2.algorithms.base import Broadcast, NoiseSection, NoisyProgram, Private, Round, check_mixing
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.algorithms.noise import Decay, Scale, XNoise, decay_field, scale_field
from dpp2.algorithms.projection import onto_ball
from dpp2.algorithms.steps import StepSection
from dpp2.arrays import Array
from dpp2.schedule import Schedule
from dpp2.weights import Spectrum


class WangNedicNoise(XNoise):
    u_x: Scale = scale_field(1.0)
    decay: Decay = decay_field(1.0)


@dataclass(frozen=True, eq=False)
class WeakeningState:
    x: Array


class Weakening(NoisyProgram):
    section: WangNedicSection

    def start(self, x0: Array) -> WeakeningState:
        return WeakeningState(x0)

    def round(self, s: WeakeningState, k: int) -> Round:
        noise, steps, coupling = self.drawn(k), self.section.steps, self.section.coupling
        Lxa = yield Broadcast("xa", self.noise["noise_x"].add(k, s.x), self.covers(k, noise_x=s.x))
        f, grad = self.objective(s.x)
        x = s.x - coupling(k) * Lxa - steps(k) * grad
        x = x if self.section.radius is None else onto_ball(x, self.section.radius)
        return WeakeningState(x), Private(f, grad, noise, scalars={})


class WangNedicSection(StepSection):
    noise_section: ClassVar[type[NoiseSection]] = WangNedicNoise
    program_class = Weakening
    memory = "own"  # x itself goes on into the next x
    tunables = (
        Tunable("alpha", 1e-3, 10.0),
        Tunable("alpha_power", 0.0, 1.0, "linear", least=0.0),
        Tunable("chi", 0.05, 1.0),
        Tunable("chi_power", 0.0, 1.0, "linear", least=0.0),
        Tunable("slowdown", 0.05, 5.0),
    )

    name: Literal["wang-nedic"] = "wang-nedic"
    alpha: float = Field(0.2, gt=0, description="a number > 0: the first λ_k")
    alpha_power: float = Field(1.0, ge=0, description="a number ≥ 0")
    chi: float = Field(0.5, gt=0, description="a number > 0: the first χ_k, below 2/λ_max(P)")
    chi_power: float = Field(0.9, ge=0, description="a number ≥ 0")
    slowdown: float = Field(0.5, ge=0, description="a number ≥ 0")
    radius: float | None = Field(None, gt=0, description="a number > 0 (default: no projection)")

    @property
    def steps(self) -> Schedule:
        return Schedule(self.alpha, slowdown=self.slowdown, power=self.alpha_power)

    @property
    def coupling(self) -> Schedule:
        return Schedule(self.chi, slowdown=self.slowdown, power=self.chi_power)

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_mixing(eigenvalues, self.chi)

    def recovered(self, heard: Heard) -> Recovered:
        """g = (m − m⁺ − χ_k Pm)/λ_k"""
        m, Pm, after, k = heard.only()
        slower = 1 + self.slowdown * k
        chi, step = self.chi / slower**self.chi_power, self.alpha / slower**self.alpha_power
        return Recovered(m, (m - after - chi * Pm) / step)
