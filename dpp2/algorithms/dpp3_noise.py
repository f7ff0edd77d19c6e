"""The noise of DPP³: `cancelling_noise`, Gaussian or Laplace; Laplace noise may be held by a few, or in shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from dpp2.algorithms.cancelling_noise import LARGEST_RATIO, CancellingNoise
from dpp2.algorithms.declared import Tunable
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy.correlated import Kind


class Dpp3Noise(CancellingNoise):
    """Scales that are left out are solved for: `dpp3_defaults`."""

    tunables = (Tunable("ratio", 1.0, 1000.0, most=LARGEST_RATIO),)
    pure: ClassVar[Mapping[str, str]] = {"kind": "laplace"}

    kind: Literal["gaussian", "laplace"] = Field("gaussian", description='"gaussian" or "laplace"')
    holders: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, description="agents with own noise, for Laplace noise (default: chosen; Gaussian: everybody)"
    )
    quorum: int | None = Field(
        None, ge=1, description="a whole number ≥ 1: so many holders carry Lap(own) together (default: chosen)"
    )

    @property
    def law(self) -> Kind:
        return self.kind

    @property
    def shares(self) -> int:
        return self.quorum or 1

    def check(self, agents: int) -> None:
        super().check(agents)
        if self.holders is not None and not all(agent < agents for agent in self.holders):
            raise BadInput("noise.holders", self.holders, f"agents from 0 to {agents - 1}")
        if self.kind == "gaussian" and (self.holders is not None or self.shares > 1):
            raise BadInput("noise.kind", self.kind, '"laplace" where holders or a quorum are given')
        holders = max(self._holders(agents), 1)
        if self.shares > holders:
            raise BadInput("noise.quorum", self.quorum, f"at most {holders}, the number of agents with own noise")

    def _holders(self, agents: int) -> int:
        return int(np.count_nonzero(self.updated(own=1.0 if self.own is None else self.own).own_scales(agents)))

    def own_scales(self, agents: int) -> Array:
        """0 for those that hold none."""
        scales = super().own_scales(agents)
        if self.holders is not None:
            scales[np.isin(np.arange(agents), self.holders, invert=True)] = 0.0
        return scales
