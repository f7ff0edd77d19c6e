"""Bad peers: each gets its status, is counted, and the honest run goes on to the same bits."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from dpp2.node.codec import encode
from dpp2.node.errors import NodeFailed
from dpp2.node.peers import EXCHANGE
from dpp2.node.shell import largest_frame
from dpp2.node.status import STATUS
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc
from tests.node.live import SECONDS, Live, assert_same_run, live, one_each, small

VICTIM = 2  # in a ring of four: 1 and 3 are its neighbours, 0 is not
ROUND = 11  # checkpoints at 5 and 10, so rounds from 5 on are open
ROUNDS = 20


@pytest.fixture
async def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """In the middle of a run; afterwards it goes on, to the same end as if nothing had happened."""
    monkeypatch.setattr("dpp2.node.peers.OPEN_SECONDS", 0.0)  # many streams are tried here, and waiting elsewhere
    monkeypatch.setattr("dpp2.node.errors.CALM_REFUSALS", 1e9)
    async with live(small(run__rounds=ROUNDS), tmp_path, one_each(4)) as started:
        await started.prepare()
        await started.release(ROUND)
        await started.reach(ROUND)
        yield started
        await started.finish()
    assert_same_run(started)


def metadata(nodes: Live, **changes: str | None) -> tuple[tuple[str, str], ...]:
    """What neighbour 1 says of itself, with changes."""
    honest = {"run": nodes.run_id, "agents": "1", "need": str(ROUND)}
    return tuple((f"dpp2-{name}", value) for name, value in (honest | changes).items() if value is not None)


def sent(nodes: Live, round_: int = 10, phase: str = "y") -> bytes:
    """A frame that agent 1 has sent to the victim already."""
    shell = nodes.nodes[1].shell
    assert shell is not None
    return encode(nodes.run_id, round_, phase, [1], shell.run.folder.records.read(phase, round_).reshape(1, -1))


def frame(nodes: Live, **changes: Any) -> bytes:
    """The same, with changes."""
    whole: dict[str, Any] = {"run": nodes.run_id, "round": 10, "phase": "y", "senders": [1]}
    return bytes(wire_pb2.Frame(**whole | {"rows": np.ones(3).tobytes()} | changes).SerializeToString())


async def say(nodes: Live, said: tuple[tuple[str, str], ...], *frames: bytes) -> grpc.StatusCode:
    """Open a stream to the victim, send these frames, hear how it ends."""
    async with nodes.channel(VICTIM) as channel:
        return await exchange(channel, said, *frames)


async def exchange(channel: grpc.aio.Channel, said: tuple[tuple[str, str], ...], *frames: bytes) -> grpc.StatusCode:
    """The honest neighbour 1 dials as well, and each stream replaces the one before: then it is tried again."""
    while (code := await exchange_once(channel, said, *frames)) == STATUS["replaced"]:
        pass
    return code


async def exchange_once(
    channel: grpc.aio.Channel, said: tuple[tuple[str, str], ...], *frames: bytes
) -> grpc.StatusCode:
    call: Any = channel.stream_stream(EXCHANGE)(metadata=said, timeout=SECONDS)
    try:
        for one in frames:
            await call.write(one)
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            pass
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass
    code: grpc.StatusCode = await call.code()
    return code


def held(nodes: Live) -> Any:
    """What the victim would compute with."""
    shell = nodes.nodes[VICTIM].shell
    assert shell is not None
    box = shell.machine.inbox
    taken = {n: (dict(phase.fingerprints), dict(phase.rows)) for n, phase in box._taken.items()}
    return shell.machine.k, shell.machine.state.x.tobytes(), box.round, box.durable, taken


BAD_METADATA: dict[str, tuple[str, dict[str, str | None]]] = {
    "another run": ("wrong run", {"run": "0" * 32}),
    "no run": ("bad metadata", {"run": None}),
    "no agents": ("bad metadata", {"agents": None}),
    "no need": ("bad metadata", {"need": None}),
    "words": ("bad metadata", {"agents": "one"}),
    "empty": ("bad metadata", {"agents": ""}),
    "a need that is none": ("bad metadata", {"need": "1.5"}),
    "a need before the first round": ("bad metadata", {"need": "-1"}),
    "a need beyond what was ever sent": ("bad metadata", {"need": str(ROUND + 1)}),
    "no neighbour": ("not a neighbour", {"agents": "0"}),
    "itself": ("not a neighbour", {"agents": "2"}),
    "nobody": ("not a neighbour", {"agents": "99"}),
    "a neighbour that hosts others, too": ("not a neighbour", {"agents": "0,1"}),
}


async def test_bad_metadata(nodes: Live) -> None:
    before, refused = held(nodes), nodes.nodes[VICTIM].refusals.counts
    for name, (kind, changes) in BAD_METADATA.items():
        counted = refused[kind]
        assert await say(nodes, metadata(nodes, **changes)) == STATUS[kind], name
        assert refused[kind] == counted + 1, name
    assert held(nodes) == before


BAD_FRAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "another run": ("wrong run", {"run": "0" * 32}),
    "no run": ("wrong run", {"run": ""}),
    "another neighbour's": ("unknown sender", {"senders": [3]}),
    "a stranger's": ("unknown sender", {"senders": [0]}),
    "nobody's": ("unknown sender", {"senders": [99]}),
    "no rows": ("wrong dimension", {"rows": b""}),
    "no senders": ("wrong dimension", {"senders": []}),
    "too short": ("wrong dimension", {"rows": bytes(16)}),
    "too long": ("wrong dimension", {"rows": bytes(32)}),
    "half a number": ("wrong dimension", {"rows": bytes(23)}),
    "twice the same": ("bad senders", {"senders": [1, 1], "rows": bytes(48)}),
    "nan": ("not finite", {"rows": np.array([0, np.nan, 0]).tobytes(), "round": 11}),
    "inf": ("not finite", {"rows": np.array([0, 0, -np.inf]).tobytes(), "round": 11}),
    "infinities that cancel": ("not finite", {"rows": np.array([np.inf, -np.inf, 0]).tobytes(), "round": 11}),
    "stale": ("stale", {"round": 4}),
    "future": ("future", {"round": 24}),
    "far future": ("future", {"round": 2**64 - 1}),
    "other bytes": ("other bytes", {}),
    "other bytes, long used": ("other bytes", {"round": 6, "phase": "z"}),
    "another phase": ("bad phase", {"phase": "x"}),
    "no phase": ("bad phase", {"phase": ""}),
}


async def test_bad_frames(nodes: Live) -> None:
    before, refused = held(nodes), nodes.nodes[VICTIM].refusals.counts
    for name, (kind, changes) in BAD_FRAMES.items():
        counted = refused[kind]
        assert await say(nodes, metadata(nodes), frame(nodes, **changes)) == STATUS[kind], name
        assert refused[kind] == counted + 1, name
    assert held(nodes) == before


async def test_garbage(nodes: Live) -> None:
    before, refused = held(nodes), nodes.nodes[VICTIM].refusals.counts
    assert await say(nodes, metadata(nodes), b"\xff garbage") == STATUS["not a frame"]
    assert refused["not a frame"] == 1
    assert held(nodes) == before


async def test_copies_are_ignored_silently(nodes: Live) -> None:
    before, refused = held(nodes), sum(nodes.nodes[VICTIM].refusals.counts.values())
    assert await say(nodes, metadata(nodes), *[sent(nodes)] * 3, sent(nodes, phase="z")) == grpc.StatusCode.OK
    assert held(nodes) == before
    assert sum(nodes.nodes[VICTIM].refusals.counts.values()) == refused


async def test_a_fault_is_logged_once(nodes: Live, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        await say(nodes, metadata(nodes), frame(nodes, round=1000))
    assert caplog.text.count("refused (further ones are only counted): future") == 1


async def test_bad_frames_while_rounds_are_run(nodes: Live) -> None:
    """Nobody waits for the liar."""
    bad = [frame(nodes, **changes) for name, (_, changes) in BAD_FRAMES.items() if name != "future"]
    await nodes.release(ROUNDS)
    codes = await asyncio.gather(*(say(nodes, metadata(nodes), one) for one in bad))
    assert grpc.StatusCode.OK not in codes


def mutated(rng: random.Random, whole: bytes) -> bytes:
    changed = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) or 1)
        match rng.randrange(4):
            case 0:
                changed[at:] = b""
            case 1:
                changed[at:at] = rng.randbytes(rng.randint(1, 9))
            case 2:
                del changed[at : at + rng.randint(1, 9)]
            case _ if changed:
                changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)


def harmless(nodes: Live, content: bytes) -> bool:
    """Not what the neighbour itself might send next: without TLS nobody can tell such a frame from an honest one."""
    try:
        read = wire_pb2.Frame.FromString(content)
    except DecodeError:
        return True
    return read.run != nodes.run_id or not ROUND <= read.round <= ROUND + 12


def fuzzed(nodes: Live, rng: random.Random, count: int) -> list[bytes]:
    """Mostly honest frames with a few bytes changed, and noise."""
    whole = [sent(nodes, k, phase) for k in (9, 10) for phase in ("y", "z")]
    found: list[bytes] = []
    while len(found) < count:
        one = mutated(rng, rng.choice(whole)) if rng.random() < 0.75 else rng.randbytes(rng.randint(0, 99))
        if harmless(nodes, one):
            found.append(one)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 150), (2, 150), pytest.param(3, 10_000, marks=pytest.mark.slow)], ids=str
)
async def test_fuzzed_frames(nodes: Live, seed: int, count: int) -> None:
    """One stream after the other, a frame each; afterwards the run ends in the same bits."""
    victim = nodes.nodes[VICTIM]
    tried = fuzzed(nodes, random.Random(seed), count)
    before, counted = held(nodes), sum(victim.refusals.counts.values())
    async with nodes.channel(VICTIM) as channel:
        codes = Counter([await exchange(channel, metadata(nodes), one) for one in tried])
    assert codes.total() == count
    assert held(nodes)[:-1] == before[:-1]
    assert set(codes) <= {*STATUS.values(), grpc.StatusCode.OK}
    assert codes[grpc.StatusCode.OK] < count / 10  # copies: changes of what is no part of a row
    assert sum(victim.refusals.counts.values()) - counted == count - codes[grpc.StatusCode.OK]


# --- size -----------------------------------------------------------------------------------------------------


def padded(whole: bytes, size: int) -> bytes:
    """The same frame with a field that nobody knows, so that it has this many bytes."""
    tag = b"\xfa\x01"  # field 31, bytes
    for length in (size - len(whole) - len(tag) - n for n in (1, 2, 3)):
        varint = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
        if len(whole) + len(tag) + len(varint) + length == size:
            return whole + tag + varint + bytes(length)
    raise AssertionError(f"no frame has {size} bytes")


async def test_the_largest_frame_and_one_byte_more(nodes: Live) -> None:
    before, refused = held(nodes), nodes.nodes[VICTIM].refusals.counts
    limit = largest_frame(nodes.nodes[VICTIM].hosting)
    assert await say(nodes, metadata(nodes), padded(sent(nodes), limit)) == grpc.StatusCode.OK
    assert refused["oversize"] == 0
    assert await say(nodes, metadata(nodes), padded(sent(nodes), limit + 1)) == STATUS["oversize"]
    assert refused["oversize"] == 1
    assert STATUS["oversize"] == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert held(nodes) == before


async def test_a_message_far_beyond_the_limit(nodes: Live) -> None:
    """gRPC refuses it unread, with the same status."""
    before = held(nodes)
    for rows in (9 << 20, 40 << 20):
        huge = frame(nodes, rows=bytes(rows))
        assert await say(nodes, metadata(nodes), huge) == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert held(nodes) == before


@pytest.mark.slow
async def test_honest_frames_beyond_the_usual_limit_of_grpc(tmp_path: Path) -> None:
    """4.8 MB each, of two agents in one node, where a gRPC server by itself would take 4 MB."""
    large = small(problem__dimension=300_000, run__rounds=1, run__telemetry="none", network__agents=3)
    async with live(large, tmp_path, [[0, 1], [2]]) as nodes:
        await nodes.prepare()
        await nodes.finish()
    nodes.simulation.advance(1)
    assert nodes.simulation.result().x.tobytes() == nodes.merged().result().x.tobytes()


# --- control calls --------------------------------------------------------------------------------------------


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), str(refused.value.details())


async def test_control_calls_for_something_else(nodes: Live) -> None:
    refused = nodes.nodes[VICTIM].refusals.counts
    async with nodes.channel(VICTIM) as channel:
        control = wire_pb2_grpc.ControlStub(channel)
        prepare, another = wire_pb2.PrepareRequest, "f" * 32
        for kind, call in (
            ("wrong digest", lambda: control.Prepare(prepare(run=nodes.run_id, digest="0" * 64))),
            ("run id used", lambda: control.Prepare(prepare(run=another, digest=nodes.digest))),
            ("wrong run", lambda: control.Release(wire_pb2.ReleaseRequest(run=another, until=ROUNDS))),
            ("wrong run", lambda: control.Stop(wire_pb2.StopRequest(run=another))),
            ("wrong run", lambda: control.Watch(wire_pb2.WatchRequest(run=another)).read()),
        ):
            counted = refused[kind]
            code, details = await refusal(call())  # type: ignore[no-untyped-call]
            assert code == STATUS[kind] == grpc.StatusCode.FAILED_PRECONDITION
            assert details.startswith(kind)
            assert refused[kind] == counted + 1
    assert not nodes.nodes[VICTIM].stopped.is_set()


async def test_before_a_run_is_prepared(tmp_path: Path) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        assert await say(nodes, metadata(nodes)) == STATUS["not prepared"]
        with pytest.raises(grpc.aio.AioRpcError, match="not prepared"):
            await nodes.release(3, VICTIM)
        await nodes.prepare()
        await nodes.finish()
    assert_same_run(nodes)


async def test_a_run_id_belongs_to_one_experiment(tmp_path: Path) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        home = tmp_path / f"node-{VICTIM}"
        home.mkdir()
        (home / "runs.txt").write_text(f"{nodes.run_id} {'0' * 64}\n")
        with pytest.raises(grpc.aio.AioRpcError, match="run id used"):
            await nodes.prepare(VICTIM)


async def test_what_runs_were_claimed_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while runs.txt is written: what it said before is still there, and whole."""

    def killed(descriptor: int) -> None:
        raise KeyboardInterrupt

    async with live(small(), tmp_path, one_each(4)) as nodes:
        runs = tmp_path / f"node-{VICTIM}" / "runs.txt"
        runs.parent.mkdir()
        runs.write_text(before := f"{'a' * 32} {nodes.digest}\n")
        with monkeypatch.context() as patched:
            patched.setattr("os.fsync", killed)
            with pytest.raises(KeyboardInterrupt):
                nodes.nodes[VICTIM]._claim(nodes.run_id, before.splitlines())
        assert runs.read_text() == before
        nodes.nodes[VICTIM]._claim(nodes.run_id, before.splitlines())
        assert runs.read_text() == f"{before}{nodes.run_id} {nodes.digest}\n"


async def test_a_run_id_cannot_name_a_folder_elsewhere(tmp_path: Path) -> None:
    """The id comes from whoever calls: "../.." must not lead out of the node's home."""
    async with live(small(), tmp_path, one_each(4)) as nodes:
        nodes.run_id = "../../elsewhere"
        with pytest.raises(grpc.aio.AioRpcError, match="bad run id"):
            await nodes.prepare(VICTIM)


async def test_more_credit_than_rounds(nodes: Live) -> None:
    await nodes.release(10**9)
    await nodes.reach(ROUNDS)


# --- foreign clients and ports --------------------------------------------------------------------------------


def foreign_client(port: int, run: str) -> dict[str, Any]:
    """Knows an address and nothing else: no generated code, everything from reflection."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)

        def call(service: str, method: str, **values: Any) -> Any:
            found = pool.FindServiceByName(service).FindMethodByName(method)
            answer = message_factory.GetMessageClass(found.output_type)
            ask: Any = channel.unary_unary(
                f"/{service}/{method}",
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            return ask(message_factory.GetMessageClass(found.input_type)(**values), timeout=SECONDS)

        health = call("grpc.health.v1.Health", "Check")
        states = health.DESCRIPTOR.fields_by_name["status"].enum_type.values_by_number
        try:
            call("dpp2.node.v1.Control", "Prepare", run=run, digest="nonsense")
            status = grpc.StatusCode.OK
        except grpc.RpcError as error:
            status = error.code()
        return {
            "services": set(database.get_services()),
            "health": states[health.status].name,
            "frame": [field.name for field in pool.FindMessageTypeByName("dpp2.node.v1.Frame").fields],
            "prepare": status,
        }


async def test_a_client_built_from_the_descriptor_alone(nodes: Live) -> None:
    learnt = await asyncio.to_thread(foreign_client, nodes.ports[VICTIM], nodes.run_id)
    assert learnt == {
        "services": {
            "dpp2.node.v1.Peer",
            "dpp2.node.v1.Control",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        },
        "health": "SERVING",
        "frame": ["run", "round", "phase", "senders", "rows", "dimension", "hellos"],
        "prepare": grpc.StatusCode.FAILED_PRECONDITION,
    }


async def test_a_port_is_not_shared(tmp_path: Path) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        nodes.ports[1] = nodes.ports[0]
        second, first = nodes.nodes.pop(1), nodes.nodes
        await second.stop()
        with pytest.raises(NodeFailed, match="is taken or cannot be listened on"):
            await nodes.start_one(1)
        assert first[0] is not None


async def test_nothing_listens_after_a_stop(tmp_path: Path) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(3)
        await nodes.reach(3)
    for port in nodes.ports.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
