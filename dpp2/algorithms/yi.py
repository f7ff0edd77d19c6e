"""The primal–dual method of Yi et al. (2021) for nonconvex problems. Surety: good.

    x⁺ = x − η (γ P x + ω v + g)
    v⁺ = v + η ω P x,    v⁰ = 0, so that Σ v = 0 for ever
Exact. The published method has no noise (u_x = 0, the default); with x^a = x + Lap(u_x r^k) sent and in the place of x
everywhere but in g it is PPDC without noise on v (see `ppdc`), and still exact.
On a grid: x^a, P x^a and v are equal in both worlds, so Δx⁺ = −η Δg, and x is rounded once, when it is released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from dpp2.algorithms.base import Broadcast, NoisyProgram, Private, Round
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.algorithms.steps import StepSection
from dpp2.arrays import Array
from dpp2.keys import SILENCE
from dpp2.schedule import Schedule


@dataclass(frozen=True, eq=False)
class PrimalDualState:
    x: Array
    v: Array


class PrimalDual(NoisyProgram):
    """With noise on x, which is sent, and on v, which is not."""

    section: YiSection

    def start(self, x0: Array) -> PrimalDualState:
        return PrimalDualState(x=x0, v=np.zeros_like(x0))

    def round(self, s: PrimalDualState, k: int) -> Round:
        noise, gamma, omega, eta = self.drawn(k), self.section.gamma, self.section.omega, self.section.eta
        xa, va = self.noise["noise_x"].add(k, s.x), s.v + noise.get("noise_v", SILENCE)
        Lxa = yield Broadcast("xa", xa, self.covers(k, noise_x=s.x))
        f, grad = self.objective(s.x)
        state = PrimalDualState(x=xa - eta * (gamma * Lxa + omega * va) - eta * grad, v=va + eta * omega * Lxa)
        return state, Private(f, grad, noise, scalars={})


class YiSection(StepSection):
    program_class = PrimalDual
    step = "eta"
    tunables = (Tunable("eta", 1e-3, 1.0), Tunable("gamma", 0.1, 100.0), Tunable("omega", 0.1, 100.0))

    name: Literal["yi"] = "yi"
    gamma: float = Field(5.0, gt=0, description="a number > 0")
    omega: float = Field(5.0, gt=0, description="a number > 0")
    eta: float = Field(0.2, gt=0, description="a number > 0")

    @property
    def steps(self) -> Schedule:
        return Schedule(self.eta)

    def recovered(self, heard: Heard) -> Recovered:
        """g = (m − m⁺)/η − γPm − ηω² Σ_{j<k} Pm^j; noise on v adds up in it and stays."""
        m, Pm, after, _ = heard.only()
        v = self.eta * self.omega * (np.cumsum(Pm, axis=0) - Pm)
        return Recovered(m, (m - after) / self.eta - self.gamma * Pm - self.omega * v)
