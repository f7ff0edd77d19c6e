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


def test_a_long_ledger_begins_with_whoever_has_spent_most_and_says_how_to_see_all(tmp_path: Path, dpp2: Call) -> None:
    scales = [1 + agent / 25 for agent in range(25)]  # the more noise, the less is spent: agent 0 has spent most
    ring = ("network.topology=ring", "network.agents=25", f"noise.u_e={scales}", "run.rounds=2")
    assert dpp2("run", "--out", tmp_path / "run", *(f"--set={one}" for one in ring)).code == 0
    short, whole = dpp2("privacy", "ledger", tmp_path).out, dpp2("privacy", "ledger", tmp_path, "--all").out
    listed = [line.split()[1] for line in short.splitlines() if line.startswith("│")]
    assert listed == [str(agent) for agent in range(10)]
    assert "15 more, down to " in short
    assert "--all" in short
    assert sum(line.startswith("│") for line in whole.splitlines()) == 25
