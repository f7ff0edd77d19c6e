"""Who is hosted where: every agent once, parts of nearly equal size, and few rows between them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dpp2.partition import blocks, crossing, cut, partition
from dpp2.topology import Geometric, Graph, Ring, SmallWorld


def scattered(agents: int) -> Graph:
    return Geometric(agents=agents, radius=0.15).resolve().graph()


def shuffled_ring(agents: int) -> tuple[Graph, NDArray[np.int64]]:
    """A ring whose agents are numbered at random: consecutive ones are no neighbours."""
    names = np.random.default_rng(1).permutation(agents)
    return Graph.linked(agents, names, np.roll(names, -1)), names


def test_blocks_are_consecutive_and_nearly_equal() -> None:
    assert blocks(7, 3).tolist() == [0, 0, 1, 1, 2, 2, 2]


def test_the_cut_by_hand() -> None:
    """A ring of six in two halves: two edges, and one row each way over both of them."""
    ring = Ring(agents=6).draw()
    assert cut(ring, blocks(6, 2)).edges == 2
    assert crossing(ring, blocks(6, 2)).tolist() == [[0, 1], [2, 1], [3, 0], [5, 0]]


def test_an_agent_between_two_neighbours_of_one_part_sends_once() -> None:
    star = Graph.linked(4, np.zeros(3, dtype=np.int64), np.arange(1, 4))
    assert (cut(star, np.array([0, 1, 1, 1])).edges, cut(star, np.array([0, 1, 1, 1])).rows) == (3, 4)


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_every_agent_is_in_one_part_of_nearly_equal_size(parts: int) -> None:
    found = partition(scattered(300), parts, metis=True)
    assert sorted(agent for group in found.groups for agent in group) == list(range(300))
    assert len(found.groups) == parts
    assert max(map(len, found.groups)) <= 1.1 * 300 / parts
    assert found.groups == sorted(map(sorted, found.groups))


def test_neighbours_are_kept_together_where_their_numbers_are_not() -> None:
    ring, names = shuffled_ring(200)
    found = partition(ring, 2, metis=True)
    assert found.blocks == cut(ring, blocks(200, 2))
    assert found.cut == cut(ring, found.owner)
    assert found.cut.rows < found.blocks.rows / 10
    assert (np.diff(found.owner[names]) != 0).sum() <= 6  # a few arcs


def test_the_same_cut_every_time() -> None:
    first, second = (partition(scattered(300), 4, metis=True) for _ in range(2))
    assert first.owner.tolist() == second.owner.tolist()


def test_blocks_stay_where_nothing_is_better() -> None:
    found = partition(SmallWorld(agents=100, rewire=0.0).draw(), 2, metis=True)
    assert found.owner.tolist() == blocks(100, 2).tolist()
    assert found.cut == found.blocks


def test_without_metis_there_are_blocks() -> None:
    ring, _ = shuffled_ring(50)
    assert partition(ring, 5, metis=False).owner.tolist() == blocks(50, 5).tolist()


@pytest.mark.parametrize("parts", [1, 50])
def test_one_part_or_an_agent_each_needs_no_choice(parts: int) -> None:
    ring, _ = shuffled_ring(50)
    assert len(partition(ring, parts, metis=True).groups) == parts


def test_compressed_rows_are_the_neighbours() -> None:
    graph = SmallWorld(agents=60).draw()
    starts, neighbours = graph.csr()
    for agent in range(60):
        assert neighbours[starts[agent] : starts[agent + 1]].tolist() == graph.neighbours(agent)
