"""Decentralised gradient descent. Source: textbook (Nedić and Ozdaglar 2009).

    x⁺ = W x^a − α_k ∇f(x),    x^a = x + Lap(u_x r^k) sent,    W = I − P,    α_k = α/(1 + k)^power
With a constant step it stops at distance O(α) from the optimum, with a shrinking one it gets there slowly. The textbook
method has no noise (u_x = 0, the default); where it is switched on, an agent mixes the same x^a that it sent.
On a grid: W x^a is equal in both worlds, so Δx⁺ = −α_k Δ∇f, and x is rounded once, when it is released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from dpp2.algorithms.base import Broadcast, NoisyProgram, Private, Round, check_mixing
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.algorithms.steps import StepSection
from dpp2.arrays import Array
from dpp2.schedule import Schedule
from dpp2.weights import Spectrum


@dataclass(frozen=True, eq=False)
class DgdState:
    x: Array


class Dgd(NoisyProgram):
    section: DgdSection

    def start(self, x0: Array) -> DgdState:
        return DgdState(x0)

    def round(self, s: DgdState, k: int) -> Round:
        noise, alpha = self.drawn(k), self.section.steps
        xa = self.noise["noise_x"].add(k, s.x)
        Lxa = yield Broadcast("xa", xa, self.covers(k, noise_x=s.x))
        f, grad = self.objective(s.x)
        return DgdState(xa - Lxa - alpha(k) * grad), Private(f, grad, noise, scalars={})


class DgdSection(StepSection):
    program_class = Dgd
    tunables = (Tunable("alpha", 1e-3, 10.0), Tunable("power", 0.0, 1.0, "linear", least=0.0))

    name: Literal["dgd"] = "dgd"
    alpha: float = Field(0.2, gt=0, description="a number > 0")
    power: float = Field(0.7, ge=0, description="a number ≥ 0 (0: a constant step)")

    @property
    def steps(self) -> Schedule:
        return Schedule(self.alpha, slowdown=1.0, power=self.power)

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_mixing(eigenvalues)

    def recovered(self, heard: Heard) -> Recovered:
        """g = (Wm − m⁺)/α_k"""
        m, Pm, after, k = heard.only()
        return Recovered(m, (m - Pm - after) * (1 + k) ** self.power / self.alpha)
