"""A run over several machines, collected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dpp2 import Experiment
from tests.orchestrator.collected import TABLES, Machines

Call = Callable[..., Any]


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Machines:
    machines = Machines(tmp_path_factory.mktemp("whole"), Experiment.load(overrides=TABLES))
    asyncio.run(machines.run(telemetry=True))
    return machines


@pytest.fixture
def collect(dpp2: Call, quick_plot: None, tmp_path: Path) -> Call:
    """`dpp2 collect` of all homes into tmp_path/run."""

    def call(machines: Machines, *more: object, homes: Sequence[Path] | None = None, file: Path | None = None) -> Any:
        named = machines.homes if homes is None else homes
        return dpp2("collect", *named, "--experiment", file or machines.file, "--out", tmp_path / "run", *more)

    return call
