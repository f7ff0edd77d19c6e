"""Every entry of the table in `node/status.py` is what a peer hears from a live node, and is counted there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dpp2.node.server import Node
from dpp2.node.shell import largest_frame
from dpp2.node.status import STATUS
from dpp2.node.tls import ORCHESTRATOR, node_name
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc
from tests.node.live import SECONDS, Live, live, one_each, small
from tests.node.test_admission_of_nodes import allow
from tests.node.test_edge_secrets import BAD_HELLOS
from tests.node.test_peers import ROUND, ROUNDS, VICTIM, frame, metadata, padded, say, sent
from tests.node.test_tls import issued, opened

Provoke = Callable[[Live], Awaitable[grpc.StatusCode]]
CONTROL = "/dpp2.node.v1.Control/"


async def code_of(call: Any) -> grpc.StatusCode:
    code: grpc.StatusCode = await call.code()
    return code


async def raw(nodes: Live, method: str, content: bytes, who: str = "orchestrator") -> grpc.StatusCode:
    """A control call whose bytes nobody has looked at."""
    async with nodes.channel(VICTIM, who) as channel:
        call: Any = (channel.unary_stream if method == "Watch" else channel.unary_unary)(CONTROL + method)
        return await code_of(call(content, timeout=SECONDS))


def prepare(run: str | None = None, digest: str | None = None) -> Provoke:
    async def provoke(nodes: Live) -> grpc.StatusCode:
        request = wire_pb2.PrepareRequest(run=run or nodes.run_id, digest=digest or nodes.digest)
        return await raw(nodes, "Prepare", request.SerializeToString())

    return provoke


def framed(**changes: Any) -> Provoke:
    return lambda nodes: say(nodes, metadata(nodes), frame(nodes, **changes))


def said(**changes: str | None) -> Provoke:
    return lambda nodes: say(nodes, metadata(nodes, **changes))


def garbage(method: str) -> Provoke:
    return lambda nodes: raw(nodes, method, b"\xff garbage \xff")


async def too_long(nodes: Live) -> grpc.StatusCode:
    limit = largest_frame(nodes.nodes[VICTIM].hosting)
    return await say(nodes, metadata(nodes), padded(sent(nodes), limit + 1))


async def unprepared(nodes: Live) -> grpc.StatusCode:
    return await raw(nodes, "Stop", wire_pb2.StopRequest(run=nodes.run_id).SerializeToString())


RUNNING: list[tuple[str, str, Provoke]] = [
    ("wrong run", "a frame of another run", framed(run="0" * 32)),
    ("wrong run", "metadata of another run", said(run="0" * 32)),
    ("wrong digest", "another experiment", prepare(digest="0" * 64)),
    ("run id used", "a second run", prepare(run="f" * 32)),
    ("bad call", "garbage in Prepare", garbage("Prepare")),
    ("bad call", "garbage in Release", garbage("Release")),
    ("bad call", "garbage in Watch", garbage("Watch")),
    ("bad call", "garbage in Stop", garbage("Stop")),
    ("bad call", "an id that is no text", lambda nodes: raw(nodes, "Prepare", b"\x0a\x02\xff\xfe")),
    ("unknown sender", "a stranger's frame", framed(senders=[0])),
    ("not a neighbour", "a stranger's stream", said(agents="0")),
    ("bad metadata", "a need of -5", said(need="-5")),
    ("bad metadata", "no need", said(need=None)),
    ("bad metadata", "no agents", said(agents=None)),
    ("bad metadata", "no run", said(run=None)),
    ("bad metadata", "nothing at all", said(run=None, agents=None, need=None)),
    ("not a frame", "garbage on a stream", lambda nodes: say(nodes, metadata(nodes), b"\xff garbage")),
    ("bad senders", "twice the same", framed(senders=[1, 1], rows=bytes(48))),
    ("bad phase", "another phase", framed(phase="x")),
    ("wrong dimension", "half a number", framed(rows=bytes(23))),
    ("not finite", "nan", framed(rows=np.array([0, np.nan, 0]).tobytes(), round=ROUND)),
    ("too large", "2^60", framed(rows=np.array([0, 2.0**60, 0]).tobytes(), round=ROUND)),
    ("stale", "long over", framed(round=4)),
    ("future", "far ahead", framed(round=2**64 - 1)),
    ("other bytes", "differently", framed()),
    ("oversize", "a byte too long", too_long),
]
FRESH: list[tuple[str, str, Provoke]] = [
    ("not prepared", "Stop", unprepared),
    ("not prepared", "a stream", said()),
    ("bad run id", "an id that is a path", prepare(run="../../elsewhere")),
    ("wrong digest", "another experiment", prepare(digest="0" * 64)),
    ("bad call", "garbage in Prepare", garbage("Prepare")),
]


def counted(node: Node, kind: str) -> int:
    return node.refusals.counts[kind]


async def check(nodes: Live, entries: list[tuple[str, str, Provoke]]) -> None:
    victim = nodes.nodes[VICTIM]
    for kind, what, provoke in entries:
        before = counted(victim, kind)
        assert await provoke(nodes) == STATUS[kind], what
        early = kind == "not prepared" and what == "a stream"  # not a bad neighbour
        assert counted(victim, kind) == before + (not early), what


async def test_while_a_run_is_under_way(tmp_path: Path) -> None:
    async with live(small(run__rounds=ROUNDS), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(ROUND)
        await nodes.reach(ROUND)
        await check(nodes, RUNNING)


async def test_before_a_run(tmp_path: Path) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await check(nodes, FRESH)


async def impostor(nodes: Live) -> grpc.StatusCode:
    return (await opened(nodes.channel(VICTIM, "node-3"), nodes, "1"))[0]


async def revoked(nodes: Live) -> grpc.StatusCode:
    allow(nodes, f"node-{VICTIM}", "node-1", "node-3")
    return await unprepared(nodes)


async def expired(nodes: Live) -> grpc.StatusCode:
    """Valid when it dials, and a moment later no more."""
    assert nodes.tls is not None
    now = datetime.now(UTC)
    brief = issued(nodes.tls, [ORCHESTRATOR], now - timedelta(hours=1), now + timedelta(seconds=2))
    (nodes.tls / f"node-{VICTIM}" / "allowed.txt").unlink(missing_ok=True)
    async with brief.channel(f"127.0.0.1:{nodes.ports[VICTIM]}", node_name([VICTIM]), []) as channel:
        call = wire_pb2_grpc.ControlStub(channel).Watch(wire_pb2.WatchRequest(run=nodes.run_id))
        with suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        return await code_of(call)


async def checked(nodes: Live, content: bytes, who: str) -> grpc.StatusCode:
    async with nodes.channel(VICTIM, who) as channel:
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        return await code_of(check(content, timeout=SECONDS))


UNDER_TLS: list[tuple[str, str, Provoke]] = [
    ("impostor", "another agent's certificate", impostor),
    ("not the orchestrator", "a neighbour's Stop", lambda nodes: raw(nodes, "Stop", b"", who="node-1")),
    ("not the orchestrator", "a neighbour's garbage", lambda nodes: raw(nodes, "Prepare", b"\xff", who="node-1")),
    ("not a probe", "a neighbour's health check", lambda nodes: checked(nodes, b"", who="node-1")),
    ("bad call", "garbage in a health check", lambda nodes: checked(nodes, b"\xff", who="probe")),
    ("expired", "a certificate that ends", expired),
    ("revoked", "not on the list", revoked),
]


async def test_under_tls(tmp_path: Path) -> None:
    async with live(small(), tmp_path, one_each(4), tls=True) as nodes:
        await nodes.prepare()
        async with asyncio.timeout(SECONDS):
            await check(nodes, UNDER_TLS)


IN_HOSTILE = {
    "too many copies",
    "too many unread",
    "not reading",
    "replaced",
}  # tried in test_hostile.py and test_frames.py


def test_every_entry_of_the_table_is_tried() -> None:
    """Here, or where it takes a longer story; hellos have tests of their own (`test_edge_secrets`)."""
    elsewhere = IN_HOSTILE | {kind for kind, _ in BAD_HELLOS.values()}
    assert {kind for kind, _, _ in (*RUNNING, *FRESH, *UNDER_TLS)} | elsewhere == set(STATUS)


@pytest.mark.parametrize("kind", STATUS)
def test_the_page_names_every_status(kind: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "network.md").read_text()
    assert f"| {STATUS[kind].name} |" in page
