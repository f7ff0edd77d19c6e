"""The agents that one node hosts, without any I/O: what they send, whom they wait for, what they become.

The round program is the same as in an embedded run. Here its yields are answered by `Inbox` and `Mixer` instead of by
P @ rows, in the same order of addition, so the results agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpp2.algorithms.base import Private
from dpp2.arrays import Array
from dpp2.experiment import Experiment
from dpp2.node.codec import RowFormat
from dpp2.node.mixing import Mixer
from dpp2.prepared import PreparedRun
from dpp2.topology import Graph


@dataclass(frozen=True)
class Neighbour:
    """Another node with agents that are neighbours of ours."""

    node: int  # its lowest agent names it
    theirs: tuple[int, ...]  # its agents that send to us
    ours: tuple[int, ...]  # our agents that send to it


class Hosting:
    """A resolved experiment, seen by the agents `owned`. Where the others are hosted it need not know."""

    def __init__(self, experiment: Experiment, owned: Sequence[int], known: PreparedRun | None = None) -> None:
        """What `dpp2 run` refuses is refused here, too. `known`: the graph and the weights, without any secret."""
        self.experiment, self.owned = experiment, tuple(sorted(owned))
        self.prepared = known.again(experiment) if known else PreparedRun.resolved(experiment)
        self.agents = self.prepared.hosted(self.owned)
        self.graph, self.objective = self.prepared.graph, self.agents.objective
        self.dimension = self.objective.dimension
        self.form = RowFormat.of(experiment.algorithm, self.dimension, experiment.run.largest)
        self._across = _across(self.graph, self.owned)
        self.foreign: list[int] = np.unique(self._across[:, 1]).tolist()

    def neighbours(self, place: Mapping[int, int]) -> tuple[Neighbour, ...]:
        """The neighbouring nodes, if `place` says which node hosts an agent."""
        hosts = np.array([place[other] for other in self._across[:, 1].tolist()], dtype=np.int64)
        order = np.argsort(hosts, kind="stable")
        nodes, starts = np.unique(hosts[order], return_index=True)
        parts = np.split(self._across[order], starts[1:])
        return tuple(
            Neighbour(node, tuple(np.unique(part[:, 1]).tolist()), tuple(np.unique(part[:, 0]).tolist()))
            for node, part in zip(nodes.tolist(), parts if len(nodes) else (), strict=True)
        )

    def mixer(self, neighbours: Sequence[Neighbour]) -> Mixer:
        """Σ_j p_ij rows_j for the hosted agents, of their own rows and those of the neighbours, in this order."""
        order = [*self.owned, *(agent for neighbour in neighbours for agent in neighbour.theirs)]
        return Mixer(self.graph, self.prepared.edge_weights, self.owned, order)


def _across(graph: Graph, owned: Sequence[int]) -> NDArray[np.int64]:
    """(ours, theirs) for every edge between an agent hosted here and one that is not."""
    own = np.zeros(graph.agents, dtype=bool)
    own[list(owned)] = True
    ends: NDArray[np.int64] = np.concatenate([graph.edges, graph.edges[:, ::-1]])
    return ends[own[ends[:, 0]] & ~own[ends[:, 1]]]


def state_arrays(state: Any) -> dict[str, Array]:
    return {field.name: getattr(state, field.name) for field in fields(state)}


def record_widths(hosting: Hosting, telemetry: bool) -> dict[str, int]:
    """What a node writes down each round, and how many numbers that is."""
    section, agents = hosting.experiment.algorithm, len(hosting.owned)
    rows = agents * hosting.dimension
    sent = dict.fromkeys(section.phases, rows)
    if not telemetry:
        return sent
    private = dict.fromkeys(("x", "grad", *section.noises), rows)
    return sent | private | {"values": agents} | dict.fromkeys(section.scalars, 1)


def private_records(x: Array, private: Private) -> dict[str, Any]:
    return {"x": x, "grad": private.grad, "values": private.values, **private.noise, **private.scalars}
