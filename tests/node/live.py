"""Real nodes on ports of 127.0.0.1 in one event loop, driven by real calls, and what an embedded run does instead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from dpp2 import Experiment, Simulation
from dpp2.node.cluster import Cluster
from dpp2.node.keyring import key_files, write_key
from dpp2.node.limits import CHANNEL_OPTIONS
from dpp2.node.server import Node, NodeConfig, run_folder
from dpp2.node.tls import Identity, node_name, open_channel
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc
from dpp2.orchestrator import certs
from dpp2.orchestrator.local import for_nodes
from dpp2.orchestrator.merge import load_node_records
from dpp2.prepared import PreparedRun, Secrets

SECONDS = 20  # the longest wait for anything
EVERY = 5
SMALL: dict[str, Any] = {
    "run.rounds": 12,
    "network.topology": "ring",
    "network.agents": 4,
    "problem.name": "quadratic",
    "problem.dimension": 3,
}


def small(**changes: Any) -> Experiment:
    return Experiment.load(overrides=SMALL | {name.replace("__", "."): value for name, value in changes.items()})


def one_each(agents: int) -> list[list[int]]:
    return [[agent] for agent in range(agents)]


class Live:
    """The nodes of one run; they can be stopped and started again on the same port, like processes."""

    def __init__(
        self, simulation: Simulation, folder: Path, groups: Sequence[Sequence[int]], *, tls: bool = False
    ) -> None:
        self.simulation, self.folder = simulation, folder
        self.tls = folder / "certs" if tls else None
        self.groups = {min(group): tuple(group) for group in groups}
        self.nodes: dict[int, Node] = {}
        self.ports: dict[int, int] = {}
        self.run_id, self.digest = simulation.prepared.secrets.run_id, simulation.experiment.digest

    @property
    def homes(self) -> list[Path]:
        return [self.folder / f"node-{node}" for node in self.groups]

    async def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.tls:
            certs.make(self.tls, list(self.groups.values()), days=1)
        (self.folder / "experiment.toml").write_text(for_nodes(self.simulation.prepared, self.folder).to_toml())
        secrets = self.simulation.prepared.secrets
        if self.simulation.experiment.run.seed == "os":
            write_key(self.folder / "eta.key", secrets.eta)
            for node, group in self.groups.items():
                own = dict(zip(group, secrets.agent_keys(group), strict=True))
                for path, key in key_files(self.folder / f"node-{node}-keys", own).items():
                    write_key(path, key)
        for node in self.groups:
            await self.start_one(node)
        addresses = {agent: f"127.0.0.1:{self.ports[node]}" for node, group in self.groups.items() for agent in group}
        (self.folder / "cluster.toml").write_text(Cluster(addresses, {}).to_toml())

    async def start_one(self, node: int, *, trust_journal: bool = False) -> None:
        config = NodeConfig(
            experiment=Experiment.load(self.folder / "experiment.toml").resolve(),
            owned=self.groups[node],
            cluster=self.folder / "cluster.toml",
            home=self.folder / f"node-{node}",
            tls=self.tls and self.tls / f"node-{node}",
            every=EVERY,
            telemetry=self.simulation.experiment.run.telemetry == "full",
            eta_key=self.folder / "eta.key",
            trust_journal=trust_journal,
        )
        self.nodes[node] = Node(config)
        self.ports[node] = await self.nodes[node].start(f"127.0.0.1:{self.ports.get(node, 0)}")

    def channel(self, node: int, who: str = "orchestrator") -> grpc.aio.Channel:
        """To a node; under TLS with the certificate of `who`."""
        identity = Identity.load(self.tls / who, []) if self.tls else None
        return open_channel(identity, f"127.0.0.1:{self.ports[node]}", node_name(self.groups[node]), CHANNEL_OPTIONS)

    async def prepare(self, *nodes: int) -> None:
        for node in nodes or self.groups:
            async with self.channel(node) as channel:
                request = wire_pb2.PrepareRequest(run=self.run_id, digest=self.digest)
                await wire_pb2_grpc.ControlStub(channel).Prepare(request, timeout=SECONDS)

    async def release(self, until: int, *nodes: int) -> None:
        for node in nodes or self.groups:
            async with self.channel(node) as channel:
                request = wire_pb2.ReleaseRequest(run=self.run_id, until=until)
                await wire_pb2_grpc.ControlStub(channel).Release(request, timeout=SECONDS)

    async def watched(self, node: int) -> Any:
        """The last report of a node that has finished or failed."""
        async with self.channel(node) as channel:
            request = wire_pb2.WatchRequest(run=self.run_id)
            calls = wire_pb2_grpc.ControlStub(channel).Watch(request, timeout=SECONDS)
            return [report async for report in calls][-1]

    async def reach(self, round_: int, *nodes: int) -> None:
        """Until these nodes have completed so many rounds, and what they save of them is saved."""
        async with asyncio.timeout(SECONDS):
            for node in nodes or self.groups:
                while (shell := self.nodes[node].shell) is None or shell.machine.k < round_:
                    await asyncio.sleep(0.005)
                await shell.saved_so_far()

    async def finish(self) -> None:
        await self.release(self.simulation.experiment.run.rounds)
        for report in await asyncio.gather(*(self.watched(node) for node in self.groups)):
            assert report.finished, report
            assert not report.failure, report

    async def stop(self) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes.values()))

    def prepared(self) -> PreparedRun:
        """The run as the nodes have it: where keys are secret, with the nonces that they have drawn."""
        kept, keys = self.simulation.prepared.secrets, dict[int, bytes]()
        for home, group in zip(self.homes, self.groups.values(), strict=True):
            nonce = bytes.fromhex(json.loads((run_folder(home, self.run_id) / "run.json").read_text())["nonce"])
            keys |= dict(zip(group, kept.with_nonce(nonce).agent_keys(group), strict=True))
        return PreparedRun.of(self.simulation.experiment, Secrets(keys, kept.eta, kept.run_id))

    def merged(self) -> Simulation:
        """A fresh simulation, filled with what the nodes wrote down."""
        simulation = Simulation(self.simulation.prepared)
        load_node_records(simulation, [run_folder(home, self.run_id) for home in self.homes])
        return simulation


@asynccontextmanager
async def live(
    experiment: Experiment, folder: Path, groups: Sequence[Sequence[int]], *, tls: bool = False
) -> AsyncIterator[Live]:
    nodes = Live(Simulation(experiment), folder, groups, tls=tls)
    try:
        await nodes.start()
        yield nodes
    finally:
        await nodes.stop()


async def networked(experiment: Experiment, folder: Path, groups: Sequence[Sequence[int]]) -> Live:
    """A whole run without incidents; its nodes have stopped."""
    async with live(experiment, folder, groups) as nodes:
        await nodes.prepare()
        await nodes.finish()
    return nodes


def assert_same_run(nodes: Live) -> None:
    """Bit for bit what the embedded run does: records, metrics, x at the end."""
    if nodes.simulation.experiment.run.seed == "os":
        nodes.simulation = Simulation(nodes.prepared())
    nodes.simulation.advance(nodes.simulation.remaining)
    embedded, merged = nodes.simulation.result(), nodes.merged().result()
    assert embedded.rounds == merged.rounds
    assert embedded.x.tobytes() == merged.x.tobytes()
    for ours, theirs in ((embedded.observation, merged.observation), (embedded.truth, merged.truth)):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            for name in ours:
                assert ours[name].tobytes() == theirs[name].tobytes(), name
    for name in embedded.metrics:
        np.testing.assert_array_equal(embedded.metrics[name], merged.metrics[name], err_msg=name)
