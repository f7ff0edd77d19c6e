"""From the lines of a run to what is shown of it: bounded, and unmoved by lines that are not ours."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dpp2 import privacy
from dpp2.page.documents import compact
from dpp2.page.run_state import MOST_EVENTS, MOST_POINTS, MOST_ROUNDS, RunState
from dpp2.store.events import Began, Ended, EventLog, EventReader, Happened, NodeState, Rounds


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def taken(path: Path) -> RunState:
    state = RunState()
    for line in EventReader(path).lines()[0]:
        state.take(line)
    return state


def test_a_run_from_its_first_line_to_its_last(written: Path) -> None:
    log = EventLog(written, clock=iter(range(1000, 2000)).__next__)
    log.add(Began(0, "id", 300, "grpc", True, True, "relay", [[0, 1], [2]]))
    nodes = [NodeState(0, 12, "ok", 500, 0), NodeState(2, 11, "late", 400, 3)]
    log.add(Rounds(11, 2.0, 900, [[0, 4.0, 3.0, 1.0], [10, 2.0, 1.5, 0.5]], nodes))
    log.add(Happened(11, "gone", "node 2 has gone"))
    state = taken(written)
    document = state.progress(1003.0, whole=True)
    assert (document.status, document.round, document.bytes) == ("running", 11, 900)
    assert [event.what for event in document.events] == ["gone", "began"]
    assert [node.state for node in document.nodes] == ["ok", "late"]
    assert state.began is not None
    assert state.began["groups"] == [[0, 1], [2]]
    log.add(Ended(300, "stopped", "by privacy.budget", {"accuracy": 0.9}))
    state = taken(written)
    assert state.over
    assert state.progress(1004.0, whole=True).report == {"accuracy": 0.9}


def test_a_run_that_says_nothing_any_more_may_have_died(written: Path) -> None:
    log = EventLog(written, clock=lambda: 1000.0)
    log.add(Began(0, "id", 300, "embedded", True))
    assert taken(written).progress(1010.0, whole=True).status == "running"
    assert taken(written).progress(1020.0, whole=True).status == "silent"


def test_points_of_a_resumed_run_take_the_place_of_those_that_were_lost() -> None:
    state = RunState()
    state.take(_rounds(20, [[k, float(k), 0.0, 0.0] for k in range(20)]))
    assert [point[0] for point in state.progress(0.0, whole=False).points] == list(range(20))
    state.take(_rounds(12, [[10, 99.0, 0.0, 0.0], [11, 99.0, 0.0, 0.0]]))
    told = state.progress(0.0, whole=False)
    assert told.since == 10
    assert [point[0] for point in state.progress(0.0, whole=True).points] == list(range(12))


def test_another_run_in_the_same_place_begins_anew(written: Path) -> None:
    log = EventLog(written, clock=lambda: 1000.0)
    log.add(Began(0, "first", 300, "grpc", True))
    log.add(Rounds(20, 1.0, 8, [[0, 1.0, 1.0, 1.0]]))
    log.add(Began(0, "second", 100, "grpc", True))
    document = taken(written).progress(1000.0, whole=True)
    assert (document.round, list(document.points), [event.what for event in document.events]) == (0, [], ["began"])


def test_it_stays_small_whatever_a_run_writes() -> None:
    """Ten thousand rounds, and as many events."""
    state = RunState()
    sizes = []
    for k in range(0, 10_000, 5):
        state.take(_rounds(k, [[n, 1.0, 1.0, 1.0] for n in range(k, k + 5)]))
        state.take({"kind": "happened", "at": 1.0, "round": k, "what": "refused", "text": "x" * 5000})
        if k % 1000 == 0:
            sizes.append(len(compact(state.progress(1.0, whole=True))))
    document = state.progress(1.0, whole=True)
    assert len(document.points) <= MOST_POINTS
    assert (document.points[0][0], document.points[-1][0]) == (0, 9999)
    assert len(document.events) == MOST_EVENTS
    assert max(sizes[2:]) < 1.1 * min(sizes[2:])


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "rounds", "at": 1.0, "round": 3},
        {"kind": "rounds", "at": 1.0, "round": 3, "seconds": 1, "bytes": 1, "points": [["x"]]},
        {"kind": "rounds", "at": 1.0, "round": 3, "seconds": 1, "bytes": 1, "nodes": [{"node": []}]},
        {"kind": "ended", "at": 1.0, "round": 3, "how": "finished", "report": {"a": "b"}},
        {"kind": "rounds", "at": 1.0, "round": 3, "seconds": 1, "bytes": 1, "points": [[None, 1, 2, 3]]},
        {"kind": "rounds", "at": 1.0, "round": 3, "seconds": 1, "bytes": 1, "points": [[3]]},
        {"kind": "rounds", "at": 1.0, "round": 3, "seconds": 1, "bytes": 1, "points": 5},
        {"kind": "rounds", "at": 1.0, "round": 3, "seconds": 1, "bytes": 1, "nodes": {"a": 1}},
        {"kind": "rounds", "at": 1.0, "round": 3, "seconds": 1, "bytes": float("inf")},
        {"kind": "began", "at": 1.0, "round": 0, "run_id": "q", "rounds": 10**12},
        {"kind": "began", "at": 1.0, "round": 0, "run_id": "q", "rounds": 5, "groups": [["a"]]},
        {"kind": "began", "at": 1.0, "round": 0, "run_id": {}, "rounds": 5},
        {"kind": "ended", "at": 1.0, "round": 3, "how": "__proto__"},
        {"kind": "ended", "at": 1.0, "round": 3, "how": "finished", "report": [1]},
        {"kind": "else", "at": 1.0, "round": 3},
    ],
)
def test_lines_that_nobody_of_ours_wrote_change_nothing(line: dict[str, Any]) -> None:
    state = RunState()
    state.take(_rounds(2, [[1, 4.0, 3.0, 1.0]]))
    before = state.progress(1.0, whole=True)
    state.take(line)
    assert state.progress(1.0, whole=True) == before
    state.take(_rounds(4, [[3, 2.0, 1.0, 1.0]]))  # and those that come after it are taken
    assert [point[0] for point in state.progress(1.0, whole=True).points] == [1, 3]


def test_a_run_has_as_many_rounds_as_can_be_accounted_for() -> None:
    assert privacy.MOST_ROUNDS == MOST_ROUNDS


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "rounds", "at": 1.0, "round": -1}',
        '{"kind": "rounds", "at": 1.0, "round": true}',
        '{"kind": "rounds", "at": 1.0, "round": 99999999999999999999}',
        '{"kind": "rounds", "at": NaN, "round": 1}',
        '{"kind": "rounds", "at": 1e999, "round": 1}',
        '{"kind": [], "at": 1.0, "round": 1}',
        "[" * 100_000,
        "x" * 3_000_000,
        "\0",
    ],
)
def test_what_is_no_line_of_a_run_is_not_read(text: str, written: Path) -> None:
    whole = json.dumps({"kind": "rounds", "at": 1.0, "round": 3})
    written.write_text(f"{text}\n{whole}\n")
    reader, read = EventReader(written), []
    for _ in range(5):  # a megabyte at a time
        read += reader.lines()[0]
    assert [line["round"] for line in read] == [3]


def test_nobody_waits_for_a_pipe_in_the_place_of_the_file(written: Path) -> None:
    os.mkfifo(written)
    assert EventReader(written).lines() == ([], False)


def test_half_a_line_is_read_when_it_is_whole(written: Path) -> None:
    line = json.dumps({"kind": "rounds", "at": 1.0, "round": 3})
    written.write_text(line[:10])
    reader = EventReader(written)
    assert reader.lines() == ([], False)
    with written.open("a") as file:
        file.write(line[10:] + "\nnot JSON\n[1]\n")
    assert [found["round"] for found in reader.lines()[0]] == [3]


def test_a_file_that_was_replaced_is_read_from_its_beginning(written: Path) -> None:
    line = json.dumps({"kind": "rounds", "at": 1.0, "round": 3}) + "\n"
    written.write_text(2 * line)
    reader = EventReader(written)
    assert len(reader.lines()[0]) == 2
    written.unlink()
    written.with_name("other").write_text(line)
    written.with_name("other").rename(written)
    assert reader.lines()[1]


def test_a_log_that_cannot_be_written_says_nothing_and_stops_nobody(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "no" / "such" / "folder.jsonl")
    log.add(Began(0, "id", 300, "embedded", True))
    assert not log.due()
    log.close()


def test_lines_on_rounds_become_rarer_in_a_long_run(tmp_path: Path) -> None:
    """Ten hours in steps of a tenth of a second: a file of some thousand lines."""
    now = 0.0
    log = EventLog(tmp_path / "events.jsonl", clock=lambda: now)
    log.add(Began(0, "id", 300, "embedded", True))
    due = 0
    for step in range(360_000):
        now = step / 10
        due += log.due()
    log.close()
    assert 5_000 < due < 10_000


def _rounds(k: int, points: list[list[float]]) -> dict[str, Any]:
    return {"kind": "rounds", "at": 1.0, "round": k, "seconds": 1.0, "bytes": 8, "points": points}


def test_nodes_of_a_run_that_is_over_are_where_it_ended() -> None:
    node = {"node": 0, "round": 7, "state": "late", "bytes": 1, "refused": 0}
    for how, left in (("finished", (9, "finished")), ("interrupted", (9, "ended")), ("failed", (7, "ended"))):
        state = RunState()
        state.take({**_rounds(7, []), "nodes": [node]})
        state.take({"kind": "ended", "at": 2.0, "round": 9, "how": how})
        assert [(one.round, one.state) for one in state.progress(2.0, whole=True).nodes] == [left]


def test_where_nobody_sees_a_gap_it_is_known_how_fast_a_run_goes() -> None:
    state = RunState()
    for k in range(5000):
        state.take({**_rounds(k, []), "seconds": k / 10})
    pace = state.progress(1.0, whole=False).pace
    assert (pace[0], pace[-1]) == ((0.0, 0), (499.9, 4999))
    assert 200 < len(pace) <= MOST_POINTS
    state.take(_rounds(5000, [[5000, 1.0, 0.5, 0.5]]))
    assert state.progress(1.0, whole=False).pace == []


def test_of_nodes_that_were_stopped_what_is_charged_counts(written: Path) -> None:
    """They may have sent more than they have told of, and more than all of them have completed."""
    log = EventLog(written, clock=lambda: 1000.0)
    log.add(Began(0, "id", 300, "grpc", True, groups=[[0, 1], [2]]))
    log.add(Rounds(79, 2.0, 900, nodes=[NodeState(0, 81, "ok", 500, 0), NodeState(2, 79, "ok", 400, 0)]))
    log.add(Ended(130, "interrupted", "stopped", charged=133))
    state = taken(written)
    document = state.progress(1001.0, whole=True)
    assert (document.status, document.round, document.charged, state.accounted) == ("interrupted", 130, 133, 133)
    assert [node.round for node in document.nodes] == [130, 130]
    log.add(Began(130, "id", 300, "grpc", True))
    assert taken(written).progress(1001.0, whole=True).charged is None


def test_a_run_that_has_failed_has_come_as_far_as_it_has_told(written: Path) -> None:
    log = EventLog(written, clock=lambda: 1000.0)
    log.add(Began(0, "id", 300, "grpc", True))
    log.add(Rounds(79, 2.0, 900))
    log.add(Ended(0, "failed", "node 2 has failed"))
    assert taken(written).progress(1001.0, whole=True).round == 79


def test_a_silent_run_has_no_rate_and_says_since_when(written: Path) -> None:
    log = EventLog(written, clock=iter([1000.0, 1001.0, 1002.0, 1003.0]).__next__)
    log.add(Began(0, "id", 300, "embedded", True))
    log.add(Rounds(10, 1.0, 9))
    log.add(Rounds(20, 2.0, 9))
    state = taken(written)
    assert state.progress(1003.0, whole=True).rate == pytest.approx(10.0)
    silent = state.progress(1030.0, whole=True)
    assert (silent.status, silent.rate, silent.at) == ("silent", None, 1002.0)
    assert [event.what for event in silent.events] == ["silent", "began"]
    assert "may have died" in silent.events[0].text
    assert [event.what for event in state.progress(1004.0, whole=True).events] == ["began"]


def test_a_spike_of_one_round_is_still_there_when_points_are_thinned() -> None:
    state = RunState()
    for k in range(0, 5000, 5):
        state.take(_rounds(k, [[n, 1e6 if n == 1234 else 1.0, 1.0, 1.0] for n in range(k, k + 5)]))
    points = state.progress(1.0, whole=True).points
    assert len(points) <= MOST_POINTS
    assert [point[0] for point in points if point[1] == 1e6] == [1234]
