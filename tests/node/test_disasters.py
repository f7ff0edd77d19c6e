"""Real processes on real file systems: killed, paused, with full disks, without power. Afterwards nothing shows."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from dpp2 import Simulation
from dpp2.node.cluster import Cluster
from dpp2.node.server import run_folder
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc
from dpp2.orchestrator.local import for_nodes
from dpp2.orchestrator.merge import load_node_records
from dpp2.privacy import Epsilon
from dpp2.store.ledgers import LedgerFile
from tests.needed import not_here
from tests.node.fragile import lose_power
from tests.node.live import assert_same_run, live, one_each, small

AGENTS, EVERY, STEP = 3, 7, 20
SMALL_DISK = 1 << 20  # bytes
SECONDS = 60  # the longest wait for anything


def until(condition: Callable[[], Any]) -> Any:
    ends = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < ends, "waited too long"
        time.sleep(0.01)
    return value


class SmallDisk:
    """A file system of its own, which can be filled up."""

    def __init__(self, at: Path) -> None:
        self.at, self._ballast = at, at / "ballast"
        at.mkdir(parents=True)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(at)], capture_output=True, text=True
        )
        if mounted.returncode:
            not_here(f"needs the right to mount a tmpfs ({mounted.stderr.strip()})")

    def fill(self) -> None:
        """To the last byte."""
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.at)], check=True)


class Processes:
    """A node for every agent, each a process on a fragile disk; credit is given by hand, step by step."""

    def __init__(self, folder: Path, rounds: int, environment: dict[str, str]) -> None:
        self.folder, self._environment = folder, environment
        self.simulation = Simulation(small(run__rounds=rounds, run__telemetry="none", network__agents=AGENTS))
        self.run_id, self.released = self.simulation.run_id, 0
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._ports = dict.fromkeys(range(AGENTS), 0)
        self._channels: dict[int, grpc.Channel] = {}
        self.refused = 0  # times that a node did not go on without being told to
        (folder / "experiment.toml").write_text(for_nodes(self.simulation.prepared, folder).to_toml())

    def home(self, node: int) -> Path:
        return self.folder / f"node-{node}"

    def log(self, node: int) -> str:
        path = self.folder / f"node-{node}.log"
        return path.read_text() if path.exists() else ""

    def start(self) -> None:
        for node in range(AGENTS):
            self._spawn(node)
        addresses = {node: f"127.0.0.1:{port}" for node, port in self._ports.items()}
        (self.folder / "cluster.toml").write_text(Cluster(addresses, {}).to_toml())
        for node in range(AGENTS):
            self._prepare(node)

    def _spawn(self, node: int, *more: str) -> None:
        files = {"--experiment": self.folder / "experiment.toml", "--cluster": self.folder / "cluster.toml"}
        named = [word for option, path in files.items() for word in (option, str(path))]
        named += ["--agents", str(node), "--home", str(self.home(node)), "--checkpoint-every", str(EVERY)]
        with (self.folder / f"node-{node}.log").open("a") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.node.fragile", *named, "--plaintext", *more),
                    *("--listen", f"127.0.0.1:{self._ports[node]}"),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
            )
        self._processes[node] = process
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said, self.log(node)
        self._ports[node] = int(json.loads(said)["listening"])
        if (channel := self._channels.get(node)) is not None:
            channel.close()
        self._channels[node] = grpc.insecure_channel(f"127.0.0.1:{self._ports[node]}")

    def _stub(self, node: int) -> Any:
        return wire_pb2_grpc.ControlStub(self._channels[node])

    def _prepare(self, node: int) -> None:
        request = wire_pb2.PrepareRequest(run=self.run_id, digest=self.simulation.experiment.digest)
        self._stub(node).Prepare(request, timeout=SECONDS, wait_for_ready=True)

    def restart(self, node: int) -> None:
        """By the same command line; if that is what it takes, its operator says that its neighbours are honest."""
        self._spawn(node)
        try:
            self._prepare(node)
        except grpc.RpcError as error:
            if "or say --trust-journal" not in str(error):
                raise
            self.refused += 1
            self.kill(node)
            self._spawn(node, "--trust-journal")
            self._prepare(node)
        self._release(node)

    def kill(self, node: int) -> None:
        self._processes[node].kill()
        self._processes[node].communicate()

    def pause(self, node: int, seconds: float) -> None:
        self._processes[node].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._processes[node].send_signal(signal.SIGCONT)

    def _release(self, node: int) -> None:
        request = wire_pb2.ReleaseRequest(run=self.run_id, until=self.released)
        self._stub(node).Release(request, timeout=SECONDS)

    def release(self, rounds: int) -> None:
        self.released += rounds
        for node in range(AGENTS):
            self._release(node)

    def report(self, node: int) -> Any:
        """None: it is gone."""
        with suppress(grpc.RpcError):
            call = self._stub(node).Watch(wire_pb2.WatchRequest(run=self.run_id), timeout=SECONDS)
            report = next(iter(call))
            call.cancel()
            return report
        return None

    def failed_for_lack_of_space(self, node: int) -> bool:
        report = self.report(node)
        return report is None or bool(report.failure)

    def end_failed(self, node: int) -> None:
        """A node that has failed ends, by itself or when it is told to; it has said why, in a sentence."""
        self._processes[node].terminate()
        self._processes[node].communicate(timeout=SECONDS)
        assert "No space left on device" in self.log(node)
        assert "Traceback" not in self.log(node)

    def caught_up(self) -> bool:
        reports = [self.report(node) for node in range(AGENTS)]
        for node, report in enumerate(reports):
            assert report is not None, self.log(node)
            assert not report.failure, report
        return all(report.round == self.released for report in reports)

    def finish(self) -> None:
        until(lambda: all(self.report(node).finished for node in range(AGENTS)))
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS)
            assert process.returncode == 0

    def clean_up(self) -> None:
        for channel in self._channels.values():
            channel.close()
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()

    def assert_as_if_nothing_had_happened(self) -> None:
        """Bit for bit the embedded run, and ledgers that say exactly what was sent."""
        embedded, merged = self.simulation, Simulation(self.simulation.prepared)
        embedded.advance(embedded.remaining)
        load_node_records(merged, [run_folder(self.home(node), self.run_id) for node in range(AGENTS)])
        assert merged.result().x.tobytes() == embedded.result().x.tobytes()
        ours, theirs = embedded.result().observation, merged.result().observation
        assert ours is not None
        assert theirs is not None
        for name in ours:
            assert ours[name].tobytes() == theirs[name].tobytes(), name
        spent = embedded.account.epsilon(embedded.k)
        assert isinstance(spent, Epsilon)
        for node in range(AGENTS):
            (total,) = LedgerFile(self.home(node) / "ledger.sqlite").totals()
            assert isinstance(total.spent, Epsilon)
            assert (total.agent, total.runs, total.spent.value) == (str(node), 1, spent.value)


class Disasters:
    """Each is one move: it disturbs, and puts right whatever does not by itself."""

    def __init__(self, nodes: Processes, disk: SmallDisk, small_one: int, rng: random.Random) -> None:
        self._nodes, self._disk, self._small, self._rng = nodes, disk, small_one, rng

    def _wait(self) -> None:
        """So that it hits nodes in the middle of whatever they do."""
        time.sleep(self._rng.random() * 0.05)

    def kill(self) -> None:
        node = self._rng.randrange(AGENTS)
        self._nodes.release(STEP)
        self._wait()
        self._nodes.kill(node)
        self._wait()
        self._nodes.restart(node)

    def pause(self) -> None:
        node = self._rng.randrange(AGENTS)
        self._nodes.release(STEP)
        self._wait()
        self._nodes.pause(node, 0.5)

    def full_disk(self) -> None:
        self._nodes.release(STEP)
        self._wait()
        self._disk.fill()
        with suppress(grpc.RpcError):  # it may be gone already
            self._nodes.release(STEP)
        until(lambda: self._nodes.failed_for_lack_of_space(self._small))
        self._nodes.end_failed(self._small)
        self._disk.free()
        self._nodes.restart(self._small)
        for node in range(AGENTS):
            self._nodes._release(node)

    def power_loss(self) -> None:
        node = self._rng.randrange(AGENTS)
        self._nodes.release(STEP)
        self._wait()
        self._nodes.kill(node)
        lose_power(self._nodes.home(node), self._rng)
        self._nodes.restart(node)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "node-1")
    yield disk
    disk.unmount()


def disturbed(plan: list[str], folder: Path, disk: SmallDisk, environment: dict[str, str]) -> Processes:
    """A whole run with these disasters in it."""
    rng = random.Random(len(plan))
    rng.shuffle(plan)
    nodes = Processes(folder, (len(plan) + plan.count("full_disk") + 1) * STEP, environment)
    try:
        nodes.start()
        disasters = Disasters(nodes, disk, 1, rng)
        for name in plan:
            getattr(disasters, name)()
            until(nodes.caught_up)
        nodes.release(STEP)
        nodes.finish()
    finally:
        nodes.clean_up()
    nodes.assert_as_if_nothing_had_happened()
    return nodes


async def test_a_node_whose_disk_fills_up_goes_on_when_there_is_room_again(
    small_disk: SmallDisk, tmp_path: Path
) -> None:
    """In the middle of a run, and before it begins."""
    async with live(small(run__rounds=40), tmp_path, one_each(4)) as nodes:
        small_disk.fill()
        with pytest.raises(grpc.aio.AioRpcError, match=r"No space left on device|database or disk is full"):
            await nodes.prepare(1)
        small_disk.free()
        await nodes.prepare()
        for rounds in (13, 26):
            await nodes.release(rounds)
            small_disk.fill()
            await nodes.release(rounds + 1)
            report = await nodes.watched(1)
            assert "No space left on device" in report.failure
            await nodes.nodes[1].stop()
            small_disk.free()
            await nodes.start_one(1)
            await nodes.prepare(1)
            await nodes.release(rounds + 1, 1)
            await nodes.reach(rounds + 1)
        await nodes.finish()
    assert_same_run(nodes)


@pytest.mark.slow
def test_a_full_disk_and_a_loss_of_power(tmp_path: Path, small_disk: SmallDisk, environment: dict[str, str]) -> None:
    disturbed(["full_disk", "power_loss"], tmp_path, small_disk, environment)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_thirty_kills_five_pauses_three_full_disks_three_losses_of_power(
    tmp_path: Path, small_disk: SmallDisk, environment: dict[str, str]
) -> None:
    plan = ["kill"] * 30 + ["pause"] * 5 + ["full_disk"] * 3 + ["power_loss"] * 3
    nodes = disturbed(plan, tmp_path, small_disk, environment)
    assert 1 <= nodes.refused <= 3
