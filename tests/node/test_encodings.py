"""Rows travel as their algorithm encodes them: fewer bytes, the same numbers, and bytes that are none are refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2.adversary.tap.local import RelayTap
from dpp2.algorithms import ALGORITHMS
from dpp2.algorithms.diff2 import Diff2Section
from dpp2.algorithms.pgtc import PgtcSection
from dpp2.node.codec import OVERHEAD, RowFormat, decode, encode, message_limit
from dpp2.node.errors import PeerFault
from dpp2.node.inbox import Inbox
from dpp2.node.v1 import wire_pb2
from tests.adversary.tapped import assert_what_was_sent, decoded, run_tapped
from tests.node.live import assert_same_run, networked, one_each, small

ENCODED: list[tuple[str, dict[str, Any]]] = [
    ("quantised", {"algorithm.name": "pgtc", "algorithm.compressor": "quantised", "algorithm.bits": 3}),
    ("top-k", {"algorithm.name": "pgtc", "algorithm.compressor": "top-k", "algorithm.keep": 2}),
    ("server", {"algorithm.name": "diff2", "network.topology": "star"}),
]
D = 5


@pytest.mark.parametrize("groups", [one_each(4), [[0, 3], [1, 2]]], ids=["one each", "pairs"])
@pytest.mark.parametrize("settings", [settings for _, settings in ENCODED], ids=[name for name, _ in ENCODED])
async def test_encoded_rows_give_the_embedded_run(settings: dict[str, Any], groups: Any, tmp_path: Path) -> None:
    """And what nodes put on the wire is what the metrics count, but for the headers of frames."""
    nodes = await networked(small(problem__dimension=D, **settings), tmp_path, groups)
    assert_same_run(nodes)
    if len(groups) == 4:  # otherwise some channels reach no wire
        outboxes = [node.shell.machine.outbox for node in nodes.nodes.values() if node.shell is not None]
        counted = int(nodes.simulation.result().metrics.bytes.sum())
        travelled, frames = sum(outbox.bytes for outbox in outboxes), sum(outbox.frames for outbox in outboxes)
        assert counted < travelled < counted + 60 * frames
        assert counted < 8 * D * frames


@pytest.mark.parametrize("settings", [settings for _, settings in ENCODED], ids=[name for name, _ in ENCODED])
async def test_an_eavesdropper_reads_encoded_rows(settings: dict[str, Any], tmp_path: Path) -> None:
    experiment = small(problem__dimension=D, **settings)
    tap = RelayTap(tmp_path / "tap")
    nodes = await run_tapped(experiment, tmp_path, one_each(4), tap)
    found = decoded(nodes, *sorted((tmp_path / "tap").glob("relay-*")))
    assert_what_was_sent(found.observation, nodes)
    assert found.summary.dimension == D


def test_plain_frames_are_as_they_always_were() -> None:
    """Of algorithms that encode nothing, no byte has changed: a frame does not even tell its dimension."""
    rows = np.arange(6.0).reshape(2, 3)
    frame = wire_pb2.Frame(run="run", round=3, phase="y", senders=[1, 4], rows=rows.tobytes())
    assert encode("run", 3, "y", [1, 4], rows, RowFormat(("y",), 3)) == frame.SerializeToString()
    encoding = [name for name in ALGORITHMS.names if ALGORITHMS[name].model_validate({}).encodes]
    assert encoding == ["pgtc", "diff2"]


TOP_2, LEVELS, SERVER = (
    RowFormat.of(PgtcSection(compressor="top-k", keep=2), D),
    RowFormat.of(PgtcSection(compressor="quantised", bits=4), D),
    RowFormat.of(Diff2Section(), D),
)


@pytest.mark.parametrize(
    ("form", "phase", "rows", "dimension"),
    [
        (TOP_2, "cx", b"\xf8" + bytes(16), D),  # five flags, two numbers
        (TOP_2, "cx", b"\xc0" + b"\xff" * 16, D),  # nan
        (TOP_2, "cx", bytes(16), D),  # a byte too few
        (LEVELS, "cx", b"\xff" * 8 + bytes(3), D),  # a step that is nan
        (LEVELS, "cx", b"\x00" * 6 + b"\xf0\x7f" + bytes(3), D),  # one that is infinite
        (LEVELS, "cx", bytes(11), D + 1),  # of another dimension, in as many bytes
        (LEVELS, "cx", bytes(11), 0),
        (SERVER, "x_new", bytes(8 * D), D),  # a client speaks where only the server does
    ],
)
def test_rows_that_are_none_are_refused(form: RowFormat, phase: str, rows: bytes, dimension: int) -> None:
    frame = wire_pb2.Frame(run="run", round=1, phase=phase, senders=[1], rows=rows, dimension=dimension)
    with pytest.raises(PeerFault) as fault:
        decode(frame.SerializeToString(), form)
    assert fault.value.kind in ("wrong dimension", "not finite")


def test_nothing_to_say_takes_no_bytes() -> None:
    said = encode("run", 1, "x_new", [1, 2], np.zeros((2, D)), SERVER)
    assert decode(said, SERVER).rows == b""
    assert SERVER.unpack("x_new", (1, 2), b"") == bytes(16 * D)
    assert message_limit(SERVER, (1, 2)) <= OVERHEAD + 16 + 16 * D


def test_a_crowd_of_senders_without_rows_costs_nothing() -> None:
    """In DIFF2 a client that is silent takes no bytes: a frame of senders alone must not become a matrix of zeros."""
    box = Inbox("run", RowFormat.of(Diff2Section(), 100_000), {1: (1,)}, bytes)
    frame = wire_pb2.Frame(run="run", round=0, phase="x_new", senders=range(1, 100_000), dimension=100_000)
    with pytest.raises(PeerFault, match="unknown sender"):
        box.take(frame.SerializeToString(), box.lane(1, 0))


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        (RowFormat.of(PgtcSection(compressor="top-k", keep=1), D), b"\xf8" + struct.pack("<d", 7.0)),  # one for all
        (TOP_2, b"\xc1" + struct.pack("<dd", 1.0, 2.0)),  # a flag beyond the last entry
        (TOP_2, b"\x80" + struct.pack("<dd", 1.0, 2.0)),  # a number that belongs to nobody
        (LEVELS, struct.pack("<d", -1.0) + b"\xff\xff\xf0"),  # a negative step
        (LEVELS, struct.pack("<d", 1e308) + b"\xff\xff\xf0"),
    ],
)
def test_a_row_has_one_encoding_only(form: RowFormat, rows: bytes) -> None:
    """Otherwise the same numbers could come twice as different bytes, or numbers that no compressor makes."""
    frame = wire_pb2.Frame(run="run", round=1, phase="cx", senders=[1], rows=rows, dimension=D)
    with pytest.raises(PeerFault, match="not finite"):
        decode(frame.SerializeToString(), form)
