"""The user's own problem: a Python file, or a folder with one data file per agent.

A `path` that ends in .py is a file with a function that returns one agent's objective (see `usercode`);
any other is a folder of data (see `userdata`). The ending alone decides, so that an experiment can be
resolved on a machine that holds nobody's data. Only what belongs to the owned agents is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.problems.base import DATA, LARGEST, SURROGATE_SEED, Objective, ProblemSection, Sampled, agent_rng
from dpp2.problems.least_squares import LeastSquaresSection
from dpp2.problems.logistic import LogisticSection
from dpp2.problems.rows import logistic_rows, square_rows
from dpp2.problems.usercode import load_objectives, load_report
from dpp2.problems.userdata import read_agents
from dpp2.schema import Table


class FileSection(ProblemSection):
    public_keys = ("name", "lambda", "omega")
    regulariser = ("lambda", "omega")
    paths: ClassVar[Mapping[str, tuple[str, ...]]] = {"path": ()}

    name: Literal["file"] = "file"
    path: str = Field(min_length=1, description="the path of a Python file (.py) or of a folder of per-agent data")
    function: str | None = Field(
        None, min_length=1, description="the name of a function in the Python file (default: objective)"
    )
    loss: Literal["logistic", "least-squares"] | None = Field(
        None, description="logistic or least-squares (folders only; default: logistic)"
    )
    lambda_: float | None = Field(
        None,
        ge=0,
        le=LARGEST,
        alias="lambda",
        description="a number from 0 to 1e100 (folders only; default: 0.001, with least-squares 0)",
    )
    omega: float | None = Field(
        None, ge=0, le=LARGEST, description="a number from 0 to 1e100 (folders only; default: 1)"
    )

    def resolve(self, agents: int) -> Self:
        """Fill in the defaults of this sort of path, and refuse the keys of the other sort. Opens nothing."""
        for key in ("loss", "lambda_", "omega") if self._is_code() else ("function",):
            if (value := getattr(self, key)) is not None:
                accepted = f"nothing: the {'Python file' if self._is_code() else 'folder'} has no use for it"
                raise BadInput(f"problem.{key.rstrip('_')}", value, accepted)
        defaults = self._defaults()
        return self.updated(**{key: value for key, value in defaults.items() if getattr(self, key) is None})

    def runs_own_code(self) -> bool:
        return self._is_code()

    @property
    def steep_everywhere(self) -> bool:
        return self.loss == "least-squares"

    def data_identity(self, agent: int, agents: int, outside: bytes = b"") -> bytes:
        """One Python file makes the objectives of all agents, a different one for each."""
        return super().data_identity(agent, agents, outside) + (b" %d" % agent if self._is_code() else b"")

    def objective(self, owned: Sequence[int], agents: int) -> Objective:
        settled = self.resolve(agents)
        if settled._is_code():
            points = {agent: agent_rng(self.drawing_seed(), DATA, agent) for agent in owned}
            return load_objectives(Path(settled.path), str(settled.function), points, agents)
        features, labels, sources = read_agents(Path(settled.path), owned, signs=settled.loss == "logistic")
        rows = logistic_rows if settled.loss == "logistic" else square_rows
        return replace(rows(features, labels, settled.lambda_ or 0.0, settled.omega or 0.0), sources=sources)

    def surrogate(self, agents: int, smoothness: float) -> ProblemSection | None:
        settled = self.resolve(agents)
        if settled._is_code():
            return None
        known = self.objective(range(agents), agents)
        assert isinstance(known, Sampled)  # folders hold records
        if settled.loss == "logistic":
            return LogisticSection.with_signal(known, smoothness, settled.lambda_ or 0.0, settled.omega or 0.0)
        samples = int(known.sample_counts().mean())
        return LeastSquaresSection(seed=SURROGATE_SEED, dimension=known.dimension, samples=samples)

    def report(self, x: Array) -> dict[str, float]:
        """What the file's own `report(x)` says."""
        return load_report(Path(self.path), x) if self._is_code() else {}

    def check_report(self, x: Array) -> None:
        self.report(x)

    def digest_table(self) -> Table:
        """Without the path: it differs between machines, and what lies there enters through the objective's sources."""
        return {key: value for key, value in super().digest_table().items() if key != "path"}

    def _is_code(self) -> bool:
        return self.path.endswith(".py")

    def _defaults(self) -> dict[str, str | float]:
        if self._is_code():
            return {"function": "objective"}
        loss = self.loss or "logistic"
        return {"loss": loss, "lambda_": 0.001 if loss == "logistic" else 0.0, "omega": 1.0}
