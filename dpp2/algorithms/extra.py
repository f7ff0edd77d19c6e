"""EXTRA. Source: textbook (Shi, Ling, Wu and Yin 2015).

    x¹ = W x⁰ − α g⁰
    x^{k+2} = (I + W) x^{k+1} − ½(I + W) x^k − α (g^{k+1} − g^k),    W = I − P
Exact with a constant step. One message a round: what the next round needs of this one is kept, h = ½(I + W) x^k and
g^k; x⁰ (with noise x^a) in the place of h and 0 in that of g make the first step the same line as all others. The
textbook method has no noise (u_x = 0, the default); where it is switched on, x^a = x + Lap(u_x r^k) is sent and mixed,
the noise adds up in Σ_i x_i and the limit is off by it.
On a grid: h is equal in both worlds and kept apart from g, so Δx⁺ = −α(Δg^{k+1} − Δg^k), and x is rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from dpp2.algorithms.base import Broadcast, NoisyProgram, Private, Round, check_mixing
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.algorithms.steps import StepSection
from dpp2.arrays import Array
from dpp2.schedule import Schedule
from dpp2.weights import Spectrum


@dataclass(frozen=True, eq=False)
class ExtraState:
    """half, grad: ½(I + W) x^a and the gradient of the round before; half is without meaning before round 0."""

    x: Array
    half: Array
    grad: Array


class Extra(NoisyProgram):
    section: ExtraSection

    def start(self, x0: Array) -> ExtraState:
        return ExtraState(x=x0, half=x0, grad=np.zeros_like(x0))

    def round(self, s: ExtraState, k: int) -> Round:
        noise, alpha = self.drawn(k), self.section.alpha
        xa = self.noise["noise_x"].add(k, s.x)
        Lxa = yield Broadcast("xa", xa, self.covers(k, noise_x=s.x))
        f, grad = self.objective(s.x)
        half = xa - Lxa / 2  # ½(I + W) x^a
        before = s.half if k else xa
        state = ExtraState(x=2 * half - before - alpha * (grad - s.grad), half=half, grad=grad)
        return state, Private(f, grad, noise, scalars={})


class ExtraSection(StepSection):
    program_class = Extra
    tunables = (Tunable("alpha", 1e-3, 1.0),)
    memory = "difference"  # the state carries the last gradient, so two in a row differ between the worlds

    name: Literal["extra"] = "extra"
    alpha: float = Field(0.08, gt=0, description="a number > 0")

    @property
    def steps(self) -> Schedule:
        return Schedule(self.alpha)

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_mixing(eigenvalues)

    def recovered(self, heard: Heard) -> Recovered:
        """αg = Σ_{j≤k} (2h^j − m^{j+1}) − Σ_{j<k} h^j − m⁰,    h = m − ½Pm"""
        m, Pm, after, _ = heard.only()
        half = m - Pm / 2
        left = 2 * half - after
        left[1:] -= half[:-1]
        left[0] -= m[0]
        return Recovered(m, np.cumsum(left, axis=0) / self.alpha)
