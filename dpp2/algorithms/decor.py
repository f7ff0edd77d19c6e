"""DECOR (Allouah, Koloskova, El Firdoussi, Jaggi and Guerraoui, ICML 2024): decentralised SGD with correlated noise.

    x^{½} = x − γ_k (∇f(x) + v̄ + Σ_j sgn(j − i) v_ij) sent
    v̄ ~ N(0, σ_cdp²) drawn by i alone,    v_ij ~ N(0, σ_cor²) by both ends of the edge
    x⁺ = W x^{½},    W = I − P,    γ_k = γ/(1 + k)^power
Surety: good for the update and for who draws which noise, from memory of the paper; it was not at hand. Left out or
ours: the paper takes stochastic, clipped gradients, here they are whole (`privacy.clip` clips each record); edge noise
comes from the secrets of `dpp2.edge_keys`, where the paper has seeds exchanged beforehand; how γ_k falls is ours.
In `[noise]`, own is σ_cdp and ratio is σ_cor/σ_cdp. Beside DPP³: a gradient in every round, and W mixes once. So edge
noise is still there when the next gradient is taken, and a large ratio costs accuracy here where it is free there.

*Account*, by the machinery of DPP³ (`privacy.correlated`; the paper has Rényi's, on the same matrix): x⁰ is public and
W x^{½} a function of the messages, so every round releases ∇f(x) + noise at a point that both worlds share: exact GDP
by effective resistance, against `privacy.colluders`. x^K costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

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
from dpp2.algorithms.cancelling_noise import LARGEST_RATIO, CancellingNoise, released
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.arrays import Array
from dpp2.privacy.cancelling_releases import EveryRoundReleases
from dpp2.privacy.correlated import NoiseNetwork
from dpp2.privacy.releases import Releases
from dpp2.schedule import Schedule
from dpp2.weights import Spectrum

if TYPE_CHECKING:
    from dpp2.experiment import Experiment


class DecorNoise(CancellingNoise):
    tunables = (Tunable("ratio", 0.01, 100.0, most=LARGEST_RATIO),)

    ratio: float = Field(
        5.0,
        ge=0,
        le=LARGEST_RATIO,
        description="a number from 0 to 100,000: σ_cor/σ_cdp",
    )


@dataclass(frozen=True, eq=False)
class DecorState:
    x: Array


class Decor(NoisyProgram):
    section: DecorSection

    def __init__(self, section: DecorSection, context: AgentContext, noise: Mapping[str, Draw], g: float) -> None:
        super().__init__(section, context, noise)
        self.g = g

    def start(self, x0: Array) -> DecorState:
        return DecorState(x0)

    def round(self, s: DecorState, k: int) -> Round:
        noise, gamma = self.drawn(k), self.section.steps
        f, grad = self.objective(s.x)
        x_half = s.x - gamma(k) * released(grad, noise, self.g)
        Lx_half = yield Broadcast("x_half", x_half)
        return DecorState(x_half - Lx_half), Private(f, grad, noise, scalars={})

    def published(self, s: DecorState, k: int) -> Array:
        """x^K as it is."""
        return s.x


class DecorSection(AlgorithmSection):
    noise_section = DecorNoise
    phases = ("x_half",)
    noises = ("own", "edge")
    scalars = ()
    step = "gamma"
    publishes = True
    result_is_covered = True
    needs_smoothness = False
    edge_noise = True
    releases = (EveryRoundReleases,)
    x_phase = "x_half"
    algebra = "one message"
    tunables = (Tunable("gamma", 1e-3, 10.0), Tunable("power", 0.0, 1.0, "linear", least=0.0))

    name: Literal["decor"] = "decor"
    gamma: float = Field(0.02, gt=0, description="a number > 0: the first step")
    power: float = Field(0.5, ge=0, description="a number ≥ 0 (0: a constant step)")

    @property
    def steps(self) -> Schedule:
        return Schedule(self.gamma, slowdown=1.0, power=self.power)

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_mixing(eigenvalues)

    def settled(self, experiment: Experiment) -> Experiment:
        """x⁰ public, and own noise that keeps ε = privacy.budget (none given: 1) over run.rounds."""
        from dpp2.algorithms.cancelling_scales import own_scale, public_start  # SciPy's graphs: for those who resolve

        noise, rounds = experiment.noise, experiment.run.rounds
        assert isinstance(noise, DecorNoise)
        experiment = replace(experiment, run=experiment.run.updated(start=public_start(experiment)))
        if noise.own is None:
            noise = noise.updated(own=own_scale(experiment, noise, experiment.network.graph(), rounds))
        return replace(experiment, noise=noise)

    def accounts(
        self, experiment: Experiment, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        from dpp2.algorithms.cancelling_scales import accounts

        return accounts(experiment, dimension, adjacency, EveryRoundReleases)

    def noise_network(self, experiment: Experiment) -> NoiseNetwork:
        assert isinstance(experiment.noise, DecorNoise)
        return experiment.noise.network(experiment.network.graph())

    def steady(self) -> tuple[DecorSection, float]:
        return self.updated(power=0.0), self.gamma

    def remarks(self, experiment: Experiment) -> Iterator[str]:
        from dpp2.algorithms.cancelling_scales import remarks

        yield from remarks(experiment)

    def recovered(self, heard: Heard) -> Recovered:
        """x⁺ = Wm outright, and g = (x − m)/γ_k under its noise."""
        m, Pm, _, k = heard.only()
        x = np.concatenate([np.full_like(m[:1], np.nan), (m - Pm)[:-1]])
        return Recovered(x, (x - m) * (1 + k) ** self.power / self.gamma)

    def program(self, context: AgentContext, noise: NoiseSection) -> Decor:
        assert isinstance(noise, DecorNoise)
        return Decor(self, context, noise.streams(context), noise.g)
