"""`dpp2 privacy ledger`: what every agent has spent, over all runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Call


def test_runs_on_the_same_data_add_up(tmp_path: Path, dpp2: Call, small: list[str]) -> None:
    spent: list[float] = []
    for name in ("first", "second"):
        ended = dpp2("run", "--json", "--out", tmp_path / name, *small, "--set", f"algorithm.damping={len(spent)}")
        spent.append(json.loads(ended.out)["privacy"]["epsilon"])
    told = json.loads(dpp2("privacy", "ledger", tmp_path, "--json").out)
    assert [entry["runs"] for entry in told] == [2] * len(told)
    assert max(entry["epsilon"] for entry in told) == pytest.approx(sum(spent))
    assert f"{sum(spent):.6g}" in dpp2("privacy", "ledger", tmp_path).out


def test_a_folder_without_runs_is_refused(tmp_path: Path, dpp2: Call) -> None:
    ended = dpp2("privacy", "ledger", tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "ledger.sqlite" in ended.err
