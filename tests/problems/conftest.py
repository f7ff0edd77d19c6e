"""Building a problem as an experiment does: parse the table, set the seed, resolve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpp2.problems import PROBLEMS, ProblemSection
from dpp2.schema import parse_kind

Build = Callable[..., ProblemSection]


@pytest.fixture(scope="session")
def build() -> Build:
    def built(agents: int, seed: int = 1, **table: Any) -> ProblemSection:
        return parse_kind("problem", "name", PROBLEMS, table).updated(seed=seed).resolve(agents)

    return built
