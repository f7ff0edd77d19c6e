"""f_i(x) = Σ_t (x_t² + 3 sin² x_t) + b_iᵀx: the sum is Polyak–Łojasiewicz and yet not convex.

The tilts make the agents disagree: b_i = tilt · (c_i − c_{i+1 mod N}) with standard normal c_i, drawn per
agent. They telescope to zero over the network, so Σ f_i = N Σ_t (x_t² + 3 sin² x_t), with its only
stationary point at the origin and ‖∇f‖² ≥ 2ν (f − f*), ν = N/32. An agent draws two c's, its own and its
successor's, and no others. f_i'' = 2 + 6 cos 2x_t runs from −4 to 8, so M_i = 8 is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from dpp2.arrays import Array
from dpp2.problems.base import DATA, LARGEST, OneSample, ProblemSection, agent_rng


class SineSection(ProblemSection):
    public_keys = ("name", "dimension")

    name: Literal["sine"] = "sine"
    dimension: int = Field(10, ge=1, le=10**6, description="a whole number from 1 to 1,000,000")
    tilt: float = Field(1.0, ge=0, le=LARGEST, description="a number from 0 to 1e100")

    def data_identity(self, agent: int, agents: int, outside: bytes = b"") -> bytes:
        """How many agents there are decides what each one holds."""
        return super().data_identity(agent, agents, outside) + b" of %d" % agents

    def objective(self, owned: Sequence[int], agents: int) -> Sine:
        tilts = np.stack([self._draw(agent) - self._draw((agent + 1) % agents) for agent in owned])
        return Sine(self.tilt * tilts)

    def _draw(self, agent: int) -> Array:
        return agent_rng(self.drawing_seed(), DATA, agent).standard_normal(self.dimension)


@dataclass(frozen=True, eq=False)
class Sine(OneSample):
    tilts: Array  # (n, d)

    @property
    def dimension(self) -> int:
        return int(self.tilts.shape[1])

    @property
    def smoothness(self) -> Array:
        return np.full(len(self.tilts), 8.0)

    def __call__(self, x: Array) -> tuple[Array, Array]:
        sine = np.sin(x)
        value = (x * x + 3 * sine * sine + self.tilts * x).sum(axis=1)
        return value, 2 * x + 3 * np.sin(2 * x) + self.tilts
