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
from node.run import final_state


@dataclass(frozen=True, eq=False)
class NodeFolder:
    """What one node left behind: its agents' records of rounds 0 … k−1 and their state at k."""

    path: Path
    agents: list[int]
    k: int
    state: dict[str, Array]

    @classmethod
    def open(cls, path: Path, run_id: str) -> NodeFolder:
        try:
            facts = json.loads((path / "node.json").read_text())
            state = final_state(path)
        except (OSError, ValueError, IndexError) as error:
            raise BadInput("DIR", str(path), f"the folder of a node that has run ({error})") from None
        if facts["run"] != run_id:
            raise BadInput("DIR", str(path), f"records of run {run_id[:8]}…, not of {str(facts['run'])[:8]}…")
        return cls(path, list(facts["agents"]), int(state.pop("k")), state)

    def records(self, name: str, width: int) -> Array | None:
        """(k, agents, width), or None where the node kept none."""
        file = self.path / "records" / f"{name}.f64"
        if not file.exists():
            return None
        return np.fromfile(file, dtype="<f8").reshape(-1, len(self.agents), width)[: self.k]


def absorb(simulation: Simulation, folders: Sequence[Path]) -> None:
    """Fill a fresh simulation with what the nodes did; every agent must be there, at the same round."""
    nodes = [NodeFolder.open(path, simulation.setting.secrets.run_id) for path in folders]
    agents = sorted(agent for node in nodes for agent in node.agents)
    if agents != list(range(simulation.setting.graph.agents)):
        raise BadInput(
            "DIR", len(folders), f"folders of all {simulation.setting.graph.agents} agents, not of {len(agents)}"
        )
    if len(rounds := {node.k for node in nodes}) != 1:
        raise BadInput("DIR", len(folders), f"nodes that ended at one round, not at {sorted(rounds)}")
    k = rounds.pop()
    for node in nodes:
        _copy(simulation, node)
    _measure(simulation, nodes, k)
    state = {name: np.empty((len(agents), simulation.network.dimension)) for name in nodes[0].state}
    for node in nodes:
        for name, rows in node.state.items():
            state[name][node.agents] = rows
    simulation.network.restore(state)
    simulation.k = k


def _copy(simulation: Simulation, node: NodeFolder) -> None:
    recorder, dimension = simulation.recorder, simulation.network.dimension
    for name, array in (recorder.sent_arrays | recorder.private_arrays).items():
        if (rows := node.records(name, dimension)) is not None:
            array[: node.k, node.agents] = rows
    for name, scalars in recorder.scalars.items():
        column = np.fromfile(node.path / "records" / f"{name}.f64", dtype="<f8")
        scalars[: node.k] = column[: node.k]


def _measure(simulation: Simulation, nodes: Sequence[NodeFolder], k: int) -> None:
    """The metrics of every round; without telemetry nobody knows the gap, and it stays nan."""
    recorder = simulation.recorder
    if not recorder.private_arrays:
        for name in ("gap", "consensus", "stationarity", "objective"):
            recorder.columns[name][:k] = np.nan
        recorder.columns["round"][:k] = np.arange(k)
        return
    values = np.empty((k, simulation.setting.graph.agents))
    for node in nodes:
        found = node.records("values", 1)
        assert found is not None  # telemetry has them
        values[:, node.agents] = found[:, :, 0]
    x, grad = recorder.private_arrays["x"], recorder.private_arrays["grad"]
    for round_ in range(k):
        recorder.measured(round_, [x[round_]], [Private(values[round_], grad[round_], {}, {})])
