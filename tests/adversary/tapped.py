"""Real networked runs on loopback with a tap between the nodes, and what their agents really sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpp2 import Experiment
from dpp2.adversary.observation import Observation
from dpp2.adversary.tap.decode import Decoded, decode
from dpp2.adversary.tap.local import relayed
from dpp2.adversary.tap.public import Public
from dpp2.adversary.tap.relay import Relay
from dpp2.node.cluster import Cluster
from tests.node.live import Live, live, one_each, small

__all__ = ["Live", "one_each", "small"]


class Tap(Protocol):
    async def start(
        self, addresses: Mapping[int, str], links: Sequence[tuple[int, int]]
    ) -> Mapping[tuple[int, int], str]: ...

    async def stop(self) -> None: ...


class InProcess:
    """A relay in this event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.relay = folder, Relay(folder)
        self.targets: Mapping[tuple[int, int], str] = {}
        self.links: Mapping[tuple[int, int], str] = {}

    async def start(
        self, addresses: Mapping[int, str], links: Sequence[tuple[int, int]]
    ) -> Mapping[tuple[int, int], str]:
        self.targets = relayed(addresses, links)
        self.links = {(i, j): await self.relay.open(f"{i}-{j}", target) for (i, j), target in self.targets.items()}
        return self.links

    async def restart(self) -> None:
        """Break every connection; then serve the same addresses again."""
        await self.relay.close()
        self.relay = Relay(self.folder)
        for (i, j), target in self.targets.items():
            await self.relay.open(f"{i}-{j}", target, self.links[i, j])

    async def stop(self) -> None:
        await self.relay.close()


@asynccontextmanager
async def tapped(
    experiment: Experiment, folder: Path, groups: Sequence[Sequence[int]], tap: Tap, **options: Any
) -> AsyncIterator[Live]:
    """Nodes that are up, with the tap in place, and nothing prepared yet."""
    try:
        async with live(experiment, folder / "nodes", groups, **options) as nodes:
            host = {agent: node for node, group in nodes.groups.items() for agent in group}
            edges = nodes.simulation.prepared.graph.edges.tolist()
            addresses = Cluster.load(nodes.folder / "cluster.toml").addresses
            links = await tap.start(addresses, [(i, j) for i, j in edges if host[i] != host[j]])
            (nodes.folder / "cluster.toml").write_text(Cluster(addresses, links).to_toml())
            yield nodes
    finally:
        await tap.stop()


async def run_tapped(
    experiment: Experiment, folder: Path, groups: Sequence[Sequence[int]], tap: Tap, **options: Any
) -> Live:
    """A whole run without incidents."""
    async with tapped(experiment, folder, groups, tap, **options) as nodes:
        await nodes.prepare()
        await nodes.finish()
    return nodes


def public(nodes: Live) -> Public:
    cluster = Cluster.load(nodes.folder / "cluster.toml")
    return Public.of(nodes.simulation.experiment, cluster.addresses, cluster.links)


def decoded(nodes: Live, *captures: Path) -> Decoded:
    return decode(captures, public(nodes))


def assert_what_was_sent(found: Observation | None, nodes: Live, agents: Sequence[int] | None = None) -> None:
    """To the byte what the embedded run sends, for these agents (default: all)."""
    assert found is not None
    nodes.simulation.advance(nodes.simulation.remaining)
    truth = nodes.simulation.result().observation
    assert truth is not None
    rows = slice(None) if agents is None else list(agents)
    last = found.first + len(next(iter(found.phases.values())))
    for phase, array in found.phases.items():
        assert array[:, rows].tobytes() == truth[phase][found.first : last, rows].tobytes(), phase
    np.testing.assert_array_equal(found.P, truth["P"])
