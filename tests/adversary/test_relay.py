"""A relay passes on whatever one side does, and writes it down first."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpp2.adversary.tap import record
from dpp2.adversary.tap.captures import read
from dpp2.adversary.tap.decode import RoundSpan
from dpp2.adversary.tap.local import RelayTap, relayed
from dpp2.adversary.tap.record import Kind, Opening, WireRecorder
from dpp2.adversary.tap.relay import Relay, parse_link
from dpp2.errors import BadInput
from tests.adversary.tapped import assert_what_was_sent, decoded, one_each, run_tapped, small, tapped

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[Streams, Streams, Relay]]:
    """(dialler, listener) with a relay between them."""
    accepted: asyncio.Queue[Streams] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accepted.put((reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    relay = Relay(folder)
    try:
        address = await relay.open("0-1", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        dialler = await asyncio.open_connection(*address.split(":"))
        yield dialler, await asyncio.wait_for(accepted.get(), 5), relay
        dialler[1].close()
    finally:
        await relay.close()
        server.close()


async def test_bytes_pass_unchanged_both_ways_and_are_recorded(tmp_path: Path) -> None:
    request, reply = os.urandom(3_000_000), os.urandom(1_000_000)
    async with connected(tmp_path) as (dialler, listener, _):
        dialler[1].write(request)
        listener[1].write(reply)
        assert await listener[0].readexactly(len(request)) == request
        assert await dialler[0].readexactly(len(reply)) == reply
    (conversation,) = read([tmp_path]).conversations
    assert conversation.link == "0-1"
    assert [run.data for runs in conversation.sent for run in runs] == [request, reply]
    assert all(run.missing == 0 for runs in conversation.sent for run in runs)
    times = [when for _, when in conversation.sent[0][0].times]
    assert times == sorted(times)


async def test_a_reader_that_does_not_read_slows_the_writer_instead_of_filling_memory(tmp_path: Path) -> None:
    async with connected(tmp_path) as (dialler, listener, _):
        dialler[1].write(bytes(64 << 20))
        await asyncio.sleep(0.5)
        passed = sum(len(run.data) for run in read([tmp_path]).conversations[0].sent[0])
        assert passed < 32 << 20  # what fits into the sockets' buffers
        assert len(await listener[0].readexactly(64 << 20)) == 64 << 20


async def test_the_end_of_one_direction_is_passed_on_and_the_other_stays_open(tmp_path: Path) -> None:
    async with connected(tmp_path) as (dialler, listener, _):
        dialler[1].write(b"question")
        dialler[1].write_eof()
        assert await listener[0].read() == b"question"
        listener[1].write(b"answer")
        listener[1].close()
        assert await dialler[0].read() == b"answer"
    content = next(tmp_path.glob("*.tap")).read_bytes()
    kinds = [segment.kind for segment in record.segments(content)]
    assert kinds == [Kind.OPEN, Kind.FORWARD, Kind.FORWARD_END, Kind.BACK, Kind.BACK_END]


async def test_a_reset_is_passed_on_as_a_reset(tmp_path: Path) -> None:
    async with connected(tmp_path) as (dialler, listener, _):
        dialler[1].write(b"x")
        await listener[0].readexactly(1)
        link = dialler[1].get_extra_info("socket")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        dialler[1].transport.abort()
        with pytest.raises(ConnectionResetError):
            await listener[0].read()


async def test_a_target_that_is_not_there_closes_the_dialler_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    relay = Relay(tmp_path)
    address = await relay.open("0-1", f"127.0.0.1:{port}")
    reader, writer = await asyncio.open_connection(*address.split(":"))
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await relay.close()
    assert f"link 0-1: 127.0.0.1:{port} does not answer" in caplog.text


async def test_a_full_disk_ends_the_record_and_not_the_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, buffers: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with connected(tmp_path) as (dialler, listener, relay):
        monkeypatch.setattr(os, "writev", full)
        dialler[1].write(b"still there")
        assert await listener[0].readexactly(11) == b"still there"
        assert relay.recorder.failure is not None
        assert "No space left" in relay.recorder.failure


@given(
    pieces=st.lists(st.tuples(st.sampled_from([Kind.FORWARD, Kind.BACK]), st.binary(max_size=30)), max_size=8),
    cut=st.integers(0, 400),
)
def test_a_record_cut_anywhere_reads_up_to_its_last_whole_segment(
    pieces: list[tuple[Kind, bytes]], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    recorder = WireRecorder(tmp_path_factory.mktemp("record"))
    recorder.opened(1, Opening("0-1", "a:1", "b:2"))
    for kind, data in pieces:
        recorder.append(1, kind, data)
    recorder.close()
    content = recorder.path.read_bytes()
    kept = max(len(content) - cut, len(record.MAGIC))
    whole = [(segment.kind, segment.data) for segment in record.segments(content)][1:]
    found = [(segment.kind, segment.data) for segment in record.segments(content[:kept])][1:]
    assert whole == pieces
    assert found == pieces[: len(found)]
    assert kept - record.sound(content[:kept]) < record._HEADER.size + 100
    assert len(found) == len(pieces) or cut


def test_a_damaged_segment_ends_the_record_there(tmp_path: Path) -> None:
    recorder = WireRecorder(tmp_path)
    recorder.opened(1, Opening("0-1", "a:1", "b:2"))
    recorder.append(1, Kind.FORWARD, b"good")
    recorder.append(1, Kind.FORWARD, b"spoilt")
    recorder.close()
    content = bytearray(recorder.path.read_bytes())
    content[-1] ^= 1
    recorder.path.write_bytes(content)
    captured = read([recorder.path])
    assert captured.conversations[0].sent[0][0].data == b"good"
    assert "not a whole segment" in captured.gaps[0]


def test_each_process_has_its_own_file(tmp_path: Path) -> None:
    paths = []
    for _ in range(3):
        recorder = WireRecorder(tmp_path)
        recorder.close()
        paths.append(recorder.path.name)
    assert paths == ["relay-0001.tap", "relay-0002.tap", "relay-0003.tap"]


@pytest.mark.parametrize(
    "text", ["", "3-7", "3-7=1.2.3.4:5", "3=1.2.3.4:5,1.2.3.4:6", "3-7=:5,1.2.3.4:6", "3-7=1.2.3.4:5,1.2.3.4:99999"]
)
def test_a_bad_link_is_one_sentence(text: str) -> None:
    with pytest.raises(BadInput, match="--link"):
        parse_link(text)


async def test_an_address_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        relay = Relay(tmp_path)
        with pytest.raises(BadInput, match="to listen on"):
            await relay.open("0-1", "127.0.0.1:9", "{}:{}".format(*taken.getsockname()))
        await relay.close()


def test_one_relay_between_two_nodes_towards_the_one_that_is_dialled() -> None:
    addresses = {0: "a:1", 9: "a:1", 3: "b:2", 4: "b:2", 5: "c:3"}
    assert relayed(addresses, [(3, 9), (0, 4), (9, 5)]) == {(0, 4): "b:2", (5, 9): "c:3"}


async def test_killed_in_the_middle_of_a_run_it_comes_back_and_nothing_that_was_received_is_missing(
    tmp_path: Path,
) -> None:
    """What a relay passed on it had written down, so a kill costs the record nothing that an agent has received."""
    tap = RelayTap(tmp_path / "tap")
    async with tapped(small(run__rounds=60), tmp_path, one_each(4), tap) as nodes:
        await nodes.prepare()
        await nodes.release(30)
        await nodes.reach(10)
        first = tap.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await nodes.finish()
        assert tap.pid != first
    assert len(list((tmp_path / "tap").glob("relay-*.tap"))) == 2
    found = decoded(nodes, tmp_path / "tap")
    assert_what_was_sent(found.observation, nodes)
    assert found.summary.rounds == RoundSpan(0, 59)
    assert [gap for gap in found.summary.gaps if "whole segment" not in gap] == []


async def test_as_a_command_it_says_where_it_listens_and_ends_in_order(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dpp2.adversary.tap", "relay", "--out", str(tmp_path)),
        *("--link", "0-1=127.0.0.1:0,127.0.0.1:9"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    said = json.loads(await process.stdout.readline())
    assert said["listening"]["0-1"].startswith("127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_a_relay_process_gives_what_was_sent(tmp_path: Path) -> None:
    nodes = await run_tapped(small(), tmp_path, one_each(4), RelayTap(tmp_path / "tap"))
    found = decoded(nodes, tmp_path / "tap")
    assert_what_was_sent(found.observation, nodes)
    assert found.summary.gaps == ()
