"""f_i(x) = ½ c_i ‖x − b_i‖² with centres b_i drawn around the origin; c_i may be negative.

The simplest problem on which the algorithm's stability can be computed by hand, and the counterexample
(curvatures −1, −1, 3: the sum is convex, the paper's iteration diverges).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.problems.base import DATA, LARGEST, OneSample, ProblemSection
from dpp2.problems.draws import standard_normals

Curvature = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


class QuadraticSection(ProblemSection):
    public_keys = ("name", "dimension")
    affine_gradient = True

    name: Literal["quadratic"] = "quadratic"
    dimension: int = Field(10, ge=1, le=10**6, description="a whole number from 1 to 1,000,000")
    curvature: Curvature | list[Curvature] = Field(
        1.0, description="a number of at most 1e100 in size, or a list with one per agent"
    )
    spread: float = Field(1.0, ge=0, le=LARGEST, description="a number from 0 to 1e100")

    def objective(self, owned: Sequence[int], agents: int) -> Quadratic:
        if isinstance(self.curvature, list) and len(self.curvature) != agents:
            raise BadInput(
                "problem.curvature",
                self.curvature,
                f"one entry for each of the {agents} agents, not {len(self.curvature)}",
            )
        curvature = np.broadcast_to(self.curvature, agents)[np.asarray(owned)]
        centres = standard_normals(self.drawing_seed(), DATA, owned, self.dimension)
        return Quadratic(curvature[:, None], self.spread * centres)


@dataclass(frozen=True, eq=False)
class Quadratic(OneSample):
    curvature: Array  # (n, 1)
    centres: Array  # (n, d)

    @property
    def dimension(self) -> int:
        return int(self.centres.shape[1])

    @property
    def smoothness(self) -> Array:
        return np.abs(self.curvature[:, 0])

    def __call__(self, x: Array) -> tuple[Array, Array]:
        away = x - self.centres
        grad = self.curvature * away
        return 0.5 * np.einsum("nd,nd->n", grad, away), grad
