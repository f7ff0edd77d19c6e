"""While a run goes on: what was overheard and what is true come from captures, records and checkpoints."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from dpp2 import Experiment, Simulation, streaming
from dpp2.adversary.audit import Interception
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth
from dpp2.page import tasks
from dpp2.page.hearing import Much, heard, truth
from dpp2.page.overheard import overheard
from dpp2.page.place import Place
from dpp2.store.rundir import RunDirectory
from tests.conftest import call

SMALL = ["network.agents=8", "network.topology=ring", "problem.samples=20", "run.rounds=40"]


@pytest.fixture
def under_way(tmp_path: Path) -> tuple[Place, Experiment, Simulation]:
    """An embedded run after two checkpoints of ten rounds."""
    simulation = Simulation(Experiment.load(overrides=SMALL))
    directory = RunDirectory.create(tmp_path / "run", force=False)
    directory.begin(simulation.prepared)
    for since in (0, 10):
        simulation.advance(10)
        directory.save(simulation.snapshot(since))
    return Place(directory.path), simulation.experiment, simulation


def test_checkpoints_of_an_embedded_run(under_way: tuple[Place, Experiment, Simulation]) -> None:
    place, experiment, simulation = under_way
    found, true = heard(place, experiment), truth(place, experiment)
    assert found is not None
    assert found.observation is not None
    assert true is not None
    result = simulation.result()
    assert result.observation is not None
    assert result.truth is not None
    assert np.array_equal(found.observation.phases["y"], result.observation["y"])
    assert np.array_equal(found.observation.P, result.observation["P"])
    assert np.array_equal(true.x, result.truth["x"])
    document = overheard(experiment, found, true)
    assert (document.first, document.last) == (0, 19)
    assert document.truths["19"].x


def test_metrics_of_rounds_on_record_are_those_that_the_run_would_tell(
    under_way: tuple[Place, Experiment, Simulation],
) -> None:
    place, _, simulation = under_way
    found = tasks.overheard(place, None, "live", "", True)
    points, metrics = json.loads(found.measured)["points"], simulation.result().metrics
    assert [point[0] for point in points] == list(range(20))
    told = [[metrics[name][k] for name in ("gap", "consensus", "stationarity")] for k in range(20)]
    assert np.allclose([point[1:] for point in points], told, rtol=1e-5)
    assert tasks.overheard(place, None, "live").measured == ""


def test_the_verdict_and_the_curve_that_stands_out_are_of_the_same_attack(
    under_way: tuple[Place, Experiment, Simulation],
) -> None:
    """With the round where it came closest among those that are drawn, of however many."""
    simulation = Simulation(Experiment.load(overrides=[*SMALL, "run.rounds=900", "noise.decay=0.999"]))
    simulation.advance(simulation.remaining)
    result = simulation.result()
    assert result.observation is not None
    assert result.truth is not None
    said = Interception(Observation.of(result.observation), "a test")
    seen = overheard(simulation.experiment, said, Truth.of(result.truth, simulation.experiment))
    named = next(attack for attack in seen.attacks if attack.name == seen.closest["x"])
    assert f"({named.name} attack)" in seen.verdict
    least = min(error for _, error in named.x if error is not None and not np.isnan(error))
    others = [error for attack in seen.attacks if attack.listens for _, error in attack.x if error is not None]
    assert least == np.nanmin(others)


def test_records_in_chunks_are_read_as_far_as_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the run goes on, and of a long one its end: the chunks before it are not opened."""
    monkeypatch.setattr(streaming, "CHUNK", 5 * 8 * 8 * 10)
    chosen = Experiment.load(overrides=[*SMALL, "run.records=zarr"])
    simulation, plain = Simulation(chosen, to_disk=True), Simulation(chosen)
    directory = RunDirectory.create(tmp_path / "run", force=False)
    directory.begin(simulation.prepared)
    directory.keep(simulation.recorder, simulation.run_id)
    place = Place(directory.path)
    for name in ("observation", "truth"):  # as a run leaves them in the moment before it writes the first array
        (directory.path / f"{name}.zarr").mkdir()
        (directory.path / f"{name}.zarr/zarr.json").write_text('{"zarr_format":3,"node_type":"group"}')
    assert heard(place, chosen) is None
    assert truth(place, chosen, 0) is None
    simulation.advance(26)
    directory.save(simulation.snapshot())
    plain.advance(26)
    result = plain.result()
    found, true = heard(place, chosen), truth(place, chosen, 0)
    assert found is not None
    assert found.observation is not None
    assert true is not None
    assert np.array_equal(found.observation.phases["y"], result.observation["y"])
    assert np.array_equal(found.observation.P, result.observation["P"])
    assert np.array_equal(true.x, result.truth["x"])
    (directory.path / "observation.zarr/y/c.0.0.0").unlink()
    some = heard(place, chosen, much=Much(20 * 80 - 1, 15 * 80))
    assert some is not None
    assert some.observation is not None
    assert some.observation.first == 6
    assert np.array_equal(some.observation.phases["z"], result.observation["z"][6:])


def test_what_comes_before_a_part_that_is_missing_is_not_known(
    under_way: tuple[Place, Experiment, Simulation],
) -> None:
    place, experiment, simulation = under_way
    next((place.run / "checkpoint").glob("records-000000000-*")).unlink()
    result = simulation.result()
    assert result.truth is not None
    found, true = heard(place, experiment), truth(place, experiment, 10)
    assert found is not None
    assert found.observation is not None
    assert (found.observation.first, found.observation.shape[0]) == (10, 10)
    assert true is not None
    assert np.array_equal(true.x, result.truth["x"][10:])
    assert truth(place, experiment, 9) is None


def test_of_a_long_run_its_end_alone_is_read_and_scored_as_the_whole_is(
    under_way: tuple[Place, Experiment, Simulation],
) -> None:
    place, experiment, _ = under_way
    whole = heard(place, experiment)
    next((place.run / "checkpoint").glob("records-000000000-*")).write_bytes(b"whoever reads this comes too far")
    found = heard(place, experiment, much=Much(1, 1))
    assert whole is not None
    assert whole.observation is not None
    assert found is not None
    assert found.observation is not None
    assert found.observation.first == 10
    assert np.array_equal(found.observation.phases["y"], whole.observation.phases["y"][10:])
    true = truth(place, experiment, 10)
    assert true is not None
    document = overheard(experiment, found, true)
    assert (document.first, document.last) == (10, 19)
    assert document.truths["19"].x
    curve = next(attack for attack in document.attacks if attack.name == "three-round").x
    assert [k for k, _ in curve] == list(range(10, 20))
    assert all(error is not None for _, error in curve)


def test_rounds_that_a_resumed_run_writes_again_are_there_once(
    under_way: tuple[Place, Experiment, Simulation],
) -> None:
    """Killed between its records and its state, a run writes the same rounds again, under another name."""
    place, experiment, simulation = under_way
    directory = RunDirectory.open(place.run)
    simulation.advance(5)
    directory.save(simulation.snapshot(10))
    simulation.advance(5)
    directory.save(simulation.snapshot(15))
    names = sorted(path.name for path in (place.run / "checkpoint").glob("records-*"))
    assert [name[8:27] for name in names] == [f"{a:09d}-{b:09d}" for a, b in ((0, 10), (10, 20), (10, 25), (15, 30))]
    result = simulation.result()
    assert result.observation is not None
    found = heard(place, experiment)
    assert found is not None
    assert found.observation is not None
    assert np.array_equal(found.observation.phases["y"], result.observation["y"])


def test_up_to_a_round(under_way: tuple[Place, Experiment, Simulation]) -> None:
    place, experiment, _ = under_way
    found = heard(place, experiment, until=7)
    assert found is not None
    assert found.observation is not None
    assert found.observation.shape[0] == 7


def test_without_telemetry_there_is_no_truth_whatever_lies_there(
    under_way: tuple[Place, Experiment, Simulation],
) -> None:
    place, experiment, _ = under_way
    untold = Experiment.parse({**experiment.tables(), "run": {**experiment.tables()["run"], "telemetry": "none"}})
    assert truth(place, untold) is None


def test_what_the_problem_reports_is_known_while_the_run_goes_on_to_those_who_may_see_x() -> None:
    overrides = ["problem.name=classification", "network.agents=5", "network.topology=ring", "run.rounds=30"]
    simulation = Simulation(Experiment.load(overrides=overrides))
    simulation.advance(30)
    result = simulation.result()
    assert result.observation is not None
    assert result.truth is not None
    said = Interception(Observation.of(result.observation), "the run")
    seen = overheard(simulation.experiment, said, Truth.of(result.truth, simulation.experiment))
    assert 0.3 < seen.report["accuracy"] <= 1.0
    assert overheard(simulation.experiment, said, None).report == {}


@pytest.mark.parametrize(
    ("noted", "first"),
    [(['{"uncovered": null}', '{"uncovered": 41}', '{"uncovered": 7}'], 7), (["{", "[]", '{"uncovered": "7"}'], None)],
)
def test_rounds_that_float64_does_not_carry_are_read_from_the_notes_of_nodes(
    noted: list[str], first: int | None, tmp_path: Path
) -> None:
    for node, text in enumerate(noted):
        facts = tmp_path / "nodes" / f"node-{node}" / "runs" / "abc" / "node.json"
        facts.parent.mkdir(parents=True)
        facts.write_text(text)
    assert Place(tmp_path).uncovered() == first


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_over_nodes_says_which_round_float64_did_not_carry(tmp_path: Path) -> None:
    run = tmp_path / "run"
    sets = [word for one in (*SMALL[:3], "run.rounds=200", "noise.decay=0.5") for word in ("--set", one)]
    assert call("run", *sets, "--transport", "grpc", "--processes", 2, "--out", run).code == 0
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    (told,) = [line["round"] for line in lines if line.get("what") == "uncovered"]
    assert Place(run).uncovered() == told
    assert f"from round {told} on" in json.loads((run / "privacy.json").read_text())["reason"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tls", [False, True])
def test_captures_and_records_of_nodes(tls: bool, tmp_path: Path) -> None:
    """As while the run goes on: before anything was merged, and with the last rounds still under way."""
    run = tmp_path / "run"
    sets = [word for one in SMALL for word in ("--set", one)]
    options = ("--transport", "grpc", "--processes", 4, "--tap", "relay", *(["--tls"] if tls else []))
    assert call("run", *sets, *options, "--out", run).code == 0
    sent, kept = Observation.load(run / "tap" / "observation.npz") if not tls else None, Truth.load(run)
    for name in ("observation.npz", "truth.npz", "tap/observation.npz", "tap/ciphertext.json", "tap/decode.json"):
        (run / name).unlink(missing_ok=True)
    place, experiment = Place(run), Experiment.load(run / "experiment.toml").resolve()
    found, true = heard(place, experiment), truth(place, experiment)
    assert found is not None
    assert true is not None
    assert np.array_equal(true.x, kept.x)
    assert np.array_equal(true.grad, kept.grad)
    if sent is None:
        assert found.observation is None
        assert overheard(experiment, found, true).ciphertext
        return
    assert found.observation is not None
    assert np.array_equal(found.observation.phases["y"], sent.phases["y"])
    assert overheard(experiment, found, true).broken is not None


def test_notes_of_a_node_that_are_no_plain_file_keep_nobody_waiting(tmp_path: Path) -> None:
    folders = [tmp_path / f"nodes/node-{n}/runs/1" for n in range(4)]
    for folder in folders:
        folder.mkdir(parents=True)
    os.mkfifo(folders[0] / "node.json")
    (folders[1] / "node.json").write_text("[" * 200_000)
    (folders[2] / "node.json").touch()
    os.truncate(folders[2] / "node.json", 2**36)
    (folders[3] / "node.json").write_text('{"uncovered": 7}')
    assert Place(tmp_path).uncovered() == 7
