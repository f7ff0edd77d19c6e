"""What an eavesdropper knows of a network before it listens: the graph with its weights, what a round sends, and where
agents sit. Nothing of it is secret; data, seeds and keys are not in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dpp2.algorithms.base import AlgorithmSection
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.experiment import Experiment
from dpp2.node.codec import RowFormat
from dpp2.weights import weight_matrix


@dataclass(frozen=True, eq=False)
class Public:
    """Agents by number; a node is named by the lowest agent that it hosts."""

    P: Array
    edges: frozenset[tuple[int, int]]  # both directions of each
    algorithm: AlgorithmSection  # without its secrets
    rounds: int
    addresses: Mapping[int, str]  # of every agent; agents with one address are hosted by one node
    links: Mapping[tuple[int, int], str]  # addresses that stand for one link alone

    @classmethod
    def of(
        cls, experiment: Experiment, addresses: Mapping[int, str], links: Mapping[tuple[int, int], str] | None = None
    ) -> Public:
        """Resolves the network and nothing else: an experiment's data need not be there."""
        network = experiment.network.resolve()
        graph = network.graph()
        if len(addresses) != graph.agents:
            raise BadInput("--cluster", len(addresses), f"the addresses of all {graph.agents} agents of the experiment")
        P: Array = weight_matrix(graph, network.weights).toarray()
        edges = frozenset((a, b) for i, j in graph.edges.tolist() for a, b in ((i, j), (j, i)))
        return cls(P, edges, experiment.algorithm.public(), experiment.run.rounds, addresses, links or {})

    @property
    def agents(self) -> int:
        return len(self.P)

    @property
    def phases(self) -> tuple[str, ...]:
        return self.algorithm.phases

    def form(self, content: bytes, told: int, senders: int) -> RowFormat:
        """How the rows of a frame travel. Encoded ones tell their dimension, others by their own length."""
        return RowFormat.of(self.algorithm, told if self.algorithm.encodes else len(content) // (8 * senders))

    @cached_property
    def node_of_agent(self) -> dict[int, int]:
        """Which node hosts an agent."""
        return place(self.addresses)

    @cached_property
    def unobserved(self) -> list[tuple[int, int]]:
        """Channels inside one node, which never reach a wire."""
        return sorted((i, j) for i, j in self.edges if self.node_of_agent[i] == self.node_of_agent[j])

    @cached_property
    def between(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """The channels from one node to another, by (sending node, receiving node)."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for i, j in sorted(self.edges):
            if self.node_of_agent[i] != self.node_of_agent[j]:
                found.setdefault((self.node_of_agent[i], self.node_of_agent[j]), []).append((i, j))
        return found

    def nodes_at(self, address: str) -> set[int]:
        """The nodes that a connection to this address joins, as far as the address tells."""
        found = {self.node_of_agent[agent] for agent, listening in self.addresses.items() if listening == address}
        for pair, standing in self.links.items():
            if standing == address:
                found |= {self.node_of_agent[agent] for agent in pair}
        return found

    def nodes_of_link(self, link: str) -> set[int]:
        """The nodes that a relay's link joins; none if it is not two agents of this network."""
        agents = link.split("-")
        if len(agents) != 2 or not all(part.isdecimal() and int(part) in self.node_of_agent for part in agents):
            return set()
        return {self.node_of_agent[int(part)] for part in agents}


def place(addresses: Mapping[int, str]) -> dict[int, int]:
    """Which node hosts an agent: agents with one address share one, and the lowest of them names it."""
    first: dict[str, int] = {}
    for agent in sorted(addresses):
        first.setdefault(addresses[agent], agent)
    return {agent: first[address] for agent, address in addresses.items()}
