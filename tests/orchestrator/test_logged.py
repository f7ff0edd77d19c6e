"""What a run over nodes tells those who watch it: who is late, who has gone, and who has come back, each once."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from dpp2 import Experiment
from dpp2.node.cluster import Cluster
from dpp2.orchestrator.drive import Drive
from dpp2.orchestrator.logged import LoggedDrive
from dpp2.prepared import PreparedRun
from dpp2.store.events import EventLog

CLUSTER = Cluster({0: "a:1", 1: "a:1", 2: "b:1", 3: "b:1", 4: "c:1", 5: "c:1"}, {})  # nodes 0, 2 and 4, two agents each


class Watched:
    """A drive that nobody runs, and what the log has of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.path = 100.0, folder / "events.jsonl"
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        small = ["network.agents=6", "network.topology=ring", "problem.samples=5"]
        prepared = PreparedRun.of(Experiment.load(overrides=small).resolve())
        log = EventLog(self.path, clock=lambda: self.now)
        self.logged = LoggedDrive(log, prepared, 10, tls=False, clock=lambda: self.now)
        self.drive = Drive(CLUSTER, "ab", "0" * 64, window=1)
        self.logged.begin([[0, 1], [2, 3], [4, 5]], 0)
        for seen in self.drive.seen.values():
            seen.prepared = seen.here = True
            seen.allowed, seen.heard = 10, self.now
        self.drive._note_prepared()

    def let(self, seconds: float, *silent: int) -> None:
        """Time passes, and all nodes report but those that are silent."""
        for _ in range(round(5 * seconds)):
            self.now += 0.2
            for node, seen in self.drive.seen.items():
                if node not in silent:
                    seen.heard = self.now
            self.logged.look(self.drive)

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in map(json.loads, self.path.read_text().splitlines()) if line["kind"] == kind]

    @property
    def states(self) -> list[str]:
        return [node["state"] for node in self.lines("rounds")[-1]["nodes"]]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


def test_a_node_that_goes_has_gone_once_and_comes_back_once(watched: Watched) -> None:
    watched.let(2)
    watched.drive.seen[2].here, watched.drive.seen[2].trouble = False, "Connection refused"
    watched.let(5)
    assert watched.states == ["ok", "gone", "ok"]
    watched.drive.seen[2].here = True
    watched.let(5)
    assert [line["what"] for line in watched.lines("happened")] == ["gone", "back"]


def test_any_agent_that_is_waited_for_makes_its_node_late_after_a_while(watched: Watched) -> None:
    watched.drive.seen[0].waiting_for = [3]
    watched.let(0.6)
    assert watched.states == ["ok", "ok", "ok"]
    watched.let(2)
    assert watched.states == ["ok", "late", "ok"]


def test_nodes_that_wait_for_each_other_in_turn_are_not_late(watched: Watched) -> None:
    for k in range(1, 12):
        for node, seen in watched.drive.seen.items():
            seen.round, seen.waiting_for = k, [2 * k % 6] if node != 2 * k % 6 else []
        watched.let(0.4)
        assert "late" not in watched.states


def test_a_node_that_hangs_is_late_and_not_the_one_that_it_named_before(watched: Watched) -> None:
    """It was one round behind when it stopped, and has said that it waits for agent 2, whose row came afterwards."""
    watched.drive.seen[0].round = watched.drive.seen[2].round = 1
    watched.drive.seen[4].waiting_for = [2]
    watched.let(2, 4)
    assert watched.states == ["ok", "ok", "ok"]
    watched.let(4, 4)
    assert watched.states == ["ok", "ok", "late"]
