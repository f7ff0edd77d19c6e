"""Puts the records that nodes wrote in their own folders into one run, as if it had been embedded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpp2 import BadInput, Simulation
from dpp2.algorithms.base import Private
from dpp2.arrays import Array
from dpp2.recorder import Recorder
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
class Merged:
    """The folders of all nodes of one run; `k` rounds are on record with every one of them."""

    nodes: list[NodeFolder]
    agents: int
    k: int

    @classmethod
    def open(cls, folders: Sequence[Path], agents: int, run_id: str, *, diverged: bool = False) -> Merged:
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

    def fill(self, recorder: Recorder) -> None:
        """What was sent, what was private if it was written down, and the metrics that follow from it."""
        k = self.k
        for node in self.nodes:
            for name, array in (recorder.sent_arrays | recorder.private_arrays).items():
                array[:k, node.agents] = node.records(name, self.dimension)[:k]
        for name, scalars in recorder.scalars.items():
            scalars[:k] = self.nodes[0].scalars(name)[:k]
        if recorder.private_arrays:
            self._measure(recorder)
        else:
            recorder.record_unmeasured(0, k)

    def _measure(self, recorder: Recorder) -> None:
        values = np.empty((self.k, self.agents))
        for node in self.nodes:
            values[:, node.agents] = node.records("values", 1)[: self.k, :, 0]
        x, grad = recorder.private_arrays["x"], recorder.private_arrays["grad"]
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverged
            for k in range(self.k):
                recorder.record_metrics(k, [x[k]], [Private(values[k], grad[k], {}, {})])


def load_node_records(simulation: Simulation, folders: Sequence[Path], *, diverged: bool = False) -> None:
    """Fill a fresh simulation with what the nodes did."""
    merged = Merged.open(folders, simulation.prepared.graph.agents, simulation.run_id, diverged=diverged)
    merged.fill(simulation.recorder)
    simulation.driver.restore(merged.state())
    simulation.k = merged.k
