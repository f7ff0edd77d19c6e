"""A node whose run failed is seen: it says why, is not well, and ends; so is a run that strangers disturb."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dpp2.node.cluster import Cluster
from dpp2.node.codec import encode
from dpp2.node.disk import RealDisk
from dpp2.node.lifetime import Lifetime
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc
from dpp2.orchestrator.drive import Drive, DriveFailed
from tests.node.live import SECONDS, Live, assert_same_run, live, one_each, small
from tests.node.test_failures import fail_in_round

SERVING = health_pb2.HealthCheckResponse.SERVING
ROUNDS = 12


async def health(nodes: Live, node: int) -> Any:
    async with nodes.channel(node) as channel:
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=SECONDS)
        return reply.status


async def test_probes_hear_of_the_whole_node_only_and_cannot_leave_anything_behind(tmp_path: Path) -> None:
    """A watcher would be kept, under any name, for as long as it likes."""
    async with live(small(), tmp_path, one_each(4)) as nodes, nodes.channel(1) as channel:
        stub, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest(service="x" * 60_000)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Check(request, timeout=SECONDS)
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND
        watch = stub.Watch(request, timeout=SECONDS)
        with pytest.raises(grpc.aio.AioRpcError):
            await watch.read()
        assert await watch.code() == grpc.StatusCode.UNIMPLEMENTED
        assert await health(nodes, 1) == SERVING


def test_a_file_waits_while_too_many_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers' connections take descriptors, and let them go again: no run ends for that."""
    opened, failures = os.open, [errno.EMFILE, errno.ENFILE]

    def scarce(*arguments: Any, **more: Any) -> int:
        if failures:
            raise OSError(failures.pop(), "Too many open files")
        return opened(*arguments, **more)

    monkeypatch.setattr(os, "open", scarce)
    RealDisk(tmp_path).replace("node.json", b"{}")
    assert (tmp_path / "node.json").read_bytes() == b"{}"
    failures.append(errno.EMFILE)
    RealDisk(tmp_path).sync_names()
    failures.append(errno.ENOSPC)
    with pytest.raises(OSError, match="Errno 28"):
        RealDisk(tmp_path).replace("node.json", b"")


async def test_connections_are_bounded(tmp_path: Path) -> None:
    """Four for each agent, and 64: beyond that they are closed at once."""
    async with live(small(), tmp_path, one_each(4)) as nodes:
        sockets = [await asyncio.open_connection("127.0.0.1", nodes.ports[1]) for _ in range(200)]
        await asyncio.sleep(0.5)
        for _, writer in sockets:
            writer.write(b"PRI")
        await asyncio.sleep(0.5)
        still_open = sum(not (reader.at_eof() or reader.exception()) for reader, _ in sockets)
        for _, writer in sockets:
            writer.close()
        assert still_open <= 4 * 4 + 64


async def test_a_node_that_dies_before_all_are_prepared_is_named(tmp_path: Path) -> None:
    async with live(small(run__rounds=ROUNDS), tmp_path, one_each(4)) as nodes:
        await nodes.nodes[3].stop()  # this one is missing
        drive = drive_of(nodes)
        driving = asyncio.create_task(driven(drive))
        async with asyncio.timeout(SECONDS):
            while not all(drive.seen[node].prepared for node in range(3)):
                await asyncio.sleep(0.02)
            await nodes.nodes[1].stop()
            while "node 1 (127.0.0.1:" not in drive.absent():
                await asyncio.sleep(0.02)
        assert "has gone" in drive.absent()
        for node in (1, 3):
            await nodes.start_one(node)
        await driving
    assert_same_run(nodes)


def drive_of(nodes: Live, window: int = 512) -> Drive:
    return Drive(Cluster.load(nodes.folder / "cluster.toml"), nodes.run_id, nodes.digest, window=window)


async def driven(drive: Drive) -> None:
    async with asyncio.timeout(SECONDS):
        await drive.run(lambda heard: None)


async def test_a_failed_run_is_told_then_ends_the_node(tmp_path: Path) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        assert await health(nodes, 1) == SERVING
        fail_in_round(nodes, 1, 6, ZeroDivisionError("0/0"))
        with pytest.raises(DriveFailed, match=r"node 1 \(127.*\) has failed in round 6: ZeroDivisionError at"):
            await driven(drive_of(nodes))
        async with asyncio.timeout(1):
            await nodes.nodes[1].stopped.wait()
        assert await health(nodes, 1) != SERVING
        assert not nodes.nodes[0].stopped.is_set()
        assert await health(nodes, 0) == SERVING


async def test_a_failed_run_ends_the_node_when_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpp2.node.lifetime.FAREWELL_SECONDS", 0.2)
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        fail_in_round(nodes, 1, 6, MemoryError())
        await nodes.release(ROUNDS)
        async with asyncio.timeout(SECONDS):
            await nodes.nodes[1].stopped.wait()


async def test_a_node_that_cannot_be_prepared_is_not_well_until_it_can(tmp_path: Path) -> None:
    async with live(small(run__seed="os"), tmp_path, one_each(4)) as nodes:
        (tmp_path / "eta.key").chmod(0o644)
        with pytest.raises(grpc.aio.AioRpcError):
            await nodes.prepare(1)
        assert await health(nodes, 1) != SERVING
        assert not nodes.nodes[1].stopped.is_set()
        (tmp_path / "eta.key").chmod(0o600)
        await nodes.prepare(1)
        assert await health(nodes, 1) == SERVING
        nodes.digest = "0" * 64
        with pytest.raises(grpc.aio.AioRpcError):
            await nodes.prepare(1)  # the caller's fault, not the node's
        assert await health(nodes, 1) == SERVING


async def test_patience_counts_from_the_last_call() -> None:
    life = Lifetime()
    async with asyncio.timeout(SECONDS):
        waiting = asyncio.create_task(life.over(0.3))
        for _ in range(4):
            await asyncio.sleep(0.15)
            life.hear()
        assert not waiting.done()
        assert await waiting is True
        life.stopped.set()
        assert await life.over(None) is False


# --- plaintext, and strangers ---------------------------------------------------------------------------------


async def test_a_strangers_last_release_ends_the_run_with_a_reason(tmp_path: Path) -> None:
    """And the same command goes on from there."""
    async with live(small(run__rounds=ROUNDS), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        async with nodes.channel(2) as channel:
            request = wire_pb2.ReleaseRequest(run=nodes.run_id, until=5, last=True)
            await wire_pb2_grpc.ControlStub(channel).Release(request, timeout=SECONDS)
        with pytest.raises(DriveFailed, match=r"node 2 .* has ended after 5 rounds where 12 were due: somebody else"):
            await driven(drive_of(nodes))
        for node in nodes.groups:
            await nodes.nodes[node].stop()
            await nodes.start_one(node)
        await driven(drive_of(nodes))
    assert_same_run(nodes)


async def test_a_strangers_frame_ends_the_run_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came first, so the neighbour's own is refused, again and again, and with it everything after."""
    monkeypatch.setattr("dpp2.node.lifetime.CONTRADICTION_SECONDS", 0.5)
    async with live(small(run__rounds=ROUNDS), tmp_path, one_each(4)) as nodes:
        await nodes.prepare(2)
        forged = encode(nodes.run_id, 0, "y", [1], np.ones((1, 3)))
        said = (("dpp2-run", nodes.run_id), ("dpp2-agents", "1"), ("dpp2-need", "0"))
        async with nodes.channel(2) as channel:
            call: Any = channel.stream_stream("/dpp2.node.v1.Peer/Exchange")(metadata=said)
            await call.write(forged)
            await asyncio.sleep(0.2)
            call.cancel()
        with pytest.raises(DriveFailed, match=r"node 2 .* waits for agents \[1\], and what comes in their name"):
            await driven(drive_of(nodes))


async def test_refused_frames_end_no_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger that contradicts what came before is turned away, and that is all."""
    monkeypatch.setattr("dpp2.node.lifetime.CONTRADICTION_SECONDS", 0.0)
    async with live(small(run__rounds=ROUNDS), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(6)
        await nodes.reach(6)
        said = (("dpp2-run", nodes.run_id), ("dpp2-agents", "1"), ("dpp2-need", "6"))
        refused = 0
        while refused < 5:
            async with nodes.channel(2) as channel:
                call: Any = channel.stream_stream("/dpp2.node.v1.Peer/Exchange")(metadata=said)
                with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                    await call.write(encode(nodes.run_id, 5, "y", [1], np.ones((1, 3))))
                code = await call.code()
                assert code in (grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.ABORTED)  # the neighbour dials again
                refused += code == grpc.StatusCode.ALREADY_EXISTS
        await asyncio.sleep(1.2)  # a look
        await nodes.finish()
    assert_same_run(nodes)


async def contradict(nodes: Live, times: int) -> None:
    """In the name of agent 0, at node 2: its row of the round that is due, and then another one, on every stream."""
    said = (("dpp2-run", nodes.run_id), ("dpp2-agents", "0"), ("dpp2-need", "0"))
    async with nodes.channel(2, "node-0") as channel:
        while nodes.nodes[2].refusals.counts["other bytes"] < times:
            call: Any = channel.stream_stream("/dpp2.node.v1.Peer/Exchange")(metadata=said)
            due = int(dict(await call.initial_metadata())["dpp2-need"])
            with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                for value in (1.0, 2.0):
                    await call.write(encode(nodes.run_id, due, "y", [0], np.full((1, 3), value)))
                while await call.read() is not grpc.aio.EOF:
                    pass
            assert await call.code() == grpc.StatusCode.ALREADY_EXISTS


@pytest.mark.parametrize(("tls", "absent"), [(True, [0]), (True, [0, 1]), (False, [0, 1])])
async def test_a_neighbour_that_contradicts_itself_does_not_end_anothers_run(
    *, tls: bool, absent: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An honest neighbour that is away for a while is waited for, too. Under TLS the log names the liar."""
    monkeypatch.setattr("dpp2.node.server.REPORT_EVERY", 0.05)
    monkeypatch.setattr("dpp2.node.lifetime.CONTRADICTION_SECONDS", 0.0)
    async with live(small(run__rounds=ROUNDS, network__agents=3), tmp_path, one_each(3), tls=tls) as nodes:
        await nodes.prepare()
        await nodes.release(6)
        await nodes.reach(6)
        for node in absent:
            await nodes.nodes[node].stop()
        await nodes.release(ROUNDS, *nodes.groups.keys() - set(absent))
        await asyncio.sleep(0.3)  # some looks
        await contradict(nodes, times=4)
        await asyncio.sleep(0.3)
        assert not nodes.nodes[2].failure
        assert not nodes.nodes[2].stopped.is_set()
        assert "agents (0,) sent round 6, phase 'y' before, and differently" in caplog.text


# --- processes ------------------------------------------------------------------------------------------------

PRINTS = """
import os
print("loaded", flush=True)
os.write(1, b"not by Python\\n")
class Objective:
    dimension, smoothness = 3, 1.0
    def value(self, x):
        return float(x @ x) / 2
    def gradient(self, x):
        print("gradient", "of a long line" * 1000)
        return x
def objective(agent, agents):
    return Objective()
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """`dpp2 node` with an objective that prints."""
    (tmp_path / "objective.py").write_text(PRINTS)
    tables = (
        '[run]\nseed = 1\n[network]\ntopology = "path"\nagents = 2\n[problem]\nname = "file"\npath = "objective.py"\n'
    )
    (tmp_path / "experiment.toml").write_text(tables)
    (tmp_path / "cluster.toml").write_text('[agents]\n0 = "127.0.0.1:1"\n1 = "127.0.0.1:2"\n')
    return [
        *(sys.executable, "-m", "dpp2.node", "--agents", "0", "--experiment", str(tmp_path / "experiment.toml")),
        *("--cluster", str(tmp_path / "cluster.toml"), "--home", str(tmp_path / "home"), "--plaintext"),
        *("--listen", "127.0.0.1:0", "--patience", "0.2"),
    ]


def test_what_an_objective_prints_is_no_part_of_the_announcement(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert list(json.loads(ended.stdout)) == ["listening"]
    for printed in ("loaded", "not by Python", "gradient of a long line"):
        assert printed in ended.stderr


def test_a_node_that_nobody_calls_ends_in_order(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0
    assert "no orchestrator has called for 0.2 s (--patience): this node ends" in ended.stderr


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_node_that_others_look_for_at_another_port_says_so(
    elsewhere: bool, command: list[str], tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    listed = 1 if elsewhere else port
    (tmp_path / "cluster.toml").write_text(f'[agents]\n0 = "127.0.0.1:{listed}"\n1 = "127.0.0.1:2"\n')
    ended = subprocess.run([*command, "--listen", f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=SECONDS)
    said = f"has agent 0 at 127.0.0.1:1, and this node listens on port {port}: others will not find it there"
    assert (ended.returncode, said in ended.stderr) == (0, elsewhere), ended.stderr


def test_a_port_is_announced_on_the_descriptor_that_was_handed_over(command: list[str]) -> None:
    ours, its = os.pipe()
    process = subprocess.Popen(
        [*command, "--announce", str(its)], pass_fds=[its], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    os.close(its)
    with os.fdopen(ours) as announced:
        assert list(json.loads(announced.read())) == ["listening"]
    printed, _ = process.communicate(timeout=SECONDS)
    assert b"not by Python" in printed
    assert b"listening" not in printed


@pytest.mark.parametrize("patience", ["0", "-1", "nan"])
def test_a_patience_that_is_none(patience: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from dpp2.node.__main__ import main

    with pytest.raises(SystemExit) as refused:
        main(["--agents", "0", "--plaintext", "--probe", "--patience", patience])
    assert refused.value.code == 2
    assert "--patience must be a number > 0" in capsys.readouterr().err
