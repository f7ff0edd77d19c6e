"""`seconds` and `rounds_per_second` count rounds only, and add up over interruptions."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dpp2 import Experiment
from dpp2.orchestrator import runner
from dpp2.orchestrator.drive import Drive, NodeStatus
from dpp2.orchestrator.runner import FinishedRun, Interrupted
from dpp2.orchestrator.transports import grpc
from dpp2.orchestrator.transports.grpc import RoundClock

SMALL: dict[str, Any] = {
    "network.topology": "ring",
    "network.agents": 4,
    "problem.name": "quadratic",
    "problem.dimension": 3,
    "run.transport": "grpc",
}
TWO = runner.ClusterShape(processes=2)


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("convergence", "epsilon"):
        monkeypatch.setattr(f"dpp2.orchestrator.plots.{name}", lambda *args: None)


def begin(path: Path, rounds: int, progress: runner.Progress) -> FinishedRun:
    experiment = Experiment.load(overrides=SMALL | {"run.rounds": rounds})
    return runner.start(experiment, path, stem="", force=False, progress=progress, cluster=TWO)


def press_ctrl_c_at(k: int) -> runner.Progress:
    """Once: a second one would end the process."""
    times: list[int] = []

    def pressed(done: int, total: int, note: str) -> None:
        if done >= k and not times:
            times.append(done)
            signal.raise_signal(signal.SIGINT)

    return pressed


def silent(done: int, total: int, note: str) -> None: ...


def test_nodes_that_start_are_not_counted(tmp_path: Path) -> None:
    began = time.monotonic()
    result = begin(tmp_path / "run", 20, silent).result
    whole = time.monotonic() - began  # most of it two interpreters that load NumPy and gRPC
    assert 0 < result.seconds < whole / 2
    assert result.rounds_per_second == 20 / result.seconds


def test_what_was_measured_before_an_interruption_counts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(Interrupted) as stopped:
        begin(run, 3000, press_ctrl_c_at(200))
    assert_told_of_all_rounds(run, stopped.value)
    before = float(json.loads((run / "nodes" / "seconds.json").read_text())["seconds"])
    assert before > 0
    result = runner.resume(run, [], silent).result
    assert result.rounds == 3000
    assert result.seconds > before
    further = runner.resume(run, ["run.rounds=3010"], silent).result
    assert result.seconds < further.seconds < 2 * result.seconds


def assert_told_of_all_rounds(run: Path, stopped: Interrupted) -> None:
    """Nodes that are stopped have done more than they had told: what they wrote down and what is charged counts."""
    noted = [json.loads(path.read_text())["released"] for path in run.glob("nodes/node-*/runs/*/node.json")]
    last = json.loads((run / "events.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["how"], last["round"]) == ("ended", "interrupted", stopped.k)
    assert last["charged"] == stopped.charged == max(noted)
    assert 200 <= stopped.k <= min(noted)
    assert f"{stopped.k} rounds" in str(stopped)


class Hours:
    """A clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    return Hours(monkeypatch)


def drive(*prepared: bool) -> Drive:
    made = object.__new__(Drive)
    made.seen = {node: NodeStatus(prepared=is_) for node, is_ in enumerate(prepared)}
    return made


def test_the_clock_runs_from_when_all_are_prepared_to_the_last_report(tmp_path: Path, hours: Hours) -> None:
    clock = RoundClock(tmp_path / "seconds.json", before=0.0)
    for now, everybody in ((5.0, False), (7.0, True), (9.0, True), (9.5, True)):
        hours.now = now
        clock.hear(drive(True, everybody))
    hours.now = 20.0  # nodes are stopped, records merged
    assert clock.seconds == 2.5
    clock.keep()
    again = RoundClock(tmp_path / "seconds.json", before=1.0)
    assert again.seconds == 2.5
    again.hear(drive(True, True))
    hours.now = 21.0
    again.hear(drive(True, True))
    assert again.seconds == 3.5


def test_the_clock_is_on_disk_while_the_run_goes_on(tmp_path: Path, hours: Hours) -> None:
    """The orchestrator may be killed at any time."""
    clock = RoundClock(tmp_path / "seconds.json", before=0.0)
    for now in range(20):
        hours.now = float(now)
        clock.hear(drive(True))
    assert RoundClock(tmp_path / "seconds.json", before=0.0).seconds > 15


def test_a_full_disk_does_not_stop_the_clock(tmp_path: Path, hours: Hours, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(grpc, "write_text", full)
    clock = RoundClock(tmp_path / "seconds.json", before=0.0)
    for hours.now in (0.0, 5.0):
        clock.hear(drive(True))
    assert clock.seconds == 5.0


@pytest.mark.parametrize("text", ["", "[]", '{"seconds": null}', "{"])
def test_a_clock_that_cannot_be_read_stands_in_nobodys_way(text: str, tmp_path: Path) -> None:
    (tmp_path / "seconds.json").write_text(text)
    assert RoundClock(tmp_path / "seconds.json", before=4.0).seconds == 4.0


def test_an_embedded_run_counts_what_came_before(tmp_path: Path) -> None:
    experiment = Experiment.load(overrides=SMALL | {"run.transport": "embedded", "run.rounds": 2000})
    with pytest.raises(Interrupted):
        runner.start(experiment, tmp_path / "run", stem="", force=False, progress=press_ctrl_c_at(100))
    resumed = runner.resume(tmp_path / "run", [], silent).result
    assert resumed.rounds == 2000
    assert resumed.seconds < runner.resume(tmp_path / "run", ["run.rounds=2100"], silent).result.seconds
