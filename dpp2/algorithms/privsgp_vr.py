"""PrivSGP-VR (Zhu et al. 2024): stochastic gradient push with variance reduction and Gaussian noise. Surety: fair.

    s uniform among the agent's m samples
    v = ∇f_is(x) − T_s + (1/m) Σ_t T_t,    T_s ← ∇f_is(x)        SAGA; the table T starts with the gradients at x⁰
    x^{½} = x − γ (v + n) sent,    n ~ N(0, σ²)
    x⁺ = W x^{½},    W = I − P
Push-sum weights are needed on directed graphs; with a symmetric doubly stochastic W they stay 1 and are left out. Which
sample is drawn is a function of (run key, agent, round), like noise, so that a replayed round is the same. The full
gradient is evaluated for the metrics alone. With a constant γ it converges to a neighbourhood.
On a grid: x is equal in both worlds, so v + n is what is released, and v is rounded once.

*No ε*: if one record changes ∇f_i by δ, its own gradient changes by mδ, and when it is drawn v changes by up to
‖Δ∇f_is − (1 − 1/m)ΔT_s‖ ≤ (2m − 1)δ. The published (ε, δ_dp) gains from drawing it seldom and in secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from dpp2.algorithms.base import (
    AgentContext,
    AlgorithmSection,
    Broadcast,
    Draw,
    NoiseSection,
    NoisyProgram,
    Private,
    Round,
    check_mixing,
)
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.algorithms.noise import Scale, gaussian, indices, scale_field
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy.baselines import Unaccounted
from dpp2.privacy.releases import Releases
from dpp2.problems.base import Sampled
from dpp2.weights import Spectrum

_NO_PURE = (
    "Gaussian noise has no pure ε; and v changes by up to (2m − 1)δ in a round that draws the one of m records that "
    "differs: no (ε, δ_dp) here accounts for how rarely that happens"
)


class PrivsgpVrNoise(NoiseSection):
    scales = ("sigma",)

    sigma: Scale = scale_field(0.1)

    def streams(self, context: AgentContext) -> dict[str, Draw]:
        return {"noise_g": gaussian("g", self.sigma, self.grid, context)}


@dataclass(frozen=True, eq=False)
class PrivsgpVrState:
    """table: (agents, m, d), the last gradient that each sample was seen with."""

    x: Array
    table: Array


class PrivsgpVr(NoisyProgram):
    section: PrivsgpVrSection

    def __init__(self, section: PrivsgpVrSection, context: AgentContext, noise: Mapping[str, Draw]) -> None:
        super().__init__(section, context, noise)
        if not isinstance(context.objective, Sampled):
            accepted = "one that takes whole gradients: the objectives of this problem offer no single samples"
            raise BadInput("algorithm.name", section.name, accepted)
        self.samples = context.objective
        self.counts = self.samples.sample_counts()
        self.sample = indices("sample", self.counts, context)

    def start(self, x0: Array) -> PrivsgpVrState:
        return PrivsgpVrState(x=x0, table=self.samples.sample_gradients(x0))

    def round(self, s: PrivsgpVrState, k: int) -> Round:
        noise = self.drawn(k)
        seen = np.arange(len(s.x)), self.sample(k)
        fresh = self.samples.sample_gradients(s.x)[seen]
        v = fresh - s.table[seen] + s.table.sum(axis=1) / self.counts[:, None]
        x_half = s.x - self.section.gamma * self.noise["noise_g"].add(k, v)
        Lx_half = yield Broadcast("x_half", x_half, self.covers(k, noise_g=v))
        table = s.table.copy()
        table[seen] = fresh
        f, grad = self.objective(s.x)
        return PrivsgpVrState(x=x_half - Lx_half, table=table), Private(f, grad, noise, scalars={})


class PrivsgpVrSection(AlgorithmSection):
    noise_section = PrivsgpVrNoise
    phases = ("x_half",)
    noises = ("noise_g",)
    scalars = ()
    program_class = PrivsgpVr
    step = "gamma"
    tunables = (Tunable("gamma", 1e-4, 1.0),)
    x_phase = "x_half"
    algebra = "one message"

    name: Literal["privsgp-vr"] = "privsgp-vr"
    gamma: float = Field(0.01, gt=0, description="a number > 0")

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_mixing(eigenvalues)

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        return [Unaccounted(reason=_NO_PURE)] * len(smoothness)

    def recovered(self, heard: Heard) -> Recovered:
        """x⁺ = Wm outright, and g = (x − m)/γ, up to the noise and the sample that was drawn."""
        m, Pm, _, _ = heard.only()
        x = np.concatenate([np.full_like(m[:1], np.nan), (m - Pm)[:-1]])
        return Recovered(x, (x - m) / self.gamma)
