"""Prox-GPDA (Hong, Hajinezhad and Zhao 2017). Source: textbook, on a weighted graph.

Published, with degrees D and adjacency A:
    x⁺ = (2βD)⁻¹ [β(D + A) x − g − λ],    λ⁺ = λ + β(D − A) x⁺,    λ⁰ = 0
Since D + A = 2D − (D − A), the first line is x − (2βD)⁻¹ [β(D − A) x + g + λ]. Here P stands for D − A, and the
multiple 1/α of the identity for 2βD:
    x⁺ = x − α [β P x + g + λ],    λ⁺ = λ + β P x⁺
On a regular graph of degree n with plain weights and α = 1/(2βn) this is the published iteration to the letter;
elsewhere every agent takes the same step instead of one that shrinks with its degree. P x⁺ is what the next round hears
anyway, so λ is brought up to date there and one message a round is enough. Exact. The textbook method has no noise
(u_x = 0, the default); where it is switched on, x^a = x + Lap(u_x r^k) takes the place of x everywhere but in g.
On a grid: x^a, P x^a and λ are equal in both worlds, so Δx⁺ = −α Δg, and x is rounded once, when it is released.
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
from dpp2.schedule import Schedule


@dataclass(frozen=True, eq=False)
class ProxGpdaState:
    """lam: λ of the round before."""

    x: Array
    lam: Array


class ProxGpda(NoisyProgram):
    section: ProxGpdaSection

    def start(self, x0: Array) -> ProxGpdaState:
        return ProxGpdaState(x=x0, lam=np.zeros_like(x0))

    def round(self, s: ProxGpdaState, k: int) -> Round:
        noise, alpha, beta = self.drawn(k), self.section.alpha, self.section.beta
        xa = self.noise["noise_x"].add(k, s.x)
        Lxa = yield Broadcast("xa", xa, self.covers(k, noise_x=s.x))
        f, grad = self.objective(s.x)
        penalty = beta * Lxa
        lam = s.lam + penalty if k else s.lam  # λ⁰ = 0 knows nothing of x⁰
        state = ProxGpdaState(x=xa - alpha * (penalty + lam) - alpha * grad, lam=lam)
        return state, Private(f, grad, noise, scalars={})


class ProxGpdaSection(StepSection):
    program_class = ProxGpda
    tunables = (Tunable("alpha", 1e-3, 1.0), Tunable("beta", 0.1, 100.0))

    name: Literal["prox-gpda"] = "prox-gpda"
    alpha: float = Field(0.1, gt=0, description="a number > 0")
    beta: float = Field(7.0, gt=0, description="a number > 0")

    @property
    def steps(self) -> Schedule:
        return Schedule(self.alpha)

    def recovered(self, heard: Heard) -> Recovered:
        """g = (m − m⁺)/α − βPm − β Σ_{1≤j≤k} Pm^j"""
        m, Pm, after, _ = heard.only()
        lam = self.beta * (np.cumsum(Pm, axis=0) - Pm[0])
        return Recovered(m, (m - after) / self.alpha - self.beta * Pm - lam)
