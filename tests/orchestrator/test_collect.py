"""`dpp2 collect`: the folders of nodes on several machines become the run directory that an embedded run leaves."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment, Simulation
from dpp2.store.rundir import read_metrics
from tests.orchestrator.collected import COMPARED, GROUPS, TABLES, Machines

Call = Callable[..., Any]


def test_the_directory_of_an_embedded_run(whole: Machines, collect: Call, dpp2: Call, tmp_path: Path) -> None:
    ended = collect(whole, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == {
        "path": str(tmp_path / "run"),
        "run_id": whole.run_id,
        "rounds": 9,
        "agents": 3,
        "telemetry": True,
        "missing": None,
    }
    assert dpp2("run", whole.file, "--out", tmp_path / "embedded").code == 0
    for name in COMPARED:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "embedded" / name).read_bytes(), name
    ours, theirs = (json.loads((tmp_path / at / "privacy.json").read_text()) for at in ("run", "embedded"))
    assert ours == theirs
    merged, embedded = ({path.name for path in (tmp_path / at).iterdir()} for at in ("run", "embedded"))
    assert merged == embedded - {"events.jsonl"}  # nobody watched these nodes


def test_folders_of_single_runs_do_as_well(whole: Machines, collect: Call) -> None:
    ended = collect(whole, homes=whole.folders)
    assert ended.code == 0, ended.err
    assert "9 rounds of 3 agents" in ended.out


def test_without_telemetry_there_is_no_truth(collect: Call, whole: Machines, tmp_path: Path) -> None:
    machines = Machines(tmp_path / "machines", Experiment.load(overrides=TABLES))
    asyncio.run(machines.run(telemetry=False))
    ended = collect(machines)
    assert ended.code == 0, ended.err
    assert (
        "no truth.npz, so an audit cannot be scored: nodes write down x, gradients and noise only with --telemetry"
        in ended.err
    )
    assert not (tmp_path / "run" / "truth.npz").exists()
    result = whole.simulation.result() if whole.simulation.k else advanced(whole.simulation)
    assert result.observation is not None
    with np.load(tmp_path / "run" / "observation.npz") as seen:
        for name in ("y", "z"):
            assert seen[name].tobytes() == result.observation[name].tobytes()
    with np.load(tmp_path / "run" / "solution.npz") as solution:
        assert solution["x"].tobytes() == result.x.tobytes()
    gaps = read_metrics(tmp_path / "run" / "metrics.csv").gap
    assert np.isnan(gaps[:-1]).all()
    assert gaps[-1] == result.metrics.gap[-1]


def advanced(simulation: Simulation) -> Any:
    simulation.advance(simulation.remaining)
    return simulation.result()


# --- data that stay where they are ----------------------------------------------------------------------------


@pytest.fixture(params=["dpp2", "pgtc"])  # one that sends what it counts, and one that counts as if it compressed
def apart(tmp_path: Path, request: pytest.FixtureRequest) -> Machines:
    return run_apart(tmp_path, {"algorithm.name": request.param})


def run_apart(tmp_path: Path, changes: dict[str, Any]) -> Machines:
    """Each machine has a folder with its own agents' data; the collector has none of them."""
    rng = np.random.default_rng(1)
    everything = tmp_path / "everything"
    folders = [tmp_path / f"data-{min(group)}" for group in GROUPS]
    for folder in (everything, *folders):
        folder.mkdir()
    for folder, group in zip(folders, GROUPS, strict=True):
        for agent in group:
            features, labels = rng.normal(size=(6, 3)), np.sign(rng.normal(size=6))
            for at in (folder, everything):
                np.savez(at / f"agent-{agent}.npz", features=features, labels=labels)
    tables = TABLES | {"problem.name": "file", "problem.path": str(everything)} | changes
    del tables["problem.dimension"]
    machines = Machines(tmp_path / "machines", Experiment.load(overrides=tables))
    asyncio.run(machines.run(telemetry=True, paths=folders))
    return machines


def test_whoever_collects_needs_nobodys_data(apart: Machines, collect: Call, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.toml"
    nowhere.write_text(apart.file.read_text().replace(str(tmp_path / "everything"), str(tmp_path / "nowhere")))
    ended = collect(apart, file=nowhere)
    assert ended.code == 0, ended.err
    assert "left out: gap at the last x" in " ".join(ended.err.split())
    result = advanced(apart.simulation)
    with np.load(tmp_path / "run" / "observation.npz") as seen, np.load(tmp_path / "run" / "truth.npz") as truth:
        for records, expected in ((seen, result.observation), (truth, result.truth)):
            assert sorted(records.files) == sorted(expected)
            for name in expected:
                assert records[name].tobytes() == expected[name].tobytes(), name
    with np.load(tmp_path / "run" / "solution.npz") as solution:
        assert solution["x"].tobytes() == result.x.tobytes()
    metrics = read_metrics(tmp_path / "run" / "metrics.csv")
    assert np.array_equal(metrics.gap[:-1], result.metrics.gap[:-1])
    assert np.isnan(metrics.gap[-1])
    assert np.array_equal(metrics.bytes, result.metrics.bytes)
    assert json.loads((tmp_path / "run" / "privacy.json").read_text())["epsilon"] is None


def test_with_a_declared_bound_the_account_needs_no_data(apart: Machines, collect: Call, tmp_path: Path) -> None:
    """M_i is the one thing that an account takes from the data."""
    bounded = replace(apart.simulation.experiment, privacy=apart.simulation.experiment.privacy.updated(smoothness=9.0))
    machines = Machines(tmp_path / "bounded", bounded)
    asyncio.run(machines.run(telemetry=False, paths=[tmp_path / "data-0", tmp_path / "data-1"]))
    for name in ("data-0", "data-1", "everything"):
        shutil.rmtree(tmp_path / name)
    ended = collect(machines)
    assert ended.code == 0, ended.err
    document = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert document["epsilon"] == machines.simulation.account.epsilon(9).value  # type: ignore[union-attr]


@pytest.mark.parametrize(("rho", "diverges"), [(1e9, True), (10.0, False)])
def test_nodes_that_overflow_stopped_say_so(rho: float, diverges: bool, collect: Call, tmp_path: Path) -> None:
    """The round in which they stopped tells of the data, and ε does not cover it."""
    machines = run_apart(tmp_path, {"run.rounds": 60, "algorithm.rho": rho})
    shutil.rmtree(tmp_path / "everything")
    ended = collect(machines)
    assert ended.code == 0, ended.err
    document = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert (document["rounds"] < 60) == diverges
    assert any("the divergence watch stopped the run" in note for note in document["notes"]) == diverges


# --- what cannot be collected ---------------------------------------------------------------------------------


def refused(ended: Any, tmp_path: Path, *parts: str) -> None:
    """One sentence, exit code 2, and nothing has been made."""
    said = " ".join(ended.err.split())
    assert ended.code == 2, said
    assert said.startswith("dpp2: ")
    for part in parts:
        assert part in said
    assert not (tmp_path / "run").exists()


def test_an_agent_is_missing(whole: Machines, collect: Call, tmp_path: Path) -> None:
    ended = collect(whole, homes=whole.homes[1:])
    refused(ended, tmp_path, "folders of all 3 agents, each once, but agent 0 is missing")


def test_an_agent_is_there_twice(whole: Machines, collect: Call, tmp_path: Path) -> None:
    ended = collect(whole, homes=[*whole.homes, whole.homes[0]])
    refused(ended, tmp_path, "folders of all 3 agents, each once, but some are there twice")


def test_a_folder_that_is_no_home(whole: Machines, collect: Call, tmp_path: Path) -> None:
    refused(collect(whole, homes=[whole.homes[0], tmp_path]), tmp_path, "the home of a node that has run")


def test_another_run_id(whole: Machines, collect: Call, tmp_path: Path) -> None:
    refused(collect(whole, "--run-id", "f" * 32), tmp_path, "--run-id", f"a run of every folder: {whole.run_id}")


def test_homes_of_different_runs(whole: Machines, collect: Call, tmp_path: Path) -> None:
    other = Machines(tmp_path / "other", Experiment.load(overrides=TABLES | {"run.seed": 2}))
    asyncio.run(other.run(telemetry=False))
    ended = collect(whole, homes=[whole.homes[0], other.homes[1]])
    refused(ended, tmp_path, "--run-id", "homes that have a run in common")


def test_several_runs_must_be_told_apart(whole: Machines, collect: Call, tmp_path: Path) -> None:
    both = whole.copied(tmp_path / "both")
    again = Machines(tmp_path / "both", Experiment.load(overrides=TABLES | {"run.seed": 2}))
    asyncio.run(again.run(telemetry=False))
    refused(collect(both), tmp_path, "--run-id", both.run_id, again.run_id)
    ended = collect(both, "--run-id", again.run_id, file=again.file)
    assert ended.code == 0, ended.err


def test_another_experiment(whole: Machines, collect: Call, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(whole.file.read_text().replace("alpha = 0.1", "alpha = 0.2"))
    refused(collect(whole, file=other), tmp_path, "--experiment", "has run, which is")


def _overwrite(path: Path, beginning: bytes) -> None:
    path.write_bytes(beginning + path.read_bytes()[len(beginning) :])


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "records that end early": (lambda run: (run / "records" / "y.f64").write_bytes(bytes(80)), "those of y end before"),
    "numbers of a round that end early": (
        lambda run: (run / "records" / "eta.f64").write_bytes(bytes(8)),
        "those of eta end before",
    ),
    "a flipped byte": (lambda run: _overwrite(run / "records" / "y.f64", b"\x5a"), "y.f64 is damaged: round 0 is not"),
    "a number that is none": (
        lambda run: _overwrite(run / "records" / "z.f64", np.array([np.nan]).tobytes()),
        "z.f64 is damaged: round 0 is not",
    ),
    "no state": (lambda run: (run / "checkpoint.bin").unlink(), "nodes that ended at one round, not at [5, 9]"),
    "no checkpoint at all": (
        lambda run: [path.rename(path.with_name("gone")) for path in run.glob("checkpoint*")],
        "the folder of a node that has run",
    ),
    "no facts": (lambda run: (run / "node.json").write_text("{}"), "the folder of a node that has run"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage(damage: str, whole: Machines, collect: Call, tmp_path: Path) -> None:
    spoilt = whole.copied(tmp_path / "spoilt")
    change, message = DAMAGES[damage]
    change(spoilt.folders[0])
    refused(collect(spoilt), tmp_path, message)


def test_what_cannot_be_collected_replaces_nothing(whole: Machines, collect: Call, tmp_path: Path) -> None:
    assert collect(whole).code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert collect(whole).code == 2  # not without --force
    spoilt = whole.copied(tmp_path / "spoilt")
    (spoilt.folders[0] / "records" / "y.f64").write_bytes(b"")
    assert collect(spoilt, "--force").code == 2
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before
    assert collect(whole, "--force").code == 0


@pytest.mark.parametrize("force", [False, True])
def test_a_disk_that_fills_up_leaves_no_half_of_a_run(
    force: bool, whole: Machines, collect: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if force:
        assert collect(whole).code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dpp2.store.rundir.write_metrics", full)
    assert collect(whole, *(["--force"] if force else [])).code == 1
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    assert (tmp_path / "run").exists() == force
    assert not list(tmp_path.glob(".run*"))
