"""`dpp2 run --resume` over nodes: the same experiment on the same nodes, or one sentence that says what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.test_grpc_runs import options, records

Call = Callable[..., Any]
CHOSEN = options(network__agents=3, run__rounds=12)


@pytest.fixture(scope="module")
def made(dpp2: Call, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on two nodes that was killed before its end was written down."""
    run = tmp_path_factory.mktemp("made") / "run"
    ended = dpp2("run", *CHOSEN, "--transport", "grpc", "--processes", 2, "--out", run)
    assert ended.code == 0, ended.err
    (run / "whole").mkdir()
    for name in (*records(run), "privacy.json"):
        (run / name).rename(run / "whole" / name)
    (run / "checkpoint" / "state.npz").unlink()
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def refused(dpp2: Call, run: Path, *words: object) -> str:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = dpp2("run", "--resume", run, *words)
    assert done.code == 2, done
    sentence = " ".join(done.err.split())
    assert "Traceback" not in sentence
    assert sentence.count("dpp2: ") == 1
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    del before[run / "experiment.toml"], after[run / "experiment.toml"]  # it may have been written again, the same
    assert after == before
    return sentence


def assert_goes_on(dpp2: Call, run: Path, *words: object) -> None:
    done = dpp2("run", "--resume", run, *words)
    assert done.code == 0, done.err
    assert records(run) == records(run / "whole")


def edit(run: Path, old: str, new: str) -> None:
    text = (run / "experiment.toml").read_text()
    assert old in text
    (run / "experiment.toml").write_text(text.replace(old, new))


EDITS = {
    "another seed": ("seed = 1\n", "seed = 2\n"),
    "another dimension": ("dimension = 3", "dimension = 4"),
}


@pytest.mark.parametrize("name", ["another seed", "another dimension"])
def test_an_edited_experiment_is_refused(name: str, dpp2: Call, run: Path) -> None:
    edit(run, *EDITS[name])
    edited = (run / "experiment.toml").read_bytes()
    assert "experiment.toml or a file named in it has changed" in refused(dpp2, run)
    assert (run / "experiment.toml").read_bytes() == edited
    assert len([*run.glob("nodes/node-0/runs/*")]) == 1


def test_rounds_transport_and_telemetry_may_change(dpp2: Call, run: Path, quick_plot: None) -> None:
    """As in an embedded run: they do not decide what is sent."""
    edit(run, 'transport = "grpc"', 'transport = "embedded"')
    edit(run, "rounds = 12", "rounds = 13")
    edit(run, 'telemetry = "full"', 'telemetry = "none"')
    done = dpp2("run", "--resume", run)
    assert done.code == 0, done.err
    assert len((run / "metrics.csv").read_text().splitlines()) == 13 + 2


LAYOUTS = {
    "words": "hello",
    "nothing": "",
    "bytes": "\udcff",
    "no groups": "[]",
    "an object": '{"0": [0]}',
    "numbers": "[1, 2]",
    "another order": "[[0], [2, 1]]",
    "a missing agent": "[[0], [1]]",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("layout", [*LAYOUTS, "gone"])
def test_without_its_groups_a_run_says_what_is_needed(layout: str, dpp2: Call, run: Path) -> None:
    groups = run / "nodes" / "groups.json"
    groups.unlink()
    if layout in LAYOUTS:
        groups.write_bytes(LAYOUTS[layout].encode(errors="surrogateescape"))
    sentence = refused(dpp2, run)
    assert "nodes/groups.json is gone or damaged, which says how many processes there were" in sentence
    assert "--processes P writes it again" in sentence


@pytest.mark.parametrize("processes", [1, 3])
def test_another_number_of_processes_is_refused_by_what_the_nodes_host(processes: int, dpp2: Call, run: Path) -> None:
    (run / "nodes" / "groups.json").unlink()
    sentence = refused(dpp2, run, "--processes", processes)
    assert f"--processes = {processes}: expected as many as when the run began: node-" in sentence
    assert not (run / "nodes" / "groups.json").exists()


def test_groups_that_the_nodes_contradict_are_refused(dpp2: Call, run: Path) -> None:
    (run / "nodes" / "groups.json").write_text("[[0, 1, 2]]")
    assert "as many as when the run began: node-" in refused(dpp2, run)


def test_the_right_number_of_processes_writes_it_again(dpp2: Call, run: Path) -> None:
    (run / "nodes" / "groups.json").write_text("hello")
    assert_goes_on(dpp2, run, "--processes", 2)
    assert json.loads((run / "nodes" / "groups.json").read_text()) == [[0], [1, 2]]


def test_another_run_in_its_place_meets_nothing_of_the_old_nodes(dpp2: Call, run: Path, quick_plot: None) -> None:
    """Also where groups.json, by which their folder was known, is gone."""
    (run / "nodes" / "groups.json").unlink()
    done = dpp2("run", *CHOSEN, "--set", "run.seed=2", "--force", "--out", run)
    assert done.code == 0, done.err
    assert not (run / "nodes").exists()
