"""f_i(x) = (1/2m) ‖A_i x − b_i‖²: Polyak–Łojasiewicz always, strongly convex only if the sum has full rank.

    A_i = G_i Qᵀ,   b_i = A_i x★ + noise · ε_i       (G_i: m × rank and ε_i standard normal, drawn per agent)
Q (d × rank, orthonormal) and x★ are drawn once for all agents. Every A_i has its row space inside that of
Qᵀ, so for rank < d the sum is flat along the d − rank directions orthogonal to Q, however many agents
there are. M_i = λ_max(A_iᵀA_i/m) is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import Field

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.problems.base import DATA, LARGEST, SHARED, Counts, ProblemSection, agent_rng, row_norms, slope_limits
from dpp2.problems.logistic import data_smoothness


class LeastSquaresSection(ProblemSection):
    public_keys = ("name", "dimension", "samples")
    affine_gradient = True

    name: Literal["least-squares"] = "least-squares"
    dimension: int = Field(10, ge=1, le=10**6, description="a whole number from 1 to 1,000,000")
    samples: int = Field(20, ge=1, le=10**6, description="a whole number from 1 to 1,000,000")
    rank: int | None = Field(None, ge=1, description="a whole number from 1 to dimension (default: dimension)")
    noise: float = Field(0.1, ge=0, le=LARGEST, description="a number from 0 to 1e100")

    def resolve(self, agents: int) -> Self:
        if self.rank is None:
            return self.updated(rank=self.dimension)
        if self.rank > self.dimension:
            raise BadInput("problem.rank", self.rank, f"a whole number from 1 to dimension = {self.dimension}")
        return self

    def objective(self, owned: Sequence[int], agents: int) -> LeastSquares:
        basis, planted = self._shared()
        drawn = [self._draw(agent, basis, planted) for agent in owned]
        return LeastSquares(np.stack([a for a, _ in drawn]), np.stack([b for _, b in drawn]))

    def _shared(self) -> tuple[Array, Array]:
        """Q and x★; Q = I where nothing is deficient, so that full rank means plain standard normal A_i."""
        rng = agent_rng(self.drawing_seed(), SHARED, 0)
        planted = rng.standard_normal(self.dimension)
        if self.rank is None or self.rank == self.dimension:
            return np.eye(self.dimension), planted
        return np.linalg.qr(rng.standard_normal((self.dimension, self.rank)))[0], planted

    def _draw(self, agent: int, basis: Array, planted: Array) -> tuple[Array, Array]:
        rng = agent_rng(self.drawing_seed(), DATA, agent)
        a = rng.standard_normal((self.samples, basis.shape[1])) @ basis.T
        return a, a @ planted + self.noise * rng.standard_normal(self.samples)


@dataclass(frozen=True, eq=False)
class LeastSquares:
    a: Array  # (n, m, d)
    b: Array  # (n, m)
    limits: Array | None = None  # (n, m): the largest residual of each record in the gradient, where it is clipped

    @property
    def dimension(self) -> int:
        return int(self.a.shape[2])

    @cached_property
    def smoothness(self) -> Array:
        return 4 * data_smoothness(self.a)  # that one carries the ¼ of the logistic loss

    def __call__(self, x: Array) -> tuple[Array, Array]:
        residual = np.matmul(self.a, x[:, :, None])[:, :, 0] - self.b
        slope = residual / residual.shape[1]
        value = 0.5 * np.einsum("nm,nm->n", slope, residual)
        if self.limits is not None:
            slope = self._clipped(residual) / residual.shape[1]
        return value, np.matmul(slope[:, None, :], self.a)[:, 0, :]

    def clipped(self, bound: float) -> LeastSquares:
        return replace(self, limits=slope_limits(row_norms(self.a), bound))

    def sample_counts(self) -> Counts:
        agents, m, _ = self.a.shape
        return np.full(agents, m, dtype=np.intp)

    def sample_gradients(self, x: Array) -> Array:
        residual = np.matmul(self.a, x[:, :, None])[:, :, 0] - self.b
        return np.asarray(self._clipped(residual)[:, :, None] * self.a)

    def _clipped(self, residual: Array) -> Array:
        return residual if self.limits is None else np.clip(residual, -self.limits, self.limits)
