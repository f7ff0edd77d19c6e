"""Nodes on several machines, each with a home of its own, for what is collected of them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpp2 import Experiment, Simulation
from dpp2.node.cluster import Cluster
from dpp2.node.server import Node, NodeConfig, run_folder
from dpp2.orchestrator.drive import Drive

GROUPS = ((0,), (1, 2))
COMPARED = ("observation.npz", "truth.npz", "solution.npz", "metrics.csv")
TABLES: dict[str, Any] = {
    "run.rounds": 9,
    "network.topology": "ring",
    "network.agents": 3,
    "problem.name": "least-squares",
    "problem.dimension": 3,
}


class Machines:
    """Nodes that have been through one run, each with a home of its own, and the experiment as the collector has it."""

    def __init__(self, folder: Path, experiment: Experiment) -> None:
        self.folder, self.simulation = folder, Simulation(experiment)
        self.run_id = self.simulation.run_id
        self.homes = [folder / f"home-{min(group)}" for group in GROUPS]
        self.file = folder / "experiment.toml"
        folder.mkdir(parents=True, exist_ok=True)
        self.file.write_text(self.simulation.experiment.to_toml())

    @property
    def folders(self) -> list[Path]:
        return [run_folder(home, self.run_id) for home in self.homes]

    async def run(self, *, telemetry: bool, paths: Sequence[Path] = ()) -> None:
        """Real servers, a real orchestrator; `paths`: where each machine has its data."""
        resolved = self.simulation.experiment
        problems = [resolved.problem.updated(path=str(path)) for path in paths] or [resolved.problem] * len(GROUPS)
        own = [replace(resolved, problem=problem) for problem in problems]
        file = self.folder / "cluster.toml"
        nodes = [
            Node(NodeConfig(experiment, group, file, home, None, every=5, telemetry=telemetry))
            for experiment, group, home in zip(own, GROUPS, self.homes, strict=True)
        ]
        ports = [await node.start("127.0.0.1:0") for node in nodes]
        addresses = {a: f"127.0.0.1:{port}" for port, group in zip(ports, GROUPS, strict=True) for a in group}
        file.write_text(Cluster(addresses, {}).to_toml())
        drive = Drive(Cluster.load(file), self.run_id, resolved.digest, window=512)
        async with asyncio.timeout(30):
            await drive.run(lambda heard: None)
        await asyncio.gather(*(node.stop() for node in nodes))

    def copied(self, to: Path) -> Machines:
        """The same, in another place, to be spoilt."""
        shutil.copytree(self.folder, to, dirs_exist_ok=True)
        copy = Machines(to, self.simulation.experiment)
        copy.run_id = self.run_id
        return copy
