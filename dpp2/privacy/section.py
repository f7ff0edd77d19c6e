"""`[privacy]`: what the accountant is told, and the budget that a run must keep."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dpp2.errors import BadInput
from dpp2.schema import Section, Table

Positive = Annotated[float, Field(gt=0)]


class PrivacySection(Section):
    adjacency: Positive | Literal["record"] = Field(0.1, description='a number > 0, or "record"')
    feature_bound: float | None = Field(None, gt=0, description='a number > 0 (with adjacency = "record")')
    smoothness: float | None = Field(None, gt=0, description="a number > 0: a public bound on every M_i")
    budget: float | None = Field(None, gt=0, description="a number > 0: the most ε that an agent may spend")

    def digest_table(self) -> Table:
        """All but the budget: each agent has its own, and it decides when a run ends, not what it computes."""
        return {key: value for key, value in self.table().items() if key != "budget"}

    def check(self) -> None:
        """`feature_bound` and `adjacency = "record"` come together or not at all."""
        if self.adjacency == "record" and self.feature_bound is None:
            raise BadInput("privacy.feature_bound", None, 'a number > 0, which adjacency = "record" needs')
        if self.adjacency != "record" and self.feature_bound is not None:
            raise BadInput("privacy.feature_bound", self.feature_bound, 'adjacency = "record" beside it')
