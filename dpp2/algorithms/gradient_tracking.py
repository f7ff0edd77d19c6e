"""Gradient tracking (DIGing). Source: textbook (Nedić, Olshevsky and Shi 2017; Qu and Li 2018).

    x⁺ = W x − α y
    y⁺ = W y + g⁺ − g,    y⁰ = g⁰,    W = I − P
Exact with a constant step, because Σ y = Σ g is kept in every round. Computed as y = v + g with v⁺ = W y − g and
v⁰ = 0, which is the same and takes one gradient a round, at the point where the round begins.

With noise, x^a = x + Lap(u_x r^k) and y^a = y + Lap(u_y r^k) are sent and mixed, while the step uses y itself; that is
DiaDSP (see `diadsp`). The textbook method has none (the default).
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
from dpp2.algorithms.noise import LaplaceNoise, Scale, scale_field
from dpp2.arrays import Array
from dpp2.privacy.accountant import Releases
from dpp2.weights import Spectrum


class TrackingNoise(LaplaceNoise):
    scales = ("u_x", "u_y")

    u_x: Scale = scale_field(0.0)
    u_y: Scale = scale_field(0.0)


class TrackingSection(AlgorithmSection):
    """What sends x and the tracked gradient y, both with noise."""

    noises = ("noise_x", "noise_y")
    scalars = ()

    alpha: float = Field(0.01, gt=0, description="a number > 0")

    def mechanisms(
        self, noise: NoiseSection, dimension: int, adjacency: float, smoothness: Array
    ) -> Sequence[Releases]:
        return tracking_releases(noise, dimension, adjacency, smoothness, self.alpha)


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
        xa = s.x + noise["noise_x"]
        Lxa = yield Broadcast("xa", xa)
        f, grad = self.objective(s.x)
        y = s.v + grad
        ya = y + noise["noise_y"]
        Lya = yield Broadcast("ya", ya)
        state = TrackingState(x=xa - Lxa - alpha * y, v=ya - Lya - grad)
        return state, Private(f, grad, noise, scalars={})


class GradientTrackingSection(TrackingSection):
    noise_section: ClassVar[type[NoiseSection]] = TrackingNoise
    phases = ("xa", "ya")
    program_class = GradientTracking

    name: Literal["gradient-tracking"] = "gradient-tracking"

    def check(self, eigenvalues: Spectrum, rounds: int) -> None:
        check_mixing(eigenvalues)
