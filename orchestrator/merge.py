"""What nodes wrote in their own folders, put together into one run, as if it had been embedded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpp2 import BadInput, Experiment, Simulation
from dpp2.algorithms.base import AlgorithmSection
from dpp2.arrays import Array
from dpp2.simulation import Snapshot
from node.errors import NodeFailed
from node.run import final_state


@dataclass(frozen=True, eq=False)
class NodeFolder:
    """What one node left behind: its agents' records of rounds 0 … k−1 and their state at k."""

    path: Path
    agents: list[int]
    run_id: str
    digest: str
    k: int
    state: dict[str, Array]

    @classmethod
    def open(cls, path: Path) -> NodeFolder:
        try:
            facts = json.loads((path / "node.json").read_text())
            state = final_state(path)
            k = int(state.pop("k"))
            return cls(path, list(facts["agents"]), str(facts["run"]), str(facts["digest"]), k, state)
        except (OSError, ValueError, IndexError, KeyError, TypeError, NodeFailed) as error:
            raise BadInput("DIR", str(path), f"the folder of a node that has run ({error})") from None

    def has(self, name: str) -> bool:
        return (self.path / "records" / f"{name}.f64").exists()

    def records(self, name: str, width: int) -> Array:
        """(k, agents, width)."""
        return self._read(name, self.k * len(self.agents) * width).reshape(self.k, len(self.agents), width)

    def scalars(self, name: str) -> Array:
        """(k,): one number a round, the same at every node."""
        return self._read(name, self.k)

    def _read(self, name: str, count: int) -> Array:
        content = np.fromfile(self.path / "records" / f"{name}.f64", dtype="<f8")
        if len(content) < count:
            raise BadInput("DIR", str(self.path), f"whole records, but those of {name} end before round {self.k}")
        return content[:count]

    def state_at(self, k: int, dimension: int) -> dict[str, Array]:
        """At round k; of an earlier one than it ended at, x may be on record and the rest is lost."""
        if self.k == k:
            return self.state
        lost = {name: np.full_like(rows, np.nan) for name, rows in self.state.items()}
        return lost | ({"x": self.records("x", dimension)[k]} if self.has("x") else {})


@dataclass(frozen=True, eq=False)
class MergedRun:
    """The folders of all nodes of one run; `k` rounds are on record with every one of them."""

    nodes: list[NodeFolder]
    agents: int
    k: int

    @classmethod
    def open(cls, folders: Sequence[Path], agents: int, run_id: str, *, diverged: bool = False) -> MergedRun:
        """Every agent must be there, at the same round.

        Nodes of a run that diverged stop where they are, a few rounds apart: what all of them have is kept.
        """
        nodes = [NodeFolder.open(path) for path in folders]
        for node in nodes:
            if node.run_id != run_id:
                raise BadInput("DIR", str(node.path), f"records of run {run_id[:8]}…, not of {node.run_id[:8]}…")
        found = sorted(agent for node in nodes for agent in node.agents)
        if found != list(range(agents)):
            missing = sorted(set(range(agents)) - set(found))
            what = f"agent {missing[0]} is missing" if missing else "some are there twice"
            raise BadInput("DIR", len(folders), f"folders of all {agents} agents, each once, but {what}")
        k = min(node.k for node in nodes)
        if not diverged and any(node.k != k for node in nodes):
            raise BadInput("DIR", len(folders), f"nodes that ended at one round, not at {sorted({n.k for n in nodes})}")
        return cls(nodes, agents, k)

    @property
    def dimension(self) -> int:
        return int(self.nodes[0].state["x"].shape[1])

    @property
    def telemetry(self) -> bool:
        """Whether every node has written down what was private."""
        return all(node.has("x") for node in self.nodes)

    def state(self) -> dict[str, Array]:
        """The agents' state at round k."""
        state = {name: np.empty((self.agents, *rows.shape[1:])) for name, rows in self.nodes[0].state.items()}
        for node in self.nodes:
            for name, rows in node.state_at(self.k, self.dimension).items():
                state[name][node.agents] = rows
        return state

    def records(self, section: AlgorithmSection) -> dict[str, Array]:
        """What was sent and, if it was written down, what was private: rounds 0 … k−1 of all agents."""
        rows = {name: self._rows(name, self.dimension) for name in section.phases}
        if not self.telemetry:
            return rows
        rows |= {name: self._rows(name, self.dimension) for name in ("x", "grad", *section.noises)}
        scalars = {name: self.nodes[0].scalars(name)[: self.k] for name in section.scalars}
        return rows | scalars | {"values": self._rows("values", 1)[:, :, 0]}

    def _rows(self, name: str, width: int) -> Array:
        rows = np.empty((self.k, self.agents, width))
        for node in self.nodes:
            rows[:, node.agents] = node.records(name, width)[: self.k]
        return rows

    def snapshot(self, experiment: Experiment, seconds: float = 0.0) -> Snapshot:
        """Where the run stands, as if it had been embedded; metrics follow from the records."""
        return Snapshot(
            k=self.k,
            since=0,
            digest=experiment.digest,
            seconds=seconds,
            diverged=False,  # whoever takes it up sees for himself
            state=self.state(),
            watched={},
            records=self.records(experiment.algorithm),
        )


def load_node_records(
    simulation: Simulation, folders: Sequence[Path], *, diverged: bool = False, seconds: float = 0.0
) -> None:
    """A simulation takes up what the nodes of its run did, in this many seconds."""
    merged = MergedRun.open(folders, simulation.prepared.graph.agents, simulation.run_id, diverged=diverged)
    simulation.restore(merged.snapshot(simulation.experiment, seconds))
