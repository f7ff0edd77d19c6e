"""Links that lead elsewhere, break, or end at somebody else; and neighbours that come back further behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from dpp2.node.cluster import Cluster
from dpp2.node.hosting import Neighbour
from dpp2.node.limits import ROUNDS_IN_HAND
from dpp2.node.links import serve
from dpp2.node.peers import METHOD, SERVICE
from dpp2.node.queues import Link
from dpp2.node.server import run_folder
from dpp2.node.tls import Identity, agent_name, node_names
from dpp2.orchestrator.certs import Authority
from tests.node.live import SECONDS, Live, assert_same_run, live, one_each, small

PROMPT = 8.0  # seconds; a neighbour that is refused and dials again takes longer and longer
BEHIND = 4  # in the ring of five, node 3 hosts agents 3 and 4, and node 0 dials it for the link 0-4


class Relay:
    """Forwards TCP from a port of its own to `target`, and knows nothing else; it can hear, and it can hang up."""

    def __init__(self, target: int) -> None:
        self.target, self.heard, self.calls = target, bytearray(), 0
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._open |= {writer, back}
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        self._open -= {writer, back}

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while content := await source.read(1 << 16):
                self.heard += content
                sink.write(content)
                await sink.drain()
        sink.close()

    def hang_up(self) -> None:
        for writer in self._open:
            writer.close()

    async def stop(self) -> None:
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()
        while self._open:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def relayed(nodes: Live, links: Sequence[tuple[int, int]]) -> AsyncIterator[dict[tuple[int, int], Relay]]:
    """A relay on each of these links, by way of cluster.toml, which nodes read when they are prepared."""
    host = {agent: node for node, group in nodes.groups.items() for agent in group}
    relays = {link: Relay(nodes.ports[max(host[agent] for agent in link)]) for link in links}  # the higher one listens
    through = {link: f"127.0.0.1:{await relay.start()}" for link, relay in relays.items()}
    path = nodes.folder / "cluster.toml"
    path.write_text(Cluster(Cluster.load(path).addresses, through).to_toml())
    try:
        yield relays
    finally:
        for relay in relays.values():
            await relay.stop()


RING = ((0, 1), (1, 2), (2, 3), (0, 3))


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plaintext"])
async def test_a_relay_on_every_link_changes_nothing(tls: bool, tmp_path: Path) -> None:
    """Under TLS it can neither be told from the wire nor read it; in plaintext it reads everything."""
    async with live(small(), tmp_path, one_each(4), tls=tls) as nodes, relayed(nodes, RING) as relays:
        await nodes.prepare()
        await nodes.finish()
        for relay in relays.values():
            assert relay.calls >= 1
            assert (nodes.run_id.encode() in relay.heard) == (not tls)
    assert_same_run(nodes)


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plaintext"])
async def test_a_relay_between_nodes_with_several_agents(tls: bool, tmp_path: Path) -> None:
    """The override of any one link between two nodes holds for their stream."""
    async with live(small(), tmp_path, [[0, 3], [1, 2]], tls=tls) as nodes, relayed(nodes, [(2, 3)]) as relays:
        await nodes.prepare()
        await nodes.finish()
        assert relays[2, 3].calls >= 1
    assert_same_run(nodes)


async def test_a_link_that_breaks_again_and_again(tmp_path: Path) -> None:
    async with live(small(run__rounds=15), tmp_path, one_each(4)) as nodes, relayed(nodes, RING) as relays:
        await nodes.prepare()
        for until in (3, 7, 11):
            await nodes.release(until)
            await nodes.reach(until)
            for relay in relays.values():
                relay.hang_up()
        await nodes.finish()
        assert min(relay.calls for relay in relays.values()) >= 4
        assert not any(set(node.refusals.counts) - {"not prepared"} for node in nodes.nodes.values())
    assert_same_run(nodes)


class Talk:
    """One stream and its conversation at once: it takes everything and has always room."""

    def __init__(self, link: Link, *backlog: bytes) -> None:
        self.outgoing = link.open(lambda first: backlog[first:], 0)

    async def read(self) -> Any:
        await asyncio.Event().wait()

    async def write(self, frame: bytes) -> None:
        await asyncio.Event().wait()

    def take(self, frame: bytes) -> bool:
        return True

    async def wait_for_room(self) -> None:
        raise AssertionError("there is room")


class Ending(Talk):
    """Its other end goes when it is told to, and frames are written when it is told to."""

    def __init__(self, link: Link, *backlog: bytes) -> None:
        super().__init__(link, *backlog)
        self.over, self.begun, self.written = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def read(self) -> Any:
        await self.over.wait()
        return grpc.aio.EOF

    async def write(self, frame: bytes) -> None:
        self.begun.set()
        await self.written.wait()


@pytest.mark.parametrize("ticks", range(4))
async def test_a_stop_is_not_lost_while_a_stream_ends(ticks: int) -> None:
    """A node that is told to stop at the moment when a link breaks must not go on dialling."""
    link = Link(Neighbour(1, (1,), (0,)), 1, 100)
    talk = Ending(link)
    serving = asyncio.create_task(serve(link, talk, talk))
    await asyncio.sleep(0)
    talk.over.set()
    for _ in range(ticks):
        await asyncio.sleep(0)
    if serving.cancel():
        with pytest.raises(asyncio.CancelledError):
            await serving


async def test_a_frame_that_grpc_has_taken_counts_until_the_peer_has_read_it() -> None:
    """It cannot be taken back: gRPC holds it, and so it is memory that the peer has cost."""
    link = Link(Neighbour(1, (1,), (0,)), 1, 100)
    talk = Ending(link, b"one", b"two")
    serving = asyncio.create_task(serve(link, talk, talk))
    await talk.begun.wait()
    assert link.unread == 0
    talk.over.set()
    async with asyncio.timeout(SECONDS):
        await serving
        assert link.unread == 1
        talk.written.set()
        while link.unread:
            await asyncio.sleep(0)
    assert talk.outgoing.next() is None


class CannotWrite(Talk):
    """Its other end is silent, and its frames cannot be written."""

    async def write(self, frame: bytes) -> None:
        raise OSError("no such record")


async def test_a_writer_that_dies_ends_its_link(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the stream would stay open and mute, and nobody would dial again."""
    link = Link(Neighbour(1, (1,), (0,)), 1, 100)
    talk = CannotWrite(link, b"a frame")
    async with asyncio.timeout(SECONDS):
        await serve(link, talk, talk)
    assert "its next frame cannot be written: OSError: no such record" in caplog.text
    link.send(0, b"nobody is there")
    assert talk.outgoing.next() is None


async def test_a_node_whose_writer_dies_is_dialled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, a record cannot be read for a neighbour that comes back; it calls again and catches up."""
    async with live(small(run__rounds=20), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(8)
        await nodes.reach(8)
        await killed(nodes, 1)
        await nodes.start_one(1)
        records = nodes.nodes[0].shell.run.folder.records  # type: ignore[union-attr]
        read = records.read
        failed: list[int] = []

        def fails_once(name: str, round_: int) -> Any:
            if not failed:
                failed.append(round_)
                raise OSError("a bad sector")
            return read(name, round_)

        monkeypatch.setattr(records, "read", fails_once)
        await nodes.prepare(1)
        await nodes.finish()
        assert failed == [5]
    assert_same_run(nodes)


# --- who is at the other end ----------------------------------------------------------------------------------


@asynccontextmanager
async def impostor(folder: Path, names: Sequence[str]) -> AsyncIterator[tuple[int, list[str]]]:
    """A server with a certificate of our authority for these names; yields its port and whom it was called by."""
    certificate, key = Authority.load(folder).issue(names, days=1)
    callers: list[str] = []

    async def exchange(requests: Any, context: Any) -> None:
        callers.append(dict(context.invocation_metadata())["dpp2-agents"])

    server = grpc.aio.server()
    handler: Any = grpc.stream_stream_rpc_method_handler(exchange, None, None)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    credentials = Identity((folder / "ca.pem").read_bytes(), certificate, key).listener()
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield port, callers
    finally:
        await server.stop(None)


IMPOSTORS = {
    "one of its agents": [agent_name(3)],
    "the other one": [agent_name(BEHIND)],
    "each of its agents, and not the node": [agent_name(3), agent_name(BEHIND)],
    "another node": node_names([1, 3]),
}


@pytest.mark.parametrize("names", IMPOSTORS.values(), ids=IMPOSTORS)
async def test_a_dialler_does_not_talk_to_an_impostor(names: list[str], tmp_path: Path) -> None:
    """It is connected to, and hears nothing; once the right node is at the other end the run goes on."""
    experiment = small(network__agents=5)
    async with (
        live(experiment, tmp_path, [[0], [1], [2], [3, 4]], tls=True) as nodes,
        impostor(tmp_path / "certs", names) as (port, callers),
        relayed(nodes, [(0, BEHIND)]) as relays,
    ):
        relay = relays[0, BEHIND]
        right, relay.target = relay.target, port
        await nodes.prepare()
        await nodes.release(3)
        async with asyncio.timeout(SECONDS):
            while relay.calls < 2:  # it has tried and tries again
                await asyncio.sleep(0.01)
        assert not callers
        assert nodes.nodes[0].shell is not None
        assert nodes.nodes[0].shell.machine.k == 0
        relay.target = right
        await nodes.finish()
        assert not callers
    assert_same_run(nodes)


async def test_who_proves_to_be_the_node_is_talked_to(tmp_path: Path) -> None:
    """The same, with the right certificate: what the test above shows is not that nothing works."""
    async with (
        live(small(network__agents=5), tmp_path, [[0], [1], [2], [3, 4]], tls=True) as nodes,
        impostor(tmp_path / "certs", node_names([3, 4])) as (port, callers),
        relayed(nodes, [(0, BEHIND)]) as relays,
    ):
        relays[0, BEHIND].target = port
        await nodes.prepare()
        async with asyncio.timeout(SECONDS):
            while not callers:
                await asyncio.sleep(0.01)
        assert set(callers) == {"0"}


async def test_a_neighbour_that_is_early_is_not_a_bad_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who is prepared first dials the others, who are not prepared yet: nothing to count, nothing to log."""
    async with live(small(), tmp_path, one_each(4)) as nodes, relayed(nodes, RING) as relays:
        await nodes.prepare(0)
        async with asyncio.timeout(SECONDS):
            while not relays[0, 1].calls or not relays[0, 3].calls:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # the calls that follow a connection
        await nodes.prepare(1, 2, 3)
        await nodes.finish()
        assert [node.refusals.counts.total() for node in nodes.nodes.values()] == [0, 0, 0, 0]
    assert "refused" not in caplog.text
    assert_same_run(nodes)


# --- further behind -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", [False, True], ids=["newest checkpoint", "the one before"])
async def test_a_neighbour_that_comes_back_catches_up_promptly(damaged: bool, tmp_path: Path) -> None:
    """It is sent what it lacks and nothing older: nobody refuses anything, nor waits for a second attempt."""
    async with live(small(run__rounds=30), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(17)
        await nodes.reach(17)
        await nodes.nodes[1].stop()  # checkpoints at 15 and 17
        newest = run_folder(tmp_path / "node-1", nodes.run_id) / "checkpoint.bin"
        if damaged:
            newest.write_bytes(newest.read_bytes()[:-1])
        before = {node: nodes.nodes[node].refusals.counts.copy() for node in (0, 2, 3)}
        await nodes.start_one(1)
        began = asyncio.get_running_loop().time()
        await nodes.prepare(1)
        assert nodes.nodes[1].shell is not None
        assert nodes.nodes[1].shell.machine.k == (15 if damaged else 17)
        await nodes.finish()
        assert asyncio.get_running_loop().time() - began < PROMPT
        for node, counts in before.items():
            gained = nodes.nodes[node].refusals.counts - counts
            assert not {kind: count for kind, count in gained.items() if kind != "not prepared"}, node
        assert not nodes.nodes[1].refusals.counts.total() - nodes.nodes[1].refusals.counts["not prepared"]
    assert_same_run(nodes)


async def test_a_node_that_catches_up_holds_a_few_rounds_at_a_time(tmp_path: Path) -> None:
    """Frames of 100,000 numbers would fill its memory otherwise: neighbours have all that it lacks on record."""
    async with live(small(run__rounds=30), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(15)
        await nodes.reach(15)
        await nodes.nodes[1].stop()
        (run_folder(tmp_path / "node-1", nodes.run_id) / "checkpoint.bin").write_bytes(b"")
        await nodes.start_one(1)
        await nodes.prepare(1)  # at round 10, and not allowed to run: what comes, waits
        shell = nodes.nodes[1].shell
        assert shell is not None
        async with asyncio.timeout(SECONDS):
            while len(shell.machine.inbox._taken) < ROUNDS_IN_HAND * 2:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert sorted(shell.machine.inbox._taken) == list(range(2 * 10, 2 * (10 + ROUNDS_IN_HAND)))
        await nodes.finish()
    assert_same_run(nodes)


async def killed(nodes: Live, node: int) -> None:
    """Stop a node and leave its folder as a kill leaves it: with the checkpoints that it had."""
    folder = run_folder(nodes.folder / f"node-{node}", nodes.run_id)
    before = {path: path.read_bytes() for path in folder.glob("checkpoint*.bin")}
    await nodes.nodes[node].stop()
    for path in folder.glob("checkpoint*"):
        path.unlink()
    for path, content in before.items():
        path.write_bytes(content)


async def test_a_stream_that_waits_unread_and_is_dead_is_dialled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 has enough of 1 in hand and waits for 2; 1 dies, comes back behind 0, and needs what 0 has on record."""
    monkeypatch.setattr("tests.node.live.EVERY", 20)
    monkeypatch.setattr("dpp2.node.links.ROOM_SECONDS", 0.5)
    async with live(small(run__rounds=40, network__agents=3), tmp_path, one_each(3)) as nodes:
        await nodes.prepare()
        await nodes.release(25)
        await nodes.reach(25)
        await nodes.nodes[0].stop()  # so that its checkpoint is ahead of the others'
        await nodes.start_one(0)
        await nodes.prepare(0)
        await nodes.release(29)
        await nodes.reach(29)
        await killed(nodes, 0)
        await killed(nodes, 2)
        await nodes.start_one(0)
        await nodes.prepare(0)
        await nodes.release(40, 0)
        shell = nodes.nodes[0].shell
        assert shell is not None
        async with asyncio.timeout(SECONDS):
            while len(shell.machine.inbox._taken) < 2 * ROUNDS_IN_HAND:
                await asyncio.sleep(0.01)
        await killed(nodes, 1)
        for node in (1, 2):
            await nodes.start_one(node)
        await nodes.prepare(1, 2)
        assert {n: one.shell.machine.k for n, one in nodes.nodes.items() if one.shell} == {0: 25, 1: 20, 2: 20}
        await nodes.finish()
    assert_same_run(nodes)


async def test_all_at_their_older_checkpoints(tmp_path: Path) -> None:
    """Every node loses its newest checkpoint, one of them within a round; together they replay what is missing."""
    async with live(small(run__rounds=30), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(13)
        await nodes.reach(13)
        await nodes.release(14, 1)
        await nodes.stop()
        for home in nodes.homes:
            newest = run_folder(home, nodes.run_id) / "checkpoint.bin"
            newest.write_bytes(b"")
        for node in nodes.groups:
            await nodes.start_one(node)
        await nodes.prepare()
        assert {node.shell.machine.k for node in nodes.nodes.values() if node.shell} == {10}
        await nodes.finish()
        for one in nodes.nodes.values():
            assert not set(one.refusals.counts) - {"not prepared"}
    assert_same_run(nodes)
