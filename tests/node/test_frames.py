"""What comes over a stream, before it is used: the codec and the inbox."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpp2.node.codec import OVERHEAD, RowFormat, decode, encode, message_limit, numbers, within
from dpp2.node.errors import PeerFault
from dpp2.node.fingerprints import fingerprinting
from dpp2.node.inbox import Inbox, Lane
from dpp2.node.limits import REPEATS, ROUNDS_IN_HAND
from dpp2.node.status import STATUS, status_of
from dpp2.node.v1 import wire_pb2

D = 3
PHASES = ("y", "z")
FORM = RowFormat(PHASES, D)
LARGEST = 2.0**40
BOUNDED = RowFormat(PHASES, D, largest=LARGEST)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


# --- codec ----------------------------------------------------------------------------------------------------


@given(
    senders=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5, unique=True).map(sorted),
    round_=st.integers(0, 2**63),
    data=st.data(),
)
def test_a_frame_survives_the_wire(senders: list[int], round_: int, data: st.DataObject) -> None:
    rows = data.draw(arrays(np.float64, (len(senders), D), elements=FINITE))
    sent = encode("run", round_, "y", senders, rows)
    assert len(sent) <= message_limit(FORM, tuple(senders))
    back = decode(sent, FORM)
    assert (back.run, back.round, back.phase, back.senders) == ("run", round_, "y", tuple(senders))
    assert back.rows == rows.tobytes()
    np.testing.assert_array_equal(numbers(back.rows, D), rows)


@given(
    senders=st.lists(st.integers(0, 2**32 - 1), max_size=5),
    round_=st.integers(0, 2**64 - 1),
    run=st.text(max_size=9),
    phase=st.text(max_size=3),
    width=st.integers(0, 40),
)
def test_two_halves_of_a_frame_are_what_protobuf_makes_of_the_whole(
    senders: list[int], round_: int, run: str, phase: str, width: int
) -> None:
    rows = np.arange(float(len(senders) * width)).reshape(len(senders), width)
    whole = wire_pb2.Frame(run=run, round=round_, phase=phase, senders=senders, rows=rows.tobytes())
    assert encode(run, round_, phase, senders, rows) == whole.SerializeToString()


@given(arrays(np.float64, st.integers(1, 300)), st.booleans())
def test_finite_is_what_numpy_calls_finite(row: Any, huge: bool) -> None:
    row[0] = np.finfo(np.float64).max if huge else row[0]  # its last byte is that of an infinity
    assert within(row.tobytes(), np.finfo(np.float64).max) == bool(np.isfinite(row).all())


@given(arrays(np.float64, st.integers(1, 300)), st.integers(-1000, 1000), st.floats(0.5, 1), st.booleans())
def test_within_is_what_numpy_calls_so(row: Any, exponent: int, mantissa: float, edge: bool) -> None:
    """At the bound itself, too, on which side of it the last byte alone does not tell."""
    largest = np.ldexp(mantissa, exponent)
    row[0] = -largest if edge else row[0]
    assert within(row.tobytes(), float(largest)) == bool((np.abs(row) <= largest).all())
    row[-1] = np.nextafter(largest, np.inf)
    assert not within(row.tobytes(), float(largest))


def test_other_byte_orders_leave_as_little_endian() -> None:
    rows = np.arange(3.0).reshape(1, 3)
    assert encode("r", 0, "y", [0], rows.astype(">f8")) == encode("r", 0, "y", [0], rows)


@pytest.mark.parametrize(
    ("kind", "senders", "rows"),
    [
        ("wrong dimension", [], b""),
        ("wrong dimension", [0], b""),
        ("wrong dimension", [0], bytes(8 * D - 1)),
        ("wrong dimension", [0], bytes(8 * D + 8)),
        ("wrong dimension", [0, 1], bytes(8 * D)),
        ("bad senders", [1, 0], bytes(16 * D)),
        ("bad senders", [1, 1], bytes(16 * D)),
        ("not finite", [0], np.array([0, np.nan, 0]).tobytes()),
        ("not finite", [0], np.array([0, 0, np.inf]).tobytes()),
        ("not finite", [0], np.array([-np.inf, 0, 0]).tobytes()),
        ("too large", [0], np.array([0, -np.nextafter(LARGEST, np.inf), 0]).tobytes()),
    ],
)
def test_frames_that_are_wrong_by_themselves(kind: str, senders: list[int], rows: bytes) -> None:
    frame = wire_pb2.Frame(run="run", round=1, phase="y", senders=senders, rows=rows)
    with pytest.raises(PeerFault) as fault:
        decode(frame.SerializeToString(), BOUNDED)
    assert fault.value.kind == kind
    assert status_of(fault.value) == STATUS[kind]


@given(st.binary(max_size=60))
def test_whatever_bytes_come_are_a_fault(content: bytes) -> None:
    with pytest.raises(PeerFault):
        decode(content, FORM)


# --- inbox ----------------------------------------------------------------------------------------------------


FINGERPRINT = fingerprinting(bytes(range(32)))


class Stage:
    """An inbox with one lane to each neighbour, which all deliver their frames in order, and as fast as they like."""

    def __init__(self, senders: dict[int, tuple[int, ...]] | None = None, d: int = D) -> None:
        self.d = d
        form = RowFormat(PHASES, d, largest=LARGEST)
        self.box = Inbox("run", form, senders or {7: (7,), 2: (2,), 5: (5,)}, FINGERPRINT)
        self.lanes = {node: self.box.lane(node, 0) for node in self.box.senders}

    def row(self, sender: int, value: float = 1.0) -> Any:
        return np.full(self.d, value + sender)

    def take(
        self,
        sender: int = 2,
        round_: int = 0,
        phase: str = "y",
        *,
        run: str = "run",
        value: float = 1.0,
        lane: Lane | None = None,
    ) -> bool:
        frame = encode(run, round_, phase, [sender], self.row(sender, value)[None])
        return self.box.take(frame, lane or self.lanes[sender])

    def state(self) -> Any:
        """Everything an inbox holds, to compare."""
        box = self.box
        return copy.deepcopy((box.round, box.durable, [(n, p.rows, p.fingerprints) for n, p in box._taken.items()]))


LONG = 100  # numbers, which are remembered by their tag
IN_ORDER = [(k, phase) for k in range(3) for phase in PHASES]


@pytest.mark.parametrize("d", [D, LONG])
@given(st.permutations([sender for sender in (2, 5, 7) for _ in IN_ORDER]), st.data())
def test_any_order_of_neighbours_and_any_copies(d: int, order: list[int], data: st.DataObject) -> None:
    stage, came = Stage(d=d), set()
    box = stage.box
    due = {sender: iter(IN_ORDER) for sender in (2, 5, 7)}
    for sender in order:
        k, phase = next(due[sender])
        assert box.missing(k, phase) == {a for a in (2, 5, 7) if (a, k, phase) not in came}
        came.add((sender, k, phase))
        assert stage.take(sender, k, phase) == (not box.missing(k, phase))
        before = stage.state()
        again = data.draw(st.sampled_from(sorted(came)))
        stage.take(*again)
        assert stage.state() == before
    for k in range(3):
        for phase in PHASES:
            assert box.complete(k, phase)
            rows, fingerprints = box.pop(k, phase)
            assert rows == [stage.row(sender).tobytes() for sender in (2, 5, 7)]
            assert fingerprints == [FINGERPRINT(row) for row in rows]
        box.advance(k + 1)
    assert not any(phase.rows for phase in box._taken.values())


def test_several_senders_in_one_frame() -> None:
    stage = Stage({2: (2, 7), 5: (5,)})
    both = np.array([stage.row(2), stage.row(7)])
    assert not stage.box.take(encode("run", 0, "y", (2, 7), both), stage.lanes[2])
    assert stage.take(5)
    assert stage.box.pop(0, "y")[0] == [both.tobytes(), stage.row(5).tobytes()]


FAULTS: dict[str, dict[str, Any]] = {
    "wrong run": {"run": "another"},
    "bad phase": {"phase": "q"},
    "unknown sender": {"sender": 3},
    "stale": {"round_": 1},
    "future": {"round_": 4},
    "other bytes": {"round_": 3, "value": 9.0},
    "not finite": {"round_": 3, "phase": "z", "value": np.nan},
    "too large": {"round_": 3, "phase": "z", "value": -(2.0**41)},
}


@pytest.mark.parametrize("d", [D, LONG])
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_leaves_everything_as_it_was(kind: str, d: int) -> None:
    stage = Stage(d=d)
    stage.box.advance(3)
    stage.box.forget(2)
    stage.lanes[2] = stage.box.lane(2, 3)
    stage.take(2, 3)
    before = stage.state()
    with pytest.raises(PeerFault) as fault:
        stage.take(**FAULTS[kind], lane=stage.lanes[2])
    assert fault.value.kind == kind
    assert stage.state() == before


@pytest.mark.parametrize(
    ("kind", "senders"), [("unknown sender", (2, 5)), ("unknown sender", (5,)), ("bad senders", (2,))]
)
def test_a_frame_holds_a_row_of_everybody_behind_the_stream(kind: str, senders: tuple[int, ...]) -> None:
    stage = Stage({2: (2, 7), 5: (5,)})
    before = stage.state()
    with pytest.raises(PeerFault) as fault:
        stage.box.take(encode("run", 0, "y", senders, np.ones((len(senders), D))), stage.lanes[2])
    assert fault.value.kind == kind
    assert stage.state() == before


@pytest.mark.parametrize(("k", "phase"), [(2, "y"), (3, "y"), (3, "z")])
def test_what_may_come_after_the_first_frame(k: int, phase: str) -> None:
    """A copy of anything that may have to be run again, and what is due; nothing else."""
    stage = Stage()
    stage.box.advance(3)
    stage.box.forget(2)
    lane = stage.box.lane(2, 3)
    stage.take(2, 3, "y", lane=lane)
    stage.take(2, k, phase, lane=lane)


def test_a_neighbour_that_leaves_a_round_out_is_refused() -> None:
    """Everything after it would have to be kept until it came."""
    stage = Stage()
    stage.take(2, 0, "y")
    for k, phase in ((1, "y"), (1, "z"), (100, "y"), (2**60, "y")):
        with pytest.raises(
            PeerFault, match=rf"future: round {k}, phase '{phase}' came, where round 0, phase 'z' is due"
        ):
            stage.take(2, k, phase)
    assert sorted(stage.box._taken) == [0]


def test_copies_without_end_are_refused() -> None:
    stage = Stage()
    stage.take(2)
    for _ in range(REPEATS):
        stage.take(2)
    with pytest.raises(PeerFault, match="too many copies: round 0, phase 'y'"):
        stage.take(2)
    stage.take(2, lane=stage.box.lane(2, 0))  # on a new stream it is no copy


def test_what_was_asked_for_is_not_stale() -> None:
    """A node may get on, and save, between the moment when it asks and the moment when the answer comes."""
    stage = Stage()
    asked = stage.box.lane(2, 1)
    stage.box.advance(4)
    stage.box.forget(3)
    before = stage.state()
    for k in (1, 2):
        for phase in PHASES:
            assert not stage.take(2, k, phase, lane=asked)
    assert stage.state() == before
    stage.take(2, 3, lane=asked)
    with pytest.raises(PeerFault, match="stale"):
        stage.take(2, 0, lane=asked)


@pytest.mark.parametrize("d", [D, LONG])
def test_a_copy_of_what_was_used_is_ignored_and_not_kept(d: int) -> None:
    """Honest peers send again after a reconnection; otherwise each copy would stay for ever."""
    stage = Stage(d=d)
    for sender in (2, 5, 7):
        stage.take(sender)
    stage.box.pop(0, "y")
    before = stage.state()
    assert not stage.take(2)
    stage.box.advance(1)
    assert not stage.take(5)
    assert stage.state()[2:] == before[2:]
    with pytest.raises(PeerFault, match="other bytes"):
        stage.take(2, value=5.0)


def test_what_is_durable_is_forgotten() -> None:
    stage = Stage()
    for k in range(3):
        for sender in (2, 5, 7):
            for phase in PHASES:
                stage.take(sender, k, phase)
        for phase in PHASES:
            stage.box.pop(k, phase)
        stage.box.advance(k + 1)
    assert sorted(stage.box._taken) == list(range(6))
    stage.box.forget(2)
    assert sorted(stage.box._taken) == [4, 5]


def test_what_is_expected_does_not_pile_up() -> None:
    stage = Stage()
    for k in range(50):
        for phase in PHASES:
            for sender in (2, 5, 7):
                stage.take(sender, k, phase)
            stage.box.pop(k, phase)
        stage.box.advance(k + 1)
    assert len(stage.box._headers) <= 2


@pytest.mark.parametrize(("most", "rounds"), [(1 << 20, ROUNDS_IN_HAND), (4 * OVERHEAD + 200, 2), (1, 1)])
def test_so_much_is_in_hand_and_no_more(most: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rounds, as many as there is room for if that is fewer, and in any case the one that is being run."""
    monkeypatch.setattr("dpp2.node.limits.BYTES_IN_HAND", most)
    stage = Stage()
    lane, box = stage.lanes[2], stage.box
    for k in range(rounds):
        for phase in PHASES:
            assert not box.has_enough(lane)
            stage.take(2, k, phase)
    assert box.has_enough(lane)
    box.advance(1)
    assert not box.has_enough(lane)


def test_nobody_to_wait_for() -> None:
    box = Inbox("run", FORM, {}, FINGERPRINT)
    assert box.complete(0, "y")
    assert box.missing(0, "y") == set()
    assert box.pop(0, "y") == ([], [])


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12), st.sampled_from("yzq"), st.integers(0, 1))))
def test_whatever_comes_first_stays(frames: list[tuple[int, int, str, int]]) -> None:
    """Against a dictionary: a row is stored once, and never replaced."""
    stage = Stage()
    model: dict[tuple[int, str, int], int] = {}
    for sender, k, phase, value in frames:
        before = stage.state()
        try:
            stage.take(sender, k, phase, value=float(value), lane=stage.lanes.get(sender, stage.lanes[2]))
        except PeerFault as fault:
            assert stage.state() == before
            assert fault.kind in ("unknown sender", "future", "bad phase", "other bytes")  # noqa: PT017
        else:
            assert model.setdefault((k, phase, sender), value) == value
    for (k, phase, sender), value in model.items():
        kept = stage.box._taken[2 * k + PHASES.index(phase)].rows[sender]
        assert kept == np.full(D, float(value + sender)).tobytes()
