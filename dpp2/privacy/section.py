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
    clip: float | None = Field(None, gt=0, description='a number > 0 (with adjacency = "record")')
    smoothness: float | None = Field(None, gt=0, description="a number > 0: a public bound on every M_i")
    colluders: int | list[list[int]] = Field(
        1, description="a whole number ≥ 0, or a list of sets of agents: who may hand over all they know (dpp3)"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="a number > 0 and < 1: δ_dp of Gaussian noise (dpp3)")
    budget: float | None = Field(None, gt=0, description="a number > 0: the most ε that an agent may spend")

    def digest_table(self) -> Table:
        """All but what decides on the account alone, or on when a run ends: neither changes what it computes."""
        outside = ("budget", "colluders", "delta")
        return {key: value for key, value in self.table().items() if key not in outside}

    def check(self) -> None:
        """`adjacency = "record"` takes one bound on what a record does, and no other adjacency takes any."""
        bounds = {"feature_bound": self.feature_bound, "clip": self.clip}
        given = [key for key, bound in bounds.items() if bound is not None]
        if self.adjacency == "record" and not given:
            needed = 'a number > 0, which adjacency = "record" needs (or privacy.clip, where the algorithm allows it)'
            raise BadInput("privacy.feature_bound", None, needed)
        if self.adjacency != "record" and given:
            raise BadInput(f"privacy.{given[0]}", bounds[given[0]], 'adjacency = "record" beside it')
        if self.colluders == [] or (isinstance(self.colluders, int) and self.colluders < 0):
            raise BadInput("privacy.colluders", self.colluders, "a whole number ≥ 0, or a list of sets of agents")
        if len(given) == 2:
            raise BadInput("privacy.clip", self.clip, "nothing beside privacy.feature_bound: either bounds a record")
