"""PGTC (Xie et al. 2025): gradient tracking with noise and compressed messages. Surety: low.

    x^a = x + ζ,    c_x = C(x^a − x^c) sent,    x̂ = x^c + c_x,    x^c ← x^c + ψ c_x
    x⁺ = x^a − γ P x̂ − α y
and likewise y^a, c_y, ŷ, y^c and y⁺ = y^a − γ P ŷ + g⁺ − g. Source: the DPP² paper says that DiaDSP is PGTC without its
compression; the rest is reconstructed from compressed gradient tracking with reference states x^c, y^c, which start at
0. With C the identity and γ = 1 this is DiaDSP to the letter. A neighbour's reference is never sent: everybody adds up
P x^c = Σ ψ P c_x from what arrives. As in `gradient_tracking`, y = v + g with one gradient a round.

*Its ε* is DiaDSP's, with and without a grid: c_x is computed from x^a and from earlier messages, so it tells no more
than x^a, and compression comes after the noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from dpp2.algorithms.base import AgentContext, Broadcast, Draw, NoisyProgram, Private, Round, check_mixing
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.algorithms.diadsp import DiadspNoise
from dpp2.algorithms.gradient_tracking import TrackingSection
from dpp2.arrays import Array
from dpp2.compression import Compressor, Everything, Quantised, TopK
from dpp2.weights import Spectrum


@dataclass(frozen=True, eq=False)
class PgtcState:
    """v = y − ∇f(x); xc, yc: the references; Lxc, Lyc: P times them."""

    x: Array
    v: Array
    xc: Array
    yc: Array
    Lxc: Array
    Lyc: Array


class Pgtc(NoisyProgram):
    def __init__(self, section: PgtcSection, context: AgentContext, noise: Mapping[str, Draw]) -> None:
        super().__init__(section, context, noise)
        self.alpha, self.gamma, self.psi = section.alpha, section.gamma, section.psi
        self.compress = section.compression

    def start(self, x0: Array) -> PgtcState:
        nothing = np.zeros_like(x0)
        return PgtcState(x0, nothing, nothing, nothing, nothing, nothing)

    def round(self, s: PgtcState, k: int) -> Round:
        noise = self.drawn(k)
        f, grad = self.objective(s.x)
        y = s.v + grad
        xa, ya = self.noise["noise_x"].add(k, s.x), self.noise["noise_y"].add(k, y)
        cx = self.compress(xa - s.xc)
        Lcx = yield Broadcast("cx", cx, self.covers(k, noise_x=s.x, noise_y=y))
        cy = self.compress(ya - s.yc)
        Lcy = yield Broadcast("cy", cy)
        state = PgtcState(
            x=xa - self.gamma * (s.Lxc + Lcx) - self.alpha * y,
            v=ya - self.gamma * (s.Lyc + Lcy) - grad,
            xc=s.xc + self.psi * cx,
            yc=s.yc + self.psi * cy,
            Lxc=s.Lxc + self.psi * Lcx,
            Lyc=s.Lyc + self.psi * Lcy,
        )
        return state, Private(f, grad, noise, scalars={})


class PgtcSection(TrackingSection):
    noise_section = DiadspNoise
    phases = ("cx", "cy")
    x_phase, gradient_phase = "cx", "cy"
    program_class = Pgtc
    tunables = (*TrackingSection.tunables, Tunable("gamma", 0.05, 1.0), Tunable("psi", 0.05, 1.0, most=1.0))

    name: Literal["pgtc"] = "pgtc"
    gamma: float = Field(1.0, gt=0, description="a number > 0 and below 2/λ_max(P)")
    psi: float = Field(1.0, gt=0, le=1, description="a number in (0, 1]")
    compressor: Literal["top-k", "quantised", "none"] = Field("quantised", description='"top-k", "quantised" or "none"')
    keep: int = Field(5, ge=1, description="a whole number ≥ 1: how many entries top-k keeps")
    bits: int = Field(4, ge=2, le=16, description="a whole number from 2 to 16: what a quantised entry takes")

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_mixing(eigenvalues, self.gamma)

    @property
    def compression(self) -> Compressor:
        if self.compressor == "none":
            return Everything()
        return TopK(self.keep) if self.compressor == "top-k" else Quantised(self.bits)

    def encoding(self, phase: str, agent: int) -> Compressor:
        return self.compression

    def recovered(self, heard: Heard) -> Recovered:
        """What is sent are differences to references that everybody can follow; compression adds an error."""
        xa, ya = (self._uncompressed(heard.phases[phase]) for phase in self.phases)
        return self.added_up(xa, ya, xa - self.gamma * heard.mix(xa), ya - self.gamma * heard.mix(ya))

    def _uncompressed(self, sent: Array) -> Array:
        """Reference + message; the reference is ψ times all messages before."""
        return np.asarray(self.psi * (np.cumsum(sent, axis=0) - sent) + sent)
