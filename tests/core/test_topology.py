"""Topologies by name: each is the graph networkx gives anybody, connected, with the seed that was used on record."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from dpp2 import BadInput, Experiment, topology
from dpp2.schema import parse_kind
from dpp2.topology import TOPOLOGIES, Graph, NetworkSection
from tests.core.programs import graph


def section(**table: Any) -> NetworkSection:
    return parse_kind("network", "topology", TOPOLOGIES, table)


def same(ours: Graph, theirs: nx.Graph[Any]) -> bool:
    """The same edges, once nodes such as (row, column) are numbered in order."""
    number = {node: i for i, node in enumerate(sorted(theirs.nodes))}
    pairs = sorted(tuple(sorted((number[a], number[b]))) for a, b in theirs.edges if a != b)
    return ours.agents == theirs.number_of_nodes() and ours.edges.tolist() == [list(pair) for pair in pairs]


BY_NAME: dict[str, tuple[int, int, Callable[[], Any]]] = {  # agents, edges, the networkx call
    "ring": (12, 12, lambda: nx.cycle_graph(12)),
    "path": (12, 11, lambda: nx.path_graph(12)),
    "star": (12, 11, lambda: nx.star_graph(11)),
    "complete": (12, 66, lambda: nx.complete_graph(12)),
    "grid": (12, 17, lambda: nx.grid_2d_graph(3, 4)),
    "torus": (12, 24, lambda: nx.grid_2d_graph(3, 4, periodic=True)),
    "tree": (12, 11, lambda: nx.full_rary_tree(2, 12)),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_fixed_topologies(name: str) -> None:
    agents, edges, drawn = BY_NAME[name]
    ours = graph(name, agents)
    assert (ours.agents, len(ours.edges), ours.components) == (agents, edges, 1)
    assert same(ours, drawn())


RANDOM: dict[str, tuple[dict[str, Any], Callable[[int], Any]]] = {
    "geometric": ({"radius": 0.6}, lambda seed: nx.random_geometric_graph(30, 0.6, seed=seed)),
    "erdos-renyi": ({"probability": 0.4}, lambda seed: nx.gnp_random_graph(30, 0.4, seed=seed)),
    "small-world": ({"neighbours": 6, "rewire": 0.3}, lambda seed: nx.watts_strogatz_graph(30, 6, 0.3, seed=seed)),
}


@pytest.mark.parametrize("seed", [0, 7, 12345])
@pytest.mark.parametrize("name", RANDOM)
def test_network_seed_goes_straight_to_networkx(name: str, seed: int) -> None:
    table, drawn = RANDOM[name]
    ours = graph(name, 30, seed=seed, **table)
    assert same(ours, drawn(seed))
    assert not same(ours, drawn(seed + 1))


def test_every_topology_is_named_and_tested() -> None:
    names = {kind.model_fields["topology"].default for kind in TOPOLOGIES}
    assert names == set(BY_NAME) | set(RANDOM) | {"file"}


@pytest.mark.parametrize(("agents", "rows", "columns"), [(16, 4, 4), (12, 3, 4), (50, 5, 10), (7, 1, 7), (2, 1, 2)])
def test_grid_is_as_square_as_the_number_of_agents_divides(agents: int, rows: int, columns: int) -> None:
    assert same(graph("grid", agents), nx.grid_2d_graph(rows, columns))


@pytest.mark.parametrize("agents", [2, 3, 4, 5, 6])
def test_small_tori_have_neither_loops_nor_double_edges(agents: int) -> None:
    ours = graph("torus", agents)
    assert (ours.edges[:, 0] < ours.edges[:, 1]).all()
    assert len(np.unique(ours.edges, axis=0)) == len(ours.edges)
    assert ours.components == 1


def test_tree_branching() -> None:
    assert same(graph("tree", 13, branching=3), nx.full_rary_tree(3, 13))
    assert graph("tree", 13, branching=3).degrees.max() == 4


@pytest.mark.parametrize("agents", [2, 3, 10, 50, 400])
def test_erdos_renyi_default_is_twice_the_connectivity_threshold(agents: int) -> None:
    resolved = section(topology="erdos-renyi", agents=agents).resolve()
    assert resolved.table()["probability"] == min(1.0, 2 * math.log(agents) / agents)
    assert resolved.graph().components == 1


def test_small_world_defaults() -> None:
    ours = section(topology="small-world", agents=20).resolve()
    assert same(ours.graph(), nx.watts_strogatz_graph(20, 4, 0.1, seed=69))


@pytest.mark.parametrize(("name", "table"), [("geometric", {}), ("erdos-renyi", {})])
def test_default_parameters_try_the_next_seeds_and_record_the_one_used(name: str, table: dict[str, Any]) -> None:
    def connected(seed: int) -> bool:
        if name == "geometric":
            return bool(nx.is_connected(nx.random_geometric_graph(14, 0.3, seed=seed)))
        return bool(nx.is_connected(nx.gnp_random_graph(14, 2 * math.log(14) / 14, seed=seed)))

    first = next(seed for seed in range(100) if not connected(seed))
    used = next(seed for seed in range(first, 200) if connected(seed))
    resolved = section(topology=name, agents=14, seed=first, **table).resolve()
    assert resolved.table()["seed"] == used > first
    assert resolved.resolve() == resolved
    assert resolved.graph().components == 1


def test_seeds_run_out_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "_SEEDS_TRIED", 2)
    start = next(
        s
        for s in range(100)
        if not any(nx.is_connected(nx.random_geometric_graph(12, 0.3, seed=s + i)) for i in (0, 1))
    )
    with pytest.raises(BadInput, match=r"none of the 2 seeds from there on gives one: choose radius"):
        section(topology="geometric", agents=12, seed=start).resolve()


SHATTERED = next(s for s in range(100) if not nx.is_connected(nx.watts_strogatz_graph(30, 2, 1.0, seed=s)))


@pytest.mark.parametrize(
    "table",
    [
        {"topology": "geometric", "radius": 0.05},
        {"topology": "erdos-renyi", "probability": 0.01},
        {"topology": "small-world", "neighbours": 2, "rewire": 1.0, "agents": 30, "seed": SHATTERED},
    ],
)
def test_explicit_parameters_that_disconnect_are_refused(table: dict[str, Any]) -> None:
    chosen = section(**table)
    resolved = chosen.resolve()
    assert resolved.table()["seed"] == chosen.table()["seed"]
    with pytest.raises(BadInput, match=r"expected a connected graph, but .* gives \d+ separate parts"):
        resolved.graph()


def test_parameters_of_another_topology_are_refused() -> None:
    with pytest.raises(BadInput, match=r"network\.radius"):
        section(topology="ring", radius=0.2)


def test_neighbours_run_in_ascending_order() -> None:
    ours = graph("geometric", 50)
    for agent in range(50):
        neighbours = ours.neighbours(agent)
        assert neighbours == sorted(set(neighbours))
        assert len(neighbours) == ours.degrees[agent]
        assert all(agent in ours.neighbours(other) for other in neighbours[:2])


def test_edges_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        graph("ring", 5).edges[0, 0] = 3


@pytest.mark.parametrize("ending", ["txt", "graphml"])
def test_graph_from_a_file(tmp_path: Path, ending: str) -> None:
    drawn = nx.cycle_graph(11)
    path = tmp_path / f"graph.{ending}"
    nx.write_edgelist(drawn, path, data=False) if ending == "txt" else nx.write_graphml(drawn, path)
    resolved = section(topology="file", path=str(path)).resolve()
    assert resolved.agents == 11
    assert same(resolved.graph(), drawn)  # 10 comes after 9, not after 1


def test_graph_from_a_file_must_have_the_agents_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("a b\nb c\n")
    assert section(topology="file", path=str(path), agents=3).resolve().graph().edges.tolist() == [[0, 1], [1, 2]]
    with pytest.raises(BadInput, match=r"network\.agents = 4: expected 3, the number of nodes"):
        section(topology="file", path=str(path), agents=4).resolve()


def test_graph_from_a_file_must_be_connected(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("0 1\n2 3\n")
    with pytest.raises(BadInput, match="gives 2 separate parts"):
        section(topology="file", path=str(path)).resolve().graph()


@pytest.mark.parametrize("text", ["", "just-one-name\n", "0 0\n"])
def test_files_without_a_graph_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "edges.txt"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"network\.path"):
        section(topology="file", path=str(path)).resolve()


def test_missing_and_unparsable_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.graphml").write_text("<graphml")
    for name in ("missing.txt", "broken.graphml", "."):
        with pytest.raises(BadInput, match=r"network\.path"):
            section(topology="file", path=str(tmp_path / name)).resolve()


def test_directed_graphml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "directed.graphml"
    nx.write_graphml(nx.DiGraph([(0, 1), (1, 2)]), path)
    with pytest.raises(BadInput, match="an undirected graph"):
        section(topology="file", path=str(path)).resolve()


def test_small_world_on_three_agents_reads_back(tmp_path: Path) -> None:
    resolved = Experiment.load(overrides=["network.topology=small-world", "network.agents=3"]).resolve()
    path = tmp_path / "experiment.toml"
    path.write_text(resolved.to_toml())
    assert Experiment.load(path).network.graph().edges.tolist() == [[0, 1], [0, 2], [1, 2]]
