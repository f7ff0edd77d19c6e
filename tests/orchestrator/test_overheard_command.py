"""`dpp2 overheard`, and the story that `make demo` ends with."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpp2.adversary.attacks import ATTACKS
from dpp2.adversary.audit import audit
from dpp2.adversary.report import document
from dpp2.store.files import json_text, write_text
from dpp2.studies.overheard import Overheard, named, overheard, remarks
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
    assert any(re.match(r" *dpp2 +dpp2 .* to \de-\d\d", line) for line in lines)
    assert any(re.match(r" *dpp3 +dpp3 +1 .* no, \d+ % off", line) for line in lines)
    assert any(line.strip() == "δ_dp 1e-05" for line in lines)


def test_rows_of_one_method_have_names_and_fit_a_terminal(dpp2: Call, two: tuple[Path, Path]) -> None:
    """Two runs of one method differ by their names, a damped one says so, and no name is broken."""
    damped = audited(dpp2, two[0].parent / "counterexample", "run.rounds=200", "algorithm.damping=1.0")
    three = two[1].rename(two[1].parent / "demo-tier-three")
    lines = dpp2("overheard", two[0], three, damped).out.splitlines()
    rows = [line for line in lines if re.match(r" *\S+ +dpp\d ", line)]
    assert [row.split()[0] for row in rows] == ["dpp2", "demo-tier-three", "counterexample"]
    assert [line.strip().split()[0] for line in lines if "damped" in line] == ["damped"]
    assert all(re.search(r" (to \de-\d\d|no, \d+ % off)", row) for row in rows)
    assert max(map(len, lines)) <= 80


def row(run: str, **more: object) -> Overheard:
    fields: dict[str, Any] = {
        "algorithm": "dpp2",
        "damped": False,
        "unbounded": False,
        "reason": None,
        "uncovered": None,
        "problem": "logistic",
        "gap_initial": 1.0,
        "gap": 0.5,
    }
    others: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(Overheard))
    return Overheard(**(others | fields | {"run": run} | more))


def test_runs_are_named_by_as_much_of_their_path_as_tells_them_apart() -> None:
    assert [name for name, _ in named([row("/a/one"), row("/b/two")])] == ["one", "two"]
    assert [name for name, _ in named([row("/x/a/run"), row("/x/b/run")])] == ["a/run", "b/run"]
    assert [name for name, _ in named([row("/x/run"), row("/x/run")])] == ["run", "run"]


def test_epsilon_is_infinite_or_unknown_and_the_remark_says_why() -> None:
    rows = [
        row("bare", unbounded=True, reason="there is no noise"),
        row("own", reason="mine comes without an account"),
    ]
    assert [one.spent for one in rows] == ["∞", "unknown"]
    assert list(remarks(rows)) == [
        "bare: ε = ∞, because there is no noise",
        "own: ε is unknown, because mine comes without an account",
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [(("noise.u_w=0.0", "noise.u_e=0.0"), "∞"), (("algorithm.name=privsgp-vr", "problem.labels=planted"), "unknown")],
)
def test_the_audit_tells_an_infinite_from_an_unknown_epsilon(
    settings: tuple[str, ...], said: str, dpp2: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpp2.orchestrator.plots.convergence", lambda *args: None)
    assert overheard(audited(dpp2, tmp_path / "run", *settings)).spent == said


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
