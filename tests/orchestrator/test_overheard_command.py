"""`dpp2 overheard`, and the story that `make demo` ends with."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpp2.adversary.attacks import ATTACKS
from dpp2.adversary.audit import audit
from dpp2.adversary.report import document
from dpp2.store.files import json_text, write_text
from tests.answers import strict

Call = Callable[..., Any]
ROOT = Path(__file__).parents[2]
SMALL = ("network.topology=complete", "network.agents=6", "problem.samples=10", "problem.dimension=3")


def audited(dpp2: Call, folder: Path, *settings: str) -> Path:
    """As `dpp2 audit` writes it, with few attacks and without a page."""
    sets = [word for setting in (*SMALL, *settings) for word in ("--set", setting)]
    assert dpp2("run", *sets, "--out", folder).code == 0
    attacks = [one for one in ATTACKS if one.name in ("prior", "three-round", "window", "best-linear")]
    write_text(folder / "audit.json", json_text(document(audit(folder, attacks, game=False))))
    return folder


@pytest.fixture
def two(dpp2: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setattr("dpp2.orchestrator.plots.convergence", lambda *args: None)
    second = audited(dpp2, tmp_path / "dpp3", "algorithm.name=dpp3", "problem.labels=planted", "privacy.budget=1.0")
    return audited(dpp2, tmp_path / "dpp2", "run.rounds=200", "noise.decay=0.8"), second


def test_dpp2_is_undone_and_dpp3_is_not(dpp2: Call, two: tuple[Path, Path]) -> None:
    ours, theirs = reversed(strict(dpp2("overheard", *two, "--json").out)["runs"])
    assert (theirs["algorithm"], theirs["recovered"], theirs["curator"]) == ("dpp2", True, None)
    assert theirs["gradient_error"] < 1e-3
    assert theirs["epsilon"] > 1e6
    assert (ours["algorithm"], ours["recovered"], ours["attack"]) == ("dpp3", False, "best-linear")
    assert 0.99 < ours["epsilon"] <= 1
    assert 0 < ours["curator"] < ours["gap_initial"]
    lines = dpp2("overheard", *two).out.splitlines()
    assert any(re.match(r" *dpp2 .* recovered to \de-\d\d", line) for line in lines)
    assert any(re.match(r" *dpp3 +1 \(δ_dp 1e-05\) .* not recovered, \d+ % off", line) for line in lines)


def test_a_run_that_nobody_audited_is_one_sentence(dpp2: Call, two: tuple[Path, Path]) -> None:
    (two[0] / "audit.json").write_text("{}")
    ended = dpp2("overheard", two[0])
    assert ended.code == 2
    assert "expected a run that `dpp2 audit` has looked at" in ended.err


def test_the_demo_runs_audits_and_shows_both_halves() -> None:
    """The two side by side, then both in one table."""
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    runs = dict(re.findall(r"/dpp2 run (\S+) --out (\S+)", recipe.group(1)))
    assert set(runs) == {"experiments/paper.toml", "experiments/tier-three.toml"}
    assert all((ROOT / file).is_file() for file in runs)
    assert set(re.findall(r"/dpp2 audit (\S+)", recipe.group(1))) == set(runs.values())
    last = re.findall(r"/dpp2 overheard (.*)", recipe.group(1))
    assert last == [" ".join(runs[f"experiments/{name}.toml"] for name in ("paper", "tier-three"))]
