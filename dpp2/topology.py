"""Who talks to whom: the named topologies, drawn through networkx.

`network.seed` goes straight to networkx, so a graph here is the graph anybody else gets. A random draw that is not
connected is redrawn with the next seeds when its shape parameters are the defaults, and refused when the
caller chose them: silently changing what somebody asked for would be worse than saying no.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dpp2.errors import BadInput, Inadmissible
from dpp2.schema import Registry, Section, Table
from dpp2.small_world import watts_strogatz

if TYPE_CHECKING:  # a graph that is a list of edges needs none of it
    import networkx as nx

    Drawn = nx.Graph[Any]

_SEEDS_TRIED = 1000

Weights = Literal["metropolis", "laplacian", "laplacian-spectral", "plain", "normalised"]


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph on agents 0 … N−1: each edge once, as (i, j) with i < j, in ascending order."""

    agents: int
    edges: NDArray[np.int64]

    @classmethod
    def of(cls, nodes: Iterable[Any], pairs: Iterable[tuple[Any, Any]]) -> Self:
        """Nodes are numbered in their sorted order; loops and doubles are dropped."""
        number = {node: i for i, node in enumerate(_in_order(list(nodes)))}
        once = {(min(number[a], number[b]), max(number[a], number[b])) for a, b in pairs if a != b}
        edges = np.array(sorted(once), dtype=np.int64).reshape(-1, 2)
        edges.flags.writeable = False
        return cls(len(number), edges)

    @classmethod
    def drawn(cls, graph: Drawn) -> Self:
        """What networkx has made, on nodes 0 … N−1."""
        pairs = np.fromiter(chain.from_iterable(graph.edges()), np.int64, 2 * graph.number_of_edges())
        return cls.linked(graph.number_of_nodes(), *pairs.reshape(-1, 2).T)

    @classmethod
    def linked(cls, agents: int, one: NDArray[np.int64], other: NDArray[np.int64]) -> Self:
        """Agents one[n] and other[n] are neighbours, in whatever order; loops and doubles are dropped."""
        return cls(agents, _ascending(agents, one, other))

    def csr(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(indptr, indices) of the adjacency matrix: both ways of every edge, ascending."""
        one, other = np.concatenate([self.edges, self.edges[:, ::-1]]).T
        starts = np.zeros(self.agents + 1, dtype=np.int64)
        np.cumsum(self.degrees, out=starts[1:])
        return starts, other[np.lexsort((other, one))]

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        return np.bincount(self.edges.ravel(), minlength=self.agents)

    def neighbours(self, agent: int) -> list[int]:
        """Ascending, because sums over neighbours are taken in that order everywhere."""
        touching = self.edges[(self.edges == agent).any(axis=1)]
        return sorted(int(j) for j in touching.ravel() if j != agent)

    @cached_property
    def components(self) -> int:
        """How many separate parts: agents take the least label among neighbours, then that label's own, until it stays.

        By hand, because an agent that asks must not load scipy for it.
        """
        i, j = self.edges.T
        label = np.arange(self.agents)
        while True:
            smallest, lower = label.copy(), np.minimum(label[i], label[j])
            np.minimum.at(smallest, i, lower)
            np.minimum.at(smallest, j, lower)
            smallest = smallest[smallest]
            if (smallest == label).all():
                return int((label == np.arange(self.agents)).sum())  # each part is labelled by its first agent
            label = smallest


def _ascending(agents: int, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each edge once, the lower end first, as a graph has them. A pair is one number meanwhile, which sorts fast."""
    apart = one != other
    codes = np.sort(np.minimum(one, other)[apart] * np.int64(agents) + np.maximum(one, other)[apart])
    first = np.append(True, codes[1:] != codes[:-1])[: len(codes)]  # of equal ones; `np.unique` takes ten times as long
    edges = np.stack(np.divmod(codes[first], agents), axis=1)
    edges.flags.writeable = False
    return edges


def grid_edges(rows: int, columns: int, *, periodic: bool) -> NDArray[np.int64]:
    """The edges of rows × columns agents, numbered row by row; periodic: opposite sides are joined, too."""
    places = np.arange(rows * columns).reshape(rows, columns)
    if periodic:
        one = np.concatenate([places.ravel()] * 2)
        other = np.concatenate([np.roll(places, -1, axis=axis).ravel() for axis in (0, 1)])
    else:
        one = np.concatenate([places[:-1].ravel(), places[:, :-1].ravel()])
        other = np.concatenate([places[1:].ravel(), places[:, 1:].ravel()])
    return _ascending(rows * columns, one, other)


class NetworkSection(Section):
    """`[network]`: what every topology has. Subclasses add their shape parameters."""

    shape: ClassVar[tuple[str, ...]] = ()  # parameters that decide whether a random draw is connected

    topology: str
    agents: int = Field(50, ge=2, le=10**6, description="a whole number from 2 to 1,000,000")
    weights: Weights = Field("metropolis", description="metropolis, laplacian, laplacian-spectral, plain or normalised")

    @abstractmethod
    def draw(self) -> Graph:
        """The graph, whether or not it is connected."""

    def updated(self, **values: Any) -> Self:
        copy = super().updated(**values)
        copy.__dict__.pop("any_graph", None)  # what was drawn with the old values
        return copy

    def digest_table(self) -> Table:
        """A network is its edges and weights, however it was drawn: a graph read from a file counts the same."""
        edges = hashlib.sha256(self.any_graph.edges.astype("<i8").tobytes()).hexdigest()
        return {"agents": self.any_graph.agents, "weights": self.weights, "edges": edges}

    @cached_property
    def any_graph(self) -> Graph:
        """The graph, connected or not; drawn once."""
        return self.draw()

    def resolve(self) -> Self:
        """Settle what is open: fills in derived parameters and, for random graphs, the seed that is used."""
        return self

    def graph(self) -> Graph:
        """The connected graph, or a refusal that says how disconnected it is."""
        graph = self.any_graph
        if graph.components > 1:
            chosen = ", ".join(f"{key} = {getattr(self, key)}" for key in (*self.shape, "agents"))
            raise Inadmissible(
                "network.topology",
                self.topology,
                f"a connected graph, but {chosen} gives {graph.components} separate parts",
            )
        return graph


class Ring(NetworkSection):
    """Every agent has two neighbours, all around."""

    topology: Literal["ring"] = "ring"

    def draw(self) -> Graph:
        agents = np.arange(self.agents)
        return Graph.linked(self.agents, agents, (agents + 1) % self.agents)


class PathGraph(NetworkSection):
    """A line of agents: two ends have one neighbour, the others two."""

    topology: Literal["path"] = "path"

    def draw(self) -> Graph:
        agents = np.arange(self.agents)
        return Graph.linked(self.agents, agents[:-1], agents[1:])


class Star(NetworkSection):
    """Agent 0 is everybody's only neighbour."""

    topology: Literal["star"] = "star"

    def draw(self) -> Graph:
        others = np.arange(1, self.agents)
        return Graph.linked(self.agents, np.zeros_like(others), others)


class Complete(NetworkSection):
    """Everybody is everybody's neighbour."""

    topology: Literal["complete"] = "complete"

    def draw(self) -> Graph:
        return Graph.linked(self.agents, *np.triu_indices(self.agents, 1))


class Grid(NetworkSection):
    """Rows × columns, as near to a square as the number of agents divides."""

    topology: Literal["grid"] = "grid"
    periodic: ClassVar[bool] = False

    def draw(self) -> Graph:
        rows = next(r for r in range(math.isqrt(self.agents), 0, -1) if self.agents % r == 0)
        return Graph(self.agents, grid_edges(rows, self.agents // rows, periodic=self.periodic))


class Torus(Grid):
    """A grid whose opposite sides are joined."""

    topology: Literal["torus"] = "torus"  # type: ignore[assignment]
    periodic = True


class Tree(NetworkSection):
    """Full tree, filled level by level; every inner agent has `branching` children."""

    topology: Literal["tree"] = "tree"
    branching: int = Field(2, ge=1, description="a whole number ≥ 1")

    def draw(self) -> Graph:
        children = np.arange(1, self.agents)
        return Graph.linked(self.agents, (children - 1) // self.branching, children)


class RandomNetwork(NetworkSection):
    """Topologies that are drawn from a seed."""

    seed: int = Field(69, ge=0, description="a whole number ≥ 0")

    def resolve(self) -> Self:
        if self.given(*self.shape):
            return self
        for seed in range(self.seed, self.seed + _SEEDS_TRIED):
            candidate = self.updated(seed=seed)
            if candidate.any_graph.components == 1:
                return candidate
        raise BadInput(
            "network.seed",
            self.seed,
            f"a connected {self.topology} graph on {self.agents} agents, but none of the {_SEEDS_TRIED} seeds "
            f"from there on gives one: choose {' or '.join(self.shape)}",
        )


class Geometric(RandomNetwork):
    """Agents at random places in the unit square, linked when closer than `radius`. The paper's, at seed 69."""

    shape = ("radius",)
    topology: Literal["geometric"] = "geometric"
    radius: float = Field(0.3, gt=0, description="a number > 0")

    def draw(self) -> Graph:
        import networkx as nx

        return Graph.drawn(nx.random_geometric_graph(self.agents, self.radius, seed=self.seed))


class ErdosRenyi(RandomNetwork):
    """Each pair linked independently; the default is twice the threshold at which such graphs connect."""

    shape = ("probability",)
    topology: Literal["erdos-renyi"] = "erdos-renyi"
    probability: float | None = Field(None, gt=0, le=1, description="a number in (0, 1]")

    def resolve(self) -> Self:
        resolved = super().resolve()
        return resolved.updated(probability=resolved.chance)

    @property
    def chance(self) -> float:
        return self.probability or min(1.0, 2 * math.log(self.agents) / self.agents)

    def draw(self) -> Graph:
        import networkx as nx

        return Graph.drawn(nx.gnp_random_graph(self.agents, self.chance, seed=self.seed))


class SmallWorld(RandomNetwork):
    """Watts–Strogatz: a ring with links to the nearest `neighbours`, each rewired with chance `rewire`."""

    shape = ("neighbours", "rewire")
    topology: Literal["small-world"] = "small-world"
    neighbours: int = Field(4, ge=2, description="a whole number from 2 to agents")
    rewire: float = Field(0.1, ge=0, le=1, description="a number in [0, 1]")

    def resolve(self) -> Self:
        resolved = super().resolve()
        settled = resolved.updated(neighbours=self.reach)
        settled.__dict__["any_graph"] = resolved.any_graph  # the same one: a million agents are not drawn twice
        return settled

    def draw(self) -> Graph:
        if self.reach == self.agents:
            return Graph.linked(self.agents, *np.triu_indices(self.agents, 1))
        return Graph.linked(self.agents, *watts_strogatz(self.agents, self.reach, self.rewire, self.seed))

    @property
    def reach(self) -> int:
        """`neighbours`, which a small network cannot always offer: cut when it is the default, refused when chosen."""
        if self.neighbours > self.agents and self.given("neighbours"):
            raise BadInput("network.neighbours", self.neighbours, f"at most agents = {self.agents}")
        return min(self.neighbours, self.agents)


class FromFile(NetworkSection):
    """A graph of the user's own: GraphML or a sparse matrix (.npz) by its ending, else a list of edges."""

    paths: ClassVar[Mapping[str, tuple[str, ...]]] = {"path": ()}

    topology: Literal["file"] = "file"
    path: str = Field(description="the path of an edge list, a .graphml file or a sparse matrix (.npz)")

    def draw(self) -> Graph:
        from dpp2.graph_files import read_graph

        graph = read_graph(Path(self.path))
        if graph.agents < 2:
            raise BadInput(
                "network.path", self.path, "at least one edge between two agents (two names and a space a line)"
            )
        if self.given("agents") and self.agents != graph.agents:
            raise BadInput("network.agents", self.agents, f"{graph.agents}, the number of nodes in {self.path}")
        return graph

    def resolve(self) -> Self:
        return self.updated(agents=self.any_graph.agents)


def _in_order(nodes: list[Any]) -> list[Any]:
    """Numbers by value, everything else by name: "agent-2" before "agent-10" would need a guess, so no."""
    try:
        return sorted(nodes, key=int)
    except (TypeError, ValueError):
        return sorted(nodes)


TOPOLOGIES: Registry[NetworkSection] = Registry(
    "dpp2",
    {
        "geometric": "topology:Geometric",
        "ring": "topology:Ring",
        "path": "topology:PathGraph",
        "star": "topology:Star",
        "complete": "topology:Complete",
        "grid": "topology:Grid",
        "torus": "topology:Torus",
        "tree": "topology:Tree",
        "erdos-renyi": "topology:ErdosRenyi",
        "small-world": "topology:SmallWorld",
        "file": "topology:FromFile",
    },
)
