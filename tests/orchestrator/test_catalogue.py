"""Shipped experiments by name, and `dpp2 list`, `init` and `explain`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpp2 import Experiment, shipped
from dpp2.adversary.attacks import ATTACKS
from dpp2.algorithms import ALGORITHMS
from dpp2.orchestrator.meanings import MEANINGS
from dpp2.problems import PROBLEMS
from dpp2.schema import keys_of
from dpp2.section_keys import SECTIONS, section_kinds
from dpp2.topology import TOPOLOGIES
from tests.answers import strict

Call = Callable[..., Any]
ROOT = Path(__file__).parents[2]


def names(ended: Any, what: str) -> list[str]:
    assert (ended.code, ended.err) == (0, "")
    return [one["name"] for one in strict(ended.out)[what]]


class TestShipped:
    def test_every_experiment_has_its_name(self) -> None:
        files = sorted((ROOT / "experiments").glob("*.toml"))
        assert [path.resolve() for path in shipped.shipped_experiments().values()] == files != []

    @pytest.mark.usefixtures("quick_plot")
    def test_is_run_by_its_name_and_names_the_run(
        self, dpp2: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        ended = dpp2("run", "damped", "--set", "run.rounds=3", "--json")
        assert strict(ended.out)["run"] == "runs/damped-1"
        assert Experiment.load(tmp_path / "runs/damped-1/experiment.toml").setting("algorithm.damping") == 1.0

    def test_a_file_of_that_name_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("damped").write_text("[run]\nrounds = 3\n")
        assert shipped.experiment_file("damped") == Path("damped")

    def test_another_name_is_refused_with_the_nearest(self, dpp2: Call) -> None:
        ended = dpp2("run", "dampd")
        assert ended.code == 2
        assert "FILE = 'dampd': expected a file, or one of" in ended.err
        assert "did you mean 'damped'?" in ended.err


class TestList:
    @pytest.mark.parametrize(
        ("what", "known"),
        [
            ("algorithms", ALGORITHMS.known),
            ("problems", PROBLEMS.known),
            ("topologies", TOPOLOGIES.names),
            ("attacks", [attack.name for attack in ATTACKS]),
            ("experiments", list(shipped.shipped_experiments())),
        ],
    )
    def test_has_everything_and_a_sentence_for_each(self, dpp2: Call, what: str, known: list[str]) -> None:
        ended = dpp2("list", what, "--json")
        assert names(ended, what) == known
        assert all(one["summary"] for one in strict(ended.out)[what])
        assert all(name in dpp2("list", what).out for name in known)

    def test_runs_are_those_of_this_folder(
        self, dpp2: Call, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_plot: None
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert dpp2("list", "runs").err == "there are no runs here\n"
        dpp2("run", *small, "--out", "runs/mine")
        (Path("runs/broken")).mkdir()
        Path("runs/broken/experiment.toml").write_text("nonsense")
        found = strict(dpp2("list", "runs", "--json").out)["runs"]
        assert {one["name"]: one["summary"] for one in found} == {
            "runs/mine": "dpp2, 5 agents, 8 rounds",
            "runs/broken": "not finished",
        }


class TestExplain:
    @pytest.mark.parametrize("section", SECTIONS)
    def test_explains_every_key_of_every_kind(self, dpp2: Call, section: str) -> None:
        keys = {key for _, cls in section_kinds(section) for key in keys_of(cls)}
        assert names(dpp2("explain", section, "--json"), "choices") != []
        for key in keys:
            ended = dpp2("explain", f"{section}.{key}", "--json")
            found = strict(ended.out)
            assert found["accepted"] or found["choices"]
            assert all(one["accepts"] for one in found["accepted"])

    def test_names_the_kinds_behind_a_choice(self, dpp2: Call) -> None:
        assert names(dpp2("explain", "network.topology", "--json"), "choices") == TOPOLOGIES.names
        assert dpp2("explain", "topology").out == dpp2("explain", "network.topology").out

    def test_says_in_which_kind_a_default_holds(self, dpp2: Call) -> None:
        printed = dpp2("explain", "algorithm.alpha").out
        assert "default 0.2 (dgd)" in printed

    def test_refuses_what_is_no_key(self, dpp2: Call) -> None:
        assert "did you mean 'topology'?" in dpp2("explain", "network.topologi").err
        assert "did you mean 'network'?" in dpp2("explain", "netwrk.agents").err

    def test_every_key_has_a_meaning_and_none_is_left_of_a_key_that_has_gone(self) -> None:
        known = {
            f"{section}.{key}" for section in SECTIONS for _, cls in section_kinds(section) for key in keys_of(cls)
        }
        assert set(MEANINGS) == known | set(SECTIONS)


class TestInit:
    @pytest.mark.parametrize(
        "changes", [[], ["algorithm.name=dpp3"], ["network.topology=small-world", "problem.name=sine"]]
    )
    def test_writes_the_experiment_that_was_asked_for(self, dpp2: Call, tmp_path: Path, changes: list[str]) -> None:
        words = [word for change in changes for word in ("--set", change)]
        ended = dpp2("init", tmp_path / "new.toml", *words)
        assert (ended.code, ended.err) == (0, "")
        assert Experiment.load(tmp_path / "new.toml").tables() == Experiment.load(overrides=changes).tables()

    def test_comments_on_every_key(self, dpp2: Call, tmp_path: Path) -> None:
        dpp2("init", tmp_path / "new.toml")
        lines = (tmp_path / "new.toml").read_text().splitlines()
        assigned = [n for n, line in enumerate(lines) if " = " in line and not line.startswith("#")]
        assert all(lines[n - 1].startswith("# ") for n in assigned)
        assert "# budget =" in lines

    def test_starts_from_a_shipped_experiment(self, dpp2: Call, tmp_path: Path) -> None:
        dpp2("init", tmp_path / "new.toml", "damped")
        assert Experiment.load(tmp_path / "new.toml").setting("algorithm.damping") == 1.0

    def test_leaves_a_file_that_is_there_alone(self, dpp2: Call, tmp_path: Path) -> None:
        (tmp_path / "new.toml").write_text("mine")
        ended = dpp2("init", tmp_path / "new.toml")
        assert ended.code == 2
        assert (tmp_path / "new.toml").read_text() == "mine"
        assert dpp2("init", tmp_path / "new.toml", "--force").code == 0
