"""Gradient tracking (DIGing). Source: textbook (Nedić, Olshevsky and Shi 2017; Qu and Li 2018).

    x⁺ = W x − α y
    y⁺ = W y + g⁺ − g,    y⁰ = g⁰,    W = I − P
Exact with a constant step, because Σ y = Σ g is kept in every round. Computed as y = v + g with v⁺ = W y − g and
v⁰ = 0, which is the same and takes one gradient a round, at the point where the round begins.

With noise, x^a = x + Lap(u_x r^k) and y^a = y + Lap(u_y r^k) are sent and mixed, while the step uses y itself; that is
DiaDSP (see `diadsp`). The textbook method has none (the default).
On a grid: W x^a and W y^a are equal in both worlds. The step takes y and v takes g as they are, not rounded, so
Δx⁺ = −αΔy and Δy⁺ = Δg⁺ − Δg hold as before, and x and y are rounded once each, when they are released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from dpp2.algorithms.accounts import tracking_releases
from dpp2.algorithms.base import (
    AlgorithmSection,
    Broadcast,
    NoiseSection,
    NoisyProgram,
    Private,
    Round,
    check_mixing,
)
from dpp2.algorithms.declared import Heard, Recovered, Tunable
from dpp2.algorithms.noise import DECAY, LaplaceNoise, Scale, scale_field
from dpp2.arrays import Array
from dpp2.privacy.releases import Releases
from dpp2.weights import Spectrum


class TrackingNoise(LaplaceNoise):
    scales = ("u_x", "u_y")
    tunables = (DECAY, Tunable("u_y", 0.01, 100.0, relative=True))

    u_x: Scale = scale_field(0.0)
    u_y: Scale = scale_field(0.0)


class TrackingSection(AlgorithmSection):
    """What sends x and the tracked gradient y, both with noise."""

    noises = ("noise_x", "noise_y")
    scalars = ()
    algebra = "tracking"
    tunables: ClassVar[tuple[Tunable, ...]] = (Tunable("alpha", 1e-4, 1.0),)

    alpha: float = Field(0.01, gt=0, description="a number > 0")

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        return tracking_releases(noise, dimension, adjacency, smoothness, self.alpha)

    def added_up(self, xa: Array, ya: Array, mixed_x: Array, mixed_y: Array) -> Recovered:
        """What x^a and y^a say once they are mixed:

        ĝ^k = y^{a,0} + Σ_{j<k} (y^{a,j+1} − W y^{a,j}) = g^k + Σ_{j≤k} ξ^j
        x̂^{k+1} = W x^{a,k} − α y^{a,k} = x^{k+1} − α ξ^k
        """
        grad = np.cumsum(np.concatenate([ya[:1], ya[1:] - mixed_y[:-1]]), axis=0)
        return Recovered(np.concatenate([xa[:1], (mixed_x - self.alpha * ya)[:-1]]), grad)


@dataclass(frozen=True, eq=False)
class TrackingState:
    """v = y − ∇f(x)."""

    x: Array
    v: Array


class GradientTracking(NoisyProgram):
    section: GradientTrackingSection

    def start(self, x0: Array) -> TrackingState:
        return TrackingState(x=x0, v=np.zeros_like(x0))

    def round(self, s: TrackingState, k: int) -> Round:
        noise, alpha = self.drawn(k), self.section.alpha
        f, grad = self.objective(s.x)
        y = s.v + grad
        xa, ya = self.noise["noise_x"].add(k, s.x), self.noise["noise_y"].add(k, y)
        Lxa = yield Broadcast("xa", xa, self.covers(k, noise_x=s.x, noise_y=y))
        Lya = yield Broadcast("ya", ya)
        state = TrackingState(x=xa - Lxa - alpha * y, v=ya - Lya - grad)
        return state, Private(f, grad, noise, scalars={})


class GradientTrackingSection(TrackingSection):
    noise_section: ClassVar[type[NoiseSection]] = TrackingNoise
    phases = ("xa", "ya")
    x_phase, gradient_phase = "xa", "ya"
    program_class = GradientTracking

    with_noise_it_is: ClassVar[str | None] = "diadsp"

    name: Literal["gradient-tracking"] = "gradient-tracking"

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_mixing(eigenvalues)

    def recovered(self, heard: Heard) -> Recovered:
        xa, ya = heard.phases["xa"], heard.phases["ya"]
        return self.added_up(xa, ya, xa - heard.mix(xa), ya - heard.mix(ya))
