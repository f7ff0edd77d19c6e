"""Many agents in few words, on command lines, in cluster.toml and between nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpp2 import BadInput
from dpp2.node.__main__ import _agents
from dpp2.node.cluster import Cluster
from dpp2.node.ranges import MOST_AGENTS, ranges_text, read_ranges

METADATA = 8 << 10  # what gRPC takes without a word, of all that a node says of itself


@given(st.sets(st.integers(0, MOST_AGENTS - 1), min_size=1, max_size=50))
def test_what_is_written_is_read_again(agents: set[int]) -> None:
    assert read_ranges(ranges_text(agents)) == tuple(sorted(agents))


@pytest.mark.parametrize(
    ("agents", "text"), [([3], "3"), ([2, 0, 1], "0-2"), ([0, 2, 3, 9], "0,2-3,9"), (range(25_000), "0-24999")]
)
def test_neighbours_in_number_are_joined(agents: list[int], text: str) -> None:
    assert ranges_text(agents) == text


def test_a_block_of_a_large_network_fits_into_metadata() -> None:
    assert len(ranges_text(range(25_000))) < METADATA < len(",".join(map(str, range(4_000))))


def test_lists_in_any_order_are_read() -> None:
    assert read_ranges("7, 0-2,03") == (0, 1, 2, 3, 7)


@pytest.mark.parametrize(
    "text", ["", "a", "1,", "-1", "1-", "3-1", "1-2-3", "0-3,3", "2,2", "0-999999999999", f"{MOST_AGENTS}", "1.5", "٣-"]
)
def test_what_is_no_list_is_refused_before_anything_is_counted_up(text: str) -> None:
    with pytest.raises(ValueError, match=r"agent twice|number or two|ascending"):
        read_ranges(text)


def test_the_option_says_what_it_takes() -> None:
    assert _agents("0-3,8") == (0, 1, 2, 3, 8)
    with pytest.raises(BadInput, match=r"--agents.*as in 3 or 0,1,2 or 0-24999"):
        _agents("0-3,2")


def loaded(folder: Path, text: str) -> Cluster:
    (folder / "cluster.toml").write_text(text)
    return Cluster.load(folder / "cluster.toml")


def test_hosts_in_a_cluster_file_are_agents_with_one_address(tmp_path: Path) -> None:
    text = '[agents]\n4 = "b:1"\n[hosts]\n"a:1" = "0-2"\n"b:1" = "3,5"\n'
    found = loaded(tmp_path, text)
    assert found.addresses == {0: "a:1", 1: "a:1", 2: "a:1", 3: "b:1", 4: "b:1", 5: "b:1"}
    assert found.agents_of_node(3) == (3, 4, 5)


def test_a_large_cluster_is_written_by_hosts_and_read_again(tmp_path: Path) -> None:
    large = Cluster({agent: f"10.0.0.{agent % 3}:7000" for agent in range(30_000)}, {(0, 1): "relay:1"})
    blocks = Cluster({agent: f"10.0.0.{agent // 10_000}:7000" for agent in range(30_000)}, {})
    for cluster in (large, blocks):
        assert loaded(tmp_path, cluster.to_toml()) == cluster
    assert len(blocks.to_toml()) < 200
    assert "[agents]" in Cluster({0: "a:1", 1: "b:1"}, {}).to_toml()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"a:1" = "0-2,2"', r'agents, each once, as in "0-24999"'),
        ('"a:1" = 3', r'agents, each once, as in "0-24999"'),
        ('"a:1" = "0-1"\n"b:1" = "1-2"', "agent 1 has a line"),
        ('"nowhere" = "0-1"', "an address such as"),
        ('"a:1" = "0,2"', "every agent from 0 on"),
    ],
)
def test_hosts_that_cannot_be_are_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        loaded(tmp_path, f"[hosts]\n{line}\n")
