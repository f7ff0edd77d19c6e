"""Small networks of noise for the tests of correlated noise."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from dpp2.privacy.correlated import Edges, Kind, NoiseNetwork


def edges_of(graph: nx.Graph[Any]) -> Edges:
    return np.array(sorted(tuple(sorted(edge)) for edge in graph.edges()), dtype=np.int64).reshape(-1, 2)


PAPER = edges_of(nx.random_geometric_graph(50, 0.3, seed=69))  # the paper's graph: 50 agents, 255 edges


@st.composite
def networks(draw: st.DrawFn, kind: Kind, most: int = 8, holders: str = "all") -> NoiseNetwork:
    """A connected graph with random scales; with `holders` = "some", own noise at some agents only."""
    agents = draw(st.integers(3, most))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    graph = nx.compose(nx.random_labeled_tree(agents, seed=seed), nx.gnp_random_graph(agents, 0.4, seed=seed))
    edges = edges_of(graph)
    own = rng.uniform(0.2, 3.0, agents)
    if holders == "some":
        own *= rng.random(agents) < 0.4
    return NoiseNetwork.of(kind, edges, own, rng.uniform(0.2, 10.0, len(edges)))
