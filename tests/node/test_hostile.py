"""A neighbour with every right to speak that wants to fill memory: what waits, each way, is bounded in bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dpp2.node.codec import encode
from dpp2.node.errors import PeerFault, Refusals
from dpp2.node.hosting import Neighbour
from dpp2.node.limits import (
    CALM_REFUSALS,
    CHANNEL_OPTIONS,
    PAUSE_SECONDS,
    ROUNDS_IN_HAND,
    STREAMS,
    UNREAD_STREAMS,
    WINDOW,
    fixed_window,
    rounds_in_hand,
)
from dpp2.node.links import STREAM_ENDED
from dpp2.node.peers import EXCHANGE, Door
from dpp2.node.queues import Link
from dpp2.node.status import STATUS
from dpp2.node.tls import Identity, node_name, open_channel
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc
from dpp2.studies.bench.hostile import measure
from tests.node.live import SECONDS, Live, live, one_each, small

WIDE = 20_000  # numbers in a row
ROUNDS = 30
WORST = ("fills 60 connections", "leaves streams unread", "never reads")
VICTIM = 1  # 0 and 2 are its neighbours; 0 is played here


@asynccontextmanager
async def pair(folder: Path, *, rounds: int = ROUNDS, dimension: int = WIDE, tls: bool = True) -> AsyncIterator[Live]:
    """Nodes 1 and 2 of a triangle. Node 0 is not prepared: whoever has its certificate speaks for it."""
    experiment = small(
        network__topology="complete", network__agents=3, problem__dimension=dimension, run__rounds=rounds
    )
    async with live(experiment, folder, one_each(3), tls=tls) as nodes:
        await nodes.prepare(VICTIM, 2)
        yield nodes


def frames(nodes: Live, since: int) -> Iterator[bytes]:
    """Rows of agent 0: nobody can tell that it does not compute."""
    dimension = nodes.simulation.prepared.objective([0]).dimension
    for k in count(since):
        for phase in nodes.simulation.experiment.algorithm.phases:
            yield encode(nodes.run_id, k, phase, [0], np.zeros((1, dimension)))


def dial(nodes: Live, channel: grpc.aio.Channel, need: int = 0) -> Any:
    said = (("dpp2-run", nodes.run_id), ("dpp2-agents", "0"), ("dpp2-need", str(need)))
    return channel.stream_stream(EXCHANGE)(metadata=said, timeout=SECONDS)


def narrow(nodes: Live) -> grpc.aio.Channel:
    """Takes no more than it must without reading, however fast the line is."""
    assert nodes.tls is not None
    identity, address = Identity.load(nodes.tls / "node-0", []), f"127.0.0.1:{nodes.ports[VICTIM]}"
    return open_channel(identity, address, node_name([VICTIM]), [*CHANNEL_OPTIONS, *fixed_window(WINDOW)])


async def speak(nodes: Live, node: int, *, reads: bool) -> None:
    """Send everything that is due, for as long as it is taken."""
    async with nodes.channel(node, "node-0") as channel:
        while True:
            call = dial(nodes, channel)
            with suppress(*STREAM_ENDED):
                need = int(dict(await call.initial_metadata())["dpp2-need"])
                reading = asyncio.create_task(drain(call)) if reads else None
                for frame in frames(nodes, need):
                    await call.write(frame)
                    assert reading is None or not reading.done()
            call.cancel()
            await asyncio.sleep(0.05)


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def drain(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


def link_to_0(nodes: Live) -> Link:
    shell = nodes.nodes[VICTIM].shell
    assert shell is not None
    return shell.run.links[0]


# --- what waits to be read by a peer ----------------------------------------------------------------------------


def round_bytes(nodes: Live) -> int:
    return nodes.nodes[VICTIM].hosting.form.round_size((0,))


async def test_what_a_peer_does_not_read_does_not_pile_up(tmp_path: Path) -> None:
    """Its rows come, so rounds go on; ours wait for it on disk, not in memory, and are all there when it reads."""
    async with pair(tmp_path) as nodes:
        await nodes.release(ROUNDS, VICTIM, 2)
        speaking = [asyncio.create_task(speak(nodes, node, reads=node == 2)) for node in (VICTIM, 2)]
        await nodes.reach(ROUNDS, VICTIM, 2)
        outgoing = link_to_0(nodes).current
        assert outgoing is not None
        assert outgoing.held <= ROUNDS_IN_HAND * round_bytes(nodes)
        for task in speaking:
            await cancelled(task)
        async with nodes.channel(VICTIM, "node-0") as channel:
            call = dial(nodes, channel)
            sent = [await call.read() for _ in range(2 * ROUNDS)]
        shell = nodes.nodes[VICTIM].shell
        assert shell is not None
        recorded = (shell.run.folder.records.read(phase, k) for k in range(ROUNDS) for phase in "yz")
        for frame, rows in zip(sent, recorded, strict=True):
            assert frame.endswith(rows.tobytes())


async def test_a_peer_that_does_not_read_is_let_go_and_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as nodes, narrow(nodes) as channel:
        await nodes.release(20, VICTIM, 2)
        speaking = [asyncio.create_task(speak(nodes, node, reads=True)) for node in (VICTIM, 2)]
        await nodes.reach(20, VICTIM, 2)
        await cancelled(speaking[0])
        monkeypatch.setattr("dpp2.node.links.UNREAD_SECONDS", 0.4)
        monkeypatch.setattr("dpp2.node.links.SLOWEST", 1e9)
        slow = dial(nodes, channel)
        await slow.initial_metadata()
        async with asyncio.timeout(SECONDS):
            while not nodes.nodes[VICTIM].refusals.counts["not reading"]:
                assert not slow.done(), await slow.details()
                await asyncio.sleep(0.02)
        assert link_to_0(nodes).current is None
        with suppress(*STREAM_ENDED):
            await drain(slow)
        assert await slow.code() in (STATUS["not reading"], grpc.StatusCode.CANCELLED)
        again = dial(nodes, channel)
        assert len([await again.read() for _ in range(40)]) == 40
        again.cancel()
        await cancelled(speaking[1])
    assert caplog.text.count("not reading: a frame has waited for more than 0.4 s") == 1


async def test_a_peer_that_leaves_its_streams_unread_gets_no_more_until_it_reads(tmp_path: Path) -> None:
    """Each would keep a frame in gRPC's memory for as long as its connection lasts."""
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(pair(tmp_path, dimension=4 * WIDE))
        await nodes.release(5, VICTIM, 2)
        speaking = [asyncio.create_task(speak(nodes, node, reads=True)) for node in (VICTIM, 2)]
        await nodes.reach(5, VICTIM, 2)
        for task in speaking:
            await cancelled(task)
        channels = [await stack.enter_async_context(narrow(nodes)) for _ in range(3)]
        calls: list[Any] = []
        while link_to_0(nodes).unread < UNREAD_STREAMS:
            assert len(calls) < 2 * STREAMS
            calls.append(dial(nodes, channels[len(calls) % 2]))
            await calls[-1].initial_metadata()
            await asyncio.sleep(0.2)
        assert await dial(nodes, channels[2]).code() == STATUS["too many unread"]
        with suppress(*STREAM_ENDED):
            await drain(calls[0])
        again = dial(nodes, channels[2])
        assert len([await again.read() for _ in range(10)]) == 10


def test_what_is_not_kept_comes_from_the_records_in_order() -> None:
    link = Link(Neighbour(1, (1,), (0,)), phases=2, most=3)
    sent: list[bytes] = []
    outgoing = link.open(lambda first: iter(sent[first:]), 0)
    heard = []
    for n in range(100):
        sent.append(b"%d" % n)
        link.send(n // 2, sent[-1])
        assert outgoing.held <= 3
        if n % 7 == 0:
            heard += [outgoing.next(), outgoing.next()]
    heard = [frame for frame in heard if frame is not None]
    while (frame := outgoing.next()) is not None:
        heard.append(frame)
    assert heard == sent


def test_a_frame_longer_than_all_that_may_wait_waits_alone() -> None:
    link = Link(Neighbour(1, (1,), (0,)), phases=1, most=1)
    outgoing = link.open(lambda first: [], 0)
    assert outgoing.next() is None
    for frame in (b"long", b"longer"):
        link.send(0, frame)
    assert outgoing.held == len(b"long")


@pytest.mark.parametrize(
    ("size", "rounds"), [(0, 4), (1, 4), (8 << 20, 4), (9 << 20, 3), (32 << 20, 1), (33 << 20, 1), (1 << 40, 1)]
)
def test_rounds_in_hand(size: int, rounds: int) -> None:
    assert rounds_in_hand(size) == rounds


# --- what is not read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dpp2.node.v1.Control/Release", "grpc.health.v1.Health/Check"])
async def test_of_whom_may_not_call_no_request_is_read(tmp_path: Path, method: str) -> None:
    """It could be as long as a frame, in every call of every connection."""
    async with pair(tmp_path, dimension=3) as nodes, nodes.channel(VICTIM, "node-0") as channel:
        silent: Any = channel.stream_stream(f"/{method}")(timeout=SECONDS)
        assert await silent.code() == grpc.StatusCode.PERMISSION_DENIED


async def test_a_request_that_does_not_come_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpp2.node.control.REQUEST_SECONDS", 0.1)
    async with pair(tmp_path, dimension=3) as nodes, nodes.channel(VICTIM, "orchestrator") as channel:
        silent: Any = channel.stream_stream("/dpp2.node.v1.Control/Release")(timeout=SECONDS)
        assert await silent.code() == STATUS["bad call"]
        empty: Any = channel.stream_stream("/dpp2.node.v1.Control/Release")(timeout=SECONDS)
        await empty.done_writing()
        assert await empty.code() == STATUS["bad call"]


async def test_on_a_call_that_nobody_reads_a_window_is_taken_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the second stream waits at the door."""
    monkeypatch.setattr("dpp2.node.peers.OPEN_SECONDS", SECONDS)
    async with pair(tmp_path, dimension=3) as nodes, nodes.channel(VICTIM, "node-0") as channel:
        await dial(nodes, channel).initial_metadata()
        call, taken = dial(nodes, channel), 0
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    await call.write(bytes(1000))
                    taken += 1000
        assert WINDOW / 2 < taken < 4 * WINDOW  # some of it waits at this end


@pytest.mark.slow
async def test_the_memory_of_a_node_under_abuse_is_bounded() -> None:
    """The kinds that once cost gigabytes, in processes of their own."""
    measured = await measure(lambda kind: None, dimension=WIDE, turns=2, kinds=WORST)
    assert [one.kind for one in measured.kinds] == list(WORST)
    assert all(one.more < measured.bound.total / 1e6 for one in measured.kinds), measured.kinds


# --- streams ----------------------------------------------------------------------------------------------------


async def test_a_newer_stream_replaces_the_older_one(tmp_path: Path) -> None:
    async with pair(tmp_path, dimension=3) as nodes, nodes.channel(VICTIM, "node-0") as channel:
        calls = []
        for _ in range(3):
            calls.append(dial(nodes, channel))
            await calls[-1].initial_metadata()
        assert [await call.code() for call in calls[:2]] == [STATUS["replaced"]] * 2
        assert "one is enough" in await calls[0].details()
        assert not calls[2].done()
        assert not nodes.nodes[VICTIM].refusals.counts  # it is no fault: an older stream may be dead


async def test_of_a_thousand_streams_one_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pause that slows a flood down, which has a test of its own: all of them are answered here."""
    monkeypatch.setattr(Refusals, "pause", lambda self, now: 0.0)
    async with pair(tmp_path, dimension=3) as nodes, nodes.channel(VICTIM, "node-0") as channel:
        calls = [dial(nodes, channel) for _ in range(1000)]
        async with asyncio.timeout(SECONDS):
            while sum(call.done() for call in calls) < len(calls) - 1:
                await asyncio.sleep(0.05)
        assert STATUS["replaced"] in {await call.code() for call in calls if call.done()}
        assert link_to_0(nodes).current is not None


async def test_a_connection_has_so_many_streams_and_no_more(tmp_path: Path) -> None:
    """Others wait at the peer's own end."""
    async with pair(tmp_path, dimension=3) as nodes, nodes.channel(VICTIM, "orchestrator") as channel:
        request = wire_pb2.WatchRequest(run=nodes.run_id)
        watches: list[Any] = [wire_pb2_grpc.ControlStub(channel).Watch(request) for _ in range(2 * STREAMS)]
        heard = [asyncio.create_task(watch.read()) for watch in watches]
        done, _ = await asyncio.wait(heard, timeout=1)
        assert len(done) == STREAMS
        for watch in watches:
            watch.cancel()
        await asyncio.wait(heard)


async def test_at_the_door_the_newest_waits_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpp2.node.peers.OPEN_SECONDS", 0.2)
    door, loop = Door(), asyncio.get_running_loop()
    await door.enter()
    began = loop.time()
    waiting = [asyncio.create_task(door.enter()) for _ in range(5)]
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(one, PeerFault) and one.kind == "replaced" for one in ended] == [True] * 4 + [False]
    assert 0.15 < loop.time() - began < 2


def test_a_flood_of_refusals_is_answered_slowly_and_a_few_at_once() -> None:
    refusals = Refusals()
    assert [refusals.pause(10.0) for _ in range(CALM_REFUSALS)] == [0.0] * CALM_REFUSALS
    pauses = [refusals.pause(10.0) for _ in range(300)]
    assert pauses == sorted(pauses)
    assert 1.0 < pauses[0] < 1.1
    assert pauses[-1] == PAUSE_SECONDS
    assert refusals.pause(10.0 + PAUSE_SECONDS) > 0
    assert refusals.pause(11.0 + PAUSE_SECONDS) == 0.0


# --- what waits to be used ----------------------------------------------------------------------------------------


async def test_a_neighbour_that_withholds_a_round_is_waited_for_and_nothing_else_is_kept(tmp_path: Path) -> None:
    async with pair(tmp_path, dimension=3) as nodes, nodes.channel(VICTIM, "node-0") as channel:
        await nodes.release(ROUNDS, VICTIM, 2)
        call = dial(nodes, channel)
        await call.initial_metadata()
        every = [frame for _, frame in zip(range(200), frames(nodes, 0), strict=False)]
        with suppress(*STREAM_ENDED):
            for frame in every[:1] + every[2:]:
                await call.write(frame)
        assert await call.code() != grpc.StatusCode.OK
        assert nodes.nodes[VICTIM].refusals.counts == {"future": 1}
        shell = nodes.nodes[VICTIM].shell
        assert shell is not None
        async with asyncio.timeout(SECONDS):
            while 0 not in shell.machine.waiting_for():
                await asyncio.sleep(0.01)
        assert sum(0 in phase.rows for phase in shell.machine.inbox._taken.values()) <= 1
