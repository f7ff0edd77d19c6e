"""Who is missing, silent or stuck is named in plain lines, soon, when it changes, and then more and more rarely."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from dpp2.node.cluster import Cluster
from dpp2.orchestrator.drive import Drive
from dpp2.orchestrator.herald import Herald

CLUSTER = Cluster({0: "a:1", 1: "b:1", 2: "b:1", 3: "c:1"}, {})


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moving = Clock()
    monkeypatch.setattr(time, "monotonic", moving)
    return moving


class Watched:
    """A drive that nobody runs, and what is said of it."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.lines = clock, list[tuple[float, str]]()
        self.drive = Drive(CLUSTER, "ab", "0" * 64, window=1)
        self.herald = Herald(lambda line: self.lines.append((clock.now - 100, line)), clock)

    def let(self, seconds: float) -> list[tuple[float, str]]:
        """Time passes; what was said meanwhile."""
        before = len(self.lines)
        for _ in range(round(5 * seconds)):
            self.clock.now += 0.2
            self.drive._check_patience()
            self.herald.look(self.drive)
        return [(round(at, 1), line) for at, line in self.lines[before:]]

    def come(self, *nodes: int) -> None:
        for node in nodes:
            seen = self.drive.seen[node]
            seen.prepared = seen.here = True
            seen.allowed, seen.heard = 10, self.clock.now
        self.drive._note_prepared()

    def report(self) -> None:
        for seen in self.drive.seen.values():
            seen.heard = self.clock.now


@pytest.fixture
def watched(clock: Clock) -> Watched:
    return Watched(clock)


def spoken(lines: list[tuple[float, str]]) -> list[str]:
    return [line for _, line in lines]


def test_a_missing_node_is_named_within_five_seconds_and_then_more_rarely(watched: Watched) -> None:
    watched.come(0, 3)
    watched.drive.seen[1].trouble = "Connection refused"
    (at, line), *later = watched.let(200)
    assert at <= 5
    assert line == "round 0: waiting: node 1 (agents 1, 2; b:1) is not there yet (Connection refused)"
    assert set(spoken(later)) == {line}
    times = [at, *(at for at, _ in later)]
    gaps = [second - first for first, second in pairwise(times)]
    assert gaps == pytest.approx([10, 20, 40, 80], abs=0.5)


def test_a_change_is_said_soon_and_the_end_of_it_once(watched: Watched) -> None:
    watched.come(0)
    assert len(watched.let(8)) == 1
    watched.come(1)
    (line,) = spoken(watched.let(3))
    assert "node 3" in line
    assert "node 1" not in line
    watched.come(3)
    assert spoken(watched.let(1)) == ["round 0: all nodes are there"]


def test_a_short_absence_is_not_worth_a_line(watched: Watched) -> None:
    assert watched.let(2) == []
    watched.come(0, 1, 3)
    assert watched.let(2) == []


def test_a_node_that_goes_away_or_falls_silent_is_named(watched: Watched) -> None:
    watched.come(0, 1, 3)
    watched.drive.seen[3].here, watched.drive.seen[3].trouble = False, "Socket closed"
    assert "node 3 (c:1) has gone (Socket closed)" in spoken(watched.let(5))[0]
    watched.come(0, 1, 3)
    silent = spoken(watched.let(8))
    assert any("node 0 (a:1) does not answer: it is busy, paused or cut off" in line for line in silent)


def test_a_round_that_hangs_names_who_waits_for_whom(watched: Watched) -> None:
    watched.come(0, 1, 3)
    watched.drive.seen[0].waiting_for = [3]
    watched.drive.seen[0].refused = 7
    lines: list[str] = []
    for _ in range(12):
        watched.report()
        lines += spoken(watched.let(1))
    wanted = "no round ends: nodes 0 wait for rows of agents 3; nodes have turned away 7 frames or calls"
    assert len(lines) == 1
    assert wanted in lines[0]


def test_a_node_that_has_been_further_is_named_when_a_round_hangs(watched: Watched) -> None:
    watched.come(0, 1, 3)
    watched.drive.seen[0].waiting_for = [3]
    watched.drive.seen[3].most = 10
    lines: list[str] = []
    for _ in range(12):
        watched.report()
        lines += spoken(watched.let(1))
    assert "; node 3 (c:1) was in round 10 and is back in 0: a home must not come from a backup" in lines[0]


def test_many_missing_nodes_make_one_line(clock: Clock) -> None:
    drive = Drive(Cluster({agent: f"m{agent}:1" for agent in range(60)}, {}), "ab", "0" * 64, window=1)
    said = drive.absent()
    assert said.endswith("; and 52 more")
    assert len(said) < 400


PATIENT: list[tuple[float | None, Callable[[str | None], bool]]] = [
    (None, lambda failure: failure is None),
    (60.0, lambda failure: failure is not None and failure.startswith("given up after 60 s without progress: node 1")),
]


@pytest.mark.parametrize(("patience", "fits"), PATIENT, ids=["no limit", "a minute"])
def test_nothing_moves_for_longer_than_patience(
    patience: float | None, fits: Callable[[str | None], bool], clock: Clock
) -> None:
    watched = Watched(clock)
    watched.drive._patience = patience
    watched.come(0, 3)
    watched.let(59)
    assert watched.drive._failure is None
    watched.let(3)
    assert fits(watched.drive._failure)
