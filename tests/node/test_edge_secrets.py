"""Edges with secrets over real nodes: hellos are exchanged, kept, and never changed; the noise is the embedded one."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dpp2 import Experiment
from dpp2.edge_keys import WITHOUT_TLS, EdgeSecret, Hello
from dpp2.edge_noise import EdgeNoise
from dpp2.keys import derive
from dpp2.node.hellos import hellos_of
from dpp2.node.peers import EXCHANGE
from dpp2.node.server import run_folder
from dpp2.node.status import STATUS
from dpp2.node.v1 import wire_pb2
from tests.node.live import SECONDS, Live, assert_same_run, live, networked, one_each, small
from tests.node.test_links import killed

GROUPS = {"one each": one_each(4), "pairs": [[0, 1], [2, 3]], "crossed": [[0, 2], [1, 3]], "one node": [[0, 1, 2, 3]]}
VICTIM, PEER = 2, 1


def dpp3(seed: int | str = "os", **changes: Any) -> Experiment:
    """Gradient rounds are 0, 4 and 8; three rounds of mixing follow."""
    schedule = {"algorithm__gradient_rounds": 3, "algorithm__mixings": 4, "algorithm__final_mixings": 3}
    return small(run__seed=seed, run__rounds=15, algorithm__name="dpp3", **(schedule | changes))


def kept(nodes: Live, node: int) -> dict[int, Hello]:
    """What this node has on disk of its neighbours."""
    folder = run_folder(nodes.folder / f"node-{node}", nodes.run_id)
    return hellos_of(json.loads((folder / "run.json").read_text()).get("hellos"))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("seed", [3, "os"])
@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
async def test_nodes_compute_what_the_embedded_run_does(
    groups: list[list[int]], seed: int | str, kind: str, tmp_path: Path
) -> None:
    """With secret keys: what it does with the same keys and nonces."""
    assert_same_run(await networked(dpp3(seed, noise__kind=kind), tmp_path, groups))


async def test_over_tls(tmp_path: Path) -> None:
    async with live(dpp3(), tmp_path, one_each(4), tls=True) as nodes:
        await nodes.prepare()
        await nodes.finish()
    assert_same_run(nodes)


async def test_what_edges_add_vanishes_up_to_the_grid(tmp_path: Path) -> None:
    """Of noise that four nodes drew apart from each other."""
    nodes = await networked(dpp3(), tmp_path, one_each(4))
    truth = nodes.merged().result().truth
    assert truth is not None
    noisy = truth["edge"][[0, 4, 8]]
    assert np.abs(noisy).min(axis=2).all()
    grid = nodes.simulation.experiment.noise.g  # type: ignore[attr-defined]
    assert np.abs(noisy.sum(axis=1)).max() < 4 * grid


async def test_hellos_are_the_same_at_both_ends_and_new_in_every_run(tmp_path: Path) -> None:
    said = []
    for name in ("first", "second"):
        nodes = await networked(dpp3(), tmp_path / name, one_each(4))
        own = {agent: one.hello for agent, one in nodes.prepared().edge_identities(range(4)).items()}
        for node, around in {0: (1, 3), 1: (0, 2), 2: (1, 3), 3: (0, 2)}.items():
            assert kept(nodes, node) == {agent: own[agent] for agent in around}
        said.append(own)
    for agent in range(4):
        assert said[0][agent].nonce != said[1][agent].nonce
        assert said[0][agent].public_key != said[1][agent].public_key


async def test_seeded_runs_exchange_nothing(tmp_path: Path) -> None:
    nodes = await networked(dpp3(3), tmp_path, one_each(4))
    assert not any(kept(nodes, node) for node in nodes.groups)


async def test_nobody_begins_before_the_last_neighbour_is_there(tmp_path: Path) -> None:
    async with live(dpp3(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare(0, 1, 2)
        await nodes.release(15, 0, 1, 2)
        await asyncio.sleep(0.3)
        shells = [nodes.nodes[node].shell for node in (0, 1, 2)]
        assert [shell and shell.machine.waiting_for() for shell in shells] == [[3], [0, 2], [3]]
        assert [shell and shell.machine.outbox.frames for shell in shells] == [0, 2, 0]
        await nodes.prepare(3)
        await nodes.finish()
    assert_same_run(nodes)


@pytest.mark.parametrize("at", [1, 4, 6, 14])
async def test_nodes_that_come_back_send_the_same_bytes(at: int, tmp_path: Path) -> None:
    """One alone, then everybody."""
    async with live(dpp3(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(at)
        await nodes.reach(at)
        before = [kept(nodes, node) for node in nodes.groups]
        await nodes.nodes[1].stop()
        await nodes.start_one(1)
        await nodes.prepare(1)
        await nodes.stop()
        for node in nodes.groups:
            await nodes.start_one(node)
        await nodes.prepare()
        await nodes.finish()
    assert [kept(nodes, node) for node in nodes.groups] == before
    assert_same_run(nodes)


async def test_nodes_that_are_killed_send_the_same_bytes(tmp_path: Path) -> None:
    """Within a cycle: two of them run gradient round 8 again, from the checkpoint at round 5."""
    async with live(dpp3(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(9)
        await nodes.reach(9)
        for node in (1, 2):
            await killed(nodes, node)
        for node in (1, 2):
            await nodes.start_one(node)
        await nodes.prepare(1, 2)
        assert [one.shell.machine.k for one in nodes.nodes.values() if one.shell] == [9, 5, 5, 9]
        await nodes.finish()
    assert_same_run(nodes)


# --- hellos that are refused ----------------------------------------------------------------------------------


def said_by_peer(nodes: Live, **changes: Any) -> bytes:
    """The hello of agent 1, as its node says it, with changes."""
    shell = nodes.nodes[PEER].shell
    assert shell is not None
    own = shell.machine.agents.hellos[PEER]
    hello: dict[str, Any] = {"agent": PEER, "public_key": own.public_key, "nonce": own.nonce} | changes
    run = hello.pop("run", nodes.run_id)
    return bytes(wire_pb2.Frame(run=run, hellos=[wire_pb2.Hello(**hello)]).SerializeToString())


async def greet(nodes: Live, frame: bytes | None, *, who: str = "orchestrator", agents: str = "1") -> grpc.StatusCode:
    """Begin a stream to the victim in the name of agent 1; again if the neighbour's own stream takes its place."""
    said = (("dpp2-run", nodes.run_id), ("dpp2-agents", agents), ("dpp2-need", "0"))
    while True:
        async with nodes.channel(VICTIM, who) as channel:
            call: Any = channel.stream_stream(EXCHANGE)(metadata=said, timeout=SECONDS)
            try:
                if frame is not None:
                    await call.write(frame)
                    await call.done_writing()
                while await call.read() is not grpc.aio.EOF:
                    pass
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass
            code: grpc.StatusCode = await call.code()
        if code != STATUS["replaced"]:
            return code


LOW_ORDER = bytes(32)
BAD_HELLOS: dict[str, tuple[str, dict[str, Any]]] = {
    "of another agent": ("bad hello", {"agent": 3}),
    "of the victim itself": ("bad hello", {"agent": VICTIM}),
    "with a short key": ("bad hello", {"public_key": b"short"}),
    "with a short nonce": ("bad hello", {"nonce": b""}),
    "with a key that has no secret": ("bad hello", {"public_key": LOW_ORDER}),
    "of another run": ("wrong run", {"run": "0" * 32}),
    "with another nonce": ("other hello", {"nonce": bytes(32)}),
    "with another key": ("other hello", {"public_key": bytes([9]) + bytes(31)}),
}


async def test_a_hello_that_is_wrong_is_refused_with_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a run; the run goes on, to the same end."""
    monkeypatch.setattr("dpp2.node.peers.OPEN_SECONDS", 0.0)
    monkeypatch.setattr("dpp2.node.lifetime.CONTRADICTIONS", 100)
    async with live(dpp3(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(5)
        await nodes.reach(5)
        for kind, changes in BAD_HELLOS.values():
            assert await greet(nodes, said_by_peer(nodes, **changes)) == STATUS[kind]
            assert nodes.nodes[VICTIM].refusals.counts[kind]
        assert await greet(nodes, b"\xff") == STATUS["not a frame"]
        assert await greet(nodes, wire_pb2.Frame(run=nodes.run_id).SerializeToString()) == STATUS["bad hello"]
        await nodes.finish()
    assert_same_run(nodes)


async def test_who_says_no_hello_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live(dpp3(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare(VICTIM)
        monkeypatch.setattr("dpp2.node.shell.HELLO_SECONDS", 0.2)
        assert await greet(nodes, None) == STATUS["bad hello"]
        monkeypatch.setattr("dpp2.node.shell.HELLO_SECONDS", 10.0)
        await nodes.prepare()
        await nodes.finish()
    assert_same_run(nodes)


async def test_a_neighbour_that_has_lost_its_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would say another hello: its neighbours would send the same own noise under other noise of the edge."""
    monkeypatch.setattr("dpp2.node.lifetime.CONTRADICTION_SECONDS", 0.5)
    async with live(dpp3(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(1, VICTIM)  # its first round has left
        shell = nodes.nodes[VICTIM].shell
        assert shell is not None
        async with asyncio.timeout(SECONDS):
            while not shell.machine.outbox.frames:
                await asyncio.sleep(0.01)
        await nodes.nodes[PEER].stop()
        shutil.rmtree(tmp_path / f"node-{PEER}")
        await nodes.start_one(PEER)
        await nodes.prepare(PEER)
        report = await nodes.watched(VICTIM)
        assert "they have lost their files" in report.failure
        assert nodes.nodes[VICTIM].refusals.counts["other hello"]
        assert shell.machine.outbox.frames == 2
        assert "agent 1 said another one when this run began" in caplog.text


async def test_a_hello_that_nothing_rests_on_yet_may_change(tmp_path: Path) -> None:
    """Its neighbour had no credit: nothing has left, so nothing can contradict it."""
    async with live(dpp3(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await asyncio.sleep(0.3)
        await nodes.nodes[PEER].stop()
        shutil.rmtree(tmp_path / f"node-{PEER}")
        await nodes.start_one(PEER)
        await nodes.prepare(PEER)
        await until_met_anew(nodes)
        await nodes.finish()
    assert_same_run(nodes)


async def until_met_anew(nodes: Live) -> None:
    """Until everybody who has met an earlier PEER has met this one."""
    shells = {node: one.shell for node, one in nodes.nodes.items()}
    peer = shells.pop(PEER)
    assert peer is not None
    hello = peer.machine.agents.hellos[PEER]
    machines = [shell.machine for shell in shells.values() if shell is not None]
    async with asyncio.timeout(SECONDS):
        while any(machine.hellos.met.get(PEER, hello) != hello for machine in machines):
            await asyncio.sleep(0.01)


async def test_a_certificate_of_another_agent_brings_no_hello(tmp_path: Path) -> None:
    """Of a neighbour, of somebody else, and of the orchestrator: all of the same authority."""
    async with live(dpp3(), tmp_path, one_each(4), tls=True) as nodes:
        await nodes.prepare(VICTIM, PEER)
        shell = nodes.nodes[VICTIM].shell
        assert shell is not None
        async with asyncio.timeout(SECONDS):
            while PEER not in shell.machine.hellos.met:
                await asyncio.sleep(0.01)
        met, forged = dict(shell.machine.hellos.met), said_by_peer(nodes, nonce=bytes(32))
        for who in ("node-3", "node-0", "orchestrator"):
            assert await greet(nodes, forged, who=who) == STATUS["impostor"]
        assert await greet(nodes, forged, who="node-3", agents="3") == STATUS["bad hello"]
        assert shell.machine.hellos.met == met
        await nodes.prepare()
        await nodes.finish()
    assert_same_run(nodes)


@pytest.mark.parametrize(("seed", "tls", "said"), [("os", False, True), ("os", True, False), (3, False, False)])
async def test_plaintext_says_what_an_active_attacker_could_do(
    seed: int | str, tls: bool, said: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dpp2.node")
    async with live(dpp3(seed), tmp_path, one_each(4), tls=tls):
        assert (WITHOUT_TLS in caplog.text) == said


async def test_whoever_only_listens_cannot_draw_the_noise(tmp_path: Path) -> None:
    """Both hellos, the run id and the digest are known to him. Each key that he can make of them is another one."""
    nodes = await networked(dpp3(), tmp_path, one_each(4))
    prepared = nodes.prepared()
    own = prepared.edge_identities((0, 1))
    run = prepared.run_id, prepared.experiment.digest
    secret = own[0].run_key(own[1].hello, *run)
    known: Sequence[bytes] = [own[0].hello.public_key, own[1].hello.public_key, own[0].hello.nonce, own[1].hello.nonce]
    said = [part for i in (0, 1) for part in (str(i), own[i].hello.public_key, own[i].hello.nonce)]
    guesses = [derive(one, "edge run key", *run, *said) for one in (*known, bytes(32), b"")]
    guesses += [own[i].hello.shared_with(one) for i in (0, 1) for one in known]
    assert secret not in guesses
    drawn = EdgeNoise("gaussian", [EdgeSecret((0, 1), secret, 1.0)], [0], 3)(0)
    for guess in guesses:
        assert not np.isclose(EdgeNoise("gaussian", [EdgeSecret((0, 1), guess, 1.0)], [0], 3)(0), drawn).any()
