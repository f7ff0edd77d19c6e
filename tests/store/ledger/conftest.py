"""Runs that are quick, and that can be killed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpp2.budget import RunBudget
from dpp2.orchestrator.transports import embedded
from dpp2.store.ledgers import LedgerFile
from tests.store.ledger.charges import (
    Call,
    Killed,
)

NOTHING_LEFT = "dpp2: privacy.budget leaves no round to run: "


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pictures; one round between looks."""
    for name in ("convergence", "epsilon"):
        monkeypatch.setattr(f"dpp2.orchestrator.plots.{name}", lambda *args: None)
    monkeypatch.setattr(embedded, "_LOOK_SECONDS", 0.0)


@pytest.fixture
def dpp2_run(dpp2: Call) -> Callable[..., dict[str, Any]]:
    """`dpp2 run --json`, which must succeed; a run that was resumed may be told that its budget is spent."""

    def run(*words: object, spent_up: bool = False) -> dict[str, Any]:
        ended = dpp2("run", "--json", *words)
        assert ended.code == int(spent_up), ended.err
        told = NOTHING_LEFT if spent_up else ""
        assert (ended.err.startswith(told), len(ended.err.splitlines())) == (True, int(spent_up))
        found = json.loads(ended.out)
        assert isinstance(found, dict)
        return found

    return run


@pytest.fixture
def refused(dpp2: Call) -> Callable[..., str]:
    """`dpp2 run` into a directory of which nothing is left: why no round may be run, in one sentence."""

    def run(out: Path, *words: object) -> str:
        ended = dpp2("run", "--out", out, *words)
        assert (ended.code, ended.out, out.exists()) == (1, "", False), ended.err
        sentence, *more = ended.err.splitlines()
        assert (sentence.startswith(NOTHING_LEFT), more) == (True, [])
        return str(sentence.removeprefix(NOTHING_LEFT))

    return run


@pytest.fixture
def killable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed settles nothing, and goes on from the last round."""
    monkeypatch.setattr(embedded, "_CHECKPOINT_SECONDS", -1.0)
    settle = LedgerFile.settle

    def settled(self: LedgerFile, budget: RunBudget) -> None:
        if not isinstance(sys.exc_info()[1], Killed):
            settle(self, budget)

    monkeypatch.setattr(LedgerFile, "settle", settled)
