"""Who talks to whom: the named topologies, drawn through networkx.

`network.seed` goes straight to networkx, so a graph here is the graph anybody else gets. A random draw that is not
connected is redrawn with the next seeds when its shape parameters are the defaults, and refused when the
caller chose them: silently changing what somebody asked for would be worse than saying no.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dpp2.errors import BadInput
from dpp2.schema import Section

if TYPE_CHECKING:  # an agent in a container knows its neighbours already and never draws a graph
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
    def of(cls, drawn: Drawn) -> Self:
        """From a networkx graph; nodes are numbered in their sorted order, loops and doubles dropped."""
        number = {node: i for i, node in enumerate(_in_order(list(drawn.nodes)))}
        pairs = {(min(number[a], number[b]), max(number[a], number[b])) for a, b in drawn.edges() if a != b}
        edges = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
        edges.flags.writeable = False
        return cls(len(number), edges)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        return np.bincount(self.edges.ravel(), minlength=self.agents)

    def neighbours(self, agent: int) -> list[int]:
        """Ascending, because sums over neighbours are taken in that order everywhere."""
        touching = self.edges[(self.edges == agent).any(axis=1)]
        return sorted(int(j) for j in touching.ravel() if j != agent)

    @cached_property
    def components(self) -> int:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        i, j = self.edges.T
        links = coo_array((np.ones(len(i)), (i, j)), shape=(self.agents, self.agents))
        count, _ = connected_components(links, directed=False)
        return int(count)


class NetworkSection(Section):
    """`[network]`: what every topology has. Subclasses add their shape parameters."""

    shape: ClassVar[tuple[str, ...]] = ()  # parameters that decide whether a random draw is connected

    topology: str
    agents: int = Field(50, ge=2, le=10**6, description="a whole number from 2 to 1,000,000")
    weights: Weights = Field("metropolis", description="metropolis, laplacian, laplacian-spectral, plain or normalised")

    def draw(self) -> Drawn:
        raise NotImplementedError  # pragma: no cover - abstract

    def resolve(self) -> Self:
        """Settle what is open: fills in derived parameters and, for random graphs, the seed that is used."""
        return self

    def graph(self) -> Graph:
        """The connected graph, or a refusal that says how disconnected it is."""
        graph = Graph.of(self.draw())
        if graph.components > 1:
            chosen = ", ".join(f"{key} = {getattr(self, key)}" for key in (*self.shape, "agents"))
            raise BadInput(
                "network.topology",
                self.topology,
                f"a connected graph, but {chosen} gives {graph.components} separate parts",
            )
        return graph


class Ring(NetworkSection):
    topology: Literal["ring"] = "ring"

    def draw(self) -> Drawn:
        import networkx as nx

        drawn: Drawn = nx.cycle_graph(self.agents)
        return drawn


class PathGraph(NetworkSection):
    topology: Literal["path"] = "path"

    def draw(self) -> Drawn:
        import networkx as nx

        drawn: Drawn = nx.path_graph(self.agents)
        return drawn


class Star(NetworkSection):
    topology: Literal["star"] = "star"

    def draw(self) -> Drawn:
        import networkx as nx

        drawn: Drawn = nx.star_graph(self.agents - 1)
        return drawn


class Complete(NetworkSection):
    topology: Literal["complete"] = "complete"

    def draw(self) -> Drawn:
        import networkx as nx

        drawn: Drawn = nx.complete_graph(self.agents)
        return drawn


class Grid(NetworkSection):
    """Rows × columns, as near to a square as the number of agents divides."""

    topology: Literal["grid"] = "grid"
    periodic: ClassVar[bool] = False

    def draw(self) -> Drawn:
        import networkx as nx

        rows = next(r for r in range(math.isqrt(self.agents), 0, -1) if self.agents % r == 0)
        return nx.grid_2d_graph(rows, self.agents // rows, periodic=self.periodic)


class Torus(Grid):
    """A grid whose opposite sides are joined."""

    topology: Literal["torus"] = "torus"  # type: ignore[assignment]
    periodic = True


class Tree(NetworkSection):
    """Full tree, filled level by level; every inner agent has `branching` children."""

    topology: Literal["tree"] = "tree"
    branching: int = Field(2, ge=1, description="a whole number ≥ 1")

    def draw(self) -> Drawn:
        import networkx as nx

        return nx.full_rary_tree(self.branching, self.agents)


class RandomNetwork(NetworkSection):
    """Topologies that are drawn from a seed."""

    seed: int = Field(69, ge=0, description="a whole number ≥ 0")

    def resolve(self) -> Self:
        if self.given(*self.shape):
            return self
        for seed in range(self.seed, self.seed + _SEEDS_TRIED):
            candidate = self.updated(seed=seed)
            if Graph.of(candidate.draw()).components == 1:
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

    def draw(self) -> Drawn:
        import networkx as nx

        drawn: Drawn = nx.random_geometric_graph(self.agents, self.radius, seed=self.seed)
        return drawn


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

    def draw(self) -> Drawn:
        import networkx as nx

        drawn: Drawn = nx.gnp_random_graph(self.agents, self.chance, seed=self.seed)
        return drawn


class SmallWorld(RandomNetwork):
    """Watts–Strogatz: a ring with links to the nearest `neighbours`, each rewired with chance `rewire`."""

    shape = ("neighbours", "rewire")
    topology: Literal["small-world"] = "small-world"
    neighbours: int = Field(4, ge=2, description="a whole number from 2 to agents")
    rewire: float = Field(0.1, ge=0, le=1, description="a number in [0, 1]")

    def resolve(self) -> Self:
        return super().resolve().updated(neighbours=self.reach)

    def draw(self) -> Drawn:
        import networkx as nx

        drawn: Drawn = nx.watts_strogatz_graph(self.agents, self.reach, self.rewire, seed=self.seed)
        return drawn

    @property
    def reach(self) -> int:
        """`neighbours`, which a small network cannot always offer: cut when it is the default, refused when chosen."""
        if self.neighbours > self.agents and self.given("neighbours"):
            raise BadInput("network.neighbours", self.neighbours, f"at most agents = {self.agents}")
        return min(self.neighbours, self.agents)


class FromFile(NetworkSection):
    """A graph of the user's own: GraphML by its ending, an edge list (two names a line) otherwise."""

    topology: Literal["file"] = "file"
    path: str = Field(description="the path of an edge list or a .graphml file")

    def draw(self) -> Drawn:
        drawn = _read_graph(Path(self.path))
        if drawn.is_directed():
            raise BadInput("network.path", self.path, "an undirected graph")
        if drawn.number_of_nodes() < 2:
            raise BadInput(
                "network.path", self.path, "at least one edge between two agents (two names and a space a line)"
            )
        if self.given("agents") and self.agents != drawn.number_of_nodes():
            raise BadInput(
                "network.agents",
                self.agents,
                f"{drawn.number_of_nodes()}, the number of nodes in {self.path}",
            )
        return drawn

    def resolve(self) -> Self:
        return self.updated(agents=self.draw().number_of_nodes())

    def digest_table(self) -> dict[str, Any]:
        edges = Graph.of(self.draw()).edges
        return self.table() | {"path": hashlib.sha256(edges.astype("<i8").tobytes()).hexdigest()}


def _read_graph(path: Path) -> Drawn:
    import networkx as nx

    try:
        if path.suffix.lower() == ".graphml":
            return nx.read_graphml(path)
        return nx.read_edgelist(path, data=False)
    except OSError as error:
        raise BadInput("network.path", str(path), f"a readable file ({error.strerror})") from None
    except Exception as error:  # parsers raise whatever they please on a file that is not theirs
        reason = " ".join(str(error).split())
        raise BadInput("network.path", str(path), f"an edge list or GraphML ({reason})") from None


def _in_order(nodes: list[Any]) -> list[Any]:
    """Numbers by value, everything else by name: "agent-2" before "agent-10" would need a guess, so no."""
    try:
        return sorted(nodes, key=int)
    except (TypeError, ValueError):
        return sorted(nodes)


TOPOLOGIES: tuple[type[NetworkSection], ...] = (
    Geometric,
    Ring,
    PathGraph,
    Star,
    Complete,
    Grid,
    Torus,
    Tree,
    ErdosRenyi,
    SmallWorld,
    FromFile,
)
