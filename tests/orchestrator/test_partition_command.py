"""Agents are shared out among processes and hosts: kept for a run, printed, and written for nodes to read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import BadInput
from dpp2.node.__main__ import _agents
from dpp2.node.cluster import Cluster
from dpp2.orchestrator import groups
from dpp2.orchestrator.groups import groups_of
from dpp2.orchestrator.transports.base import ClusterShape
from dpp2.topology import Graph

Call = Callable[..., Any]
HOSTS = "10.0.0.1:7000,10.0.0.2:7000"
NETWORK = ("--set", "network.agents=200", "--set", "network.radius=0.15")


@pytest.fixture
def ring() -> Graph:
    names = np.random.default_rng(1).permutation(60)
    return Graph.linked(60, names, np.roll(names, -1))


def test_small_networks_stay_in_blocks_unless_asked(ring: Graph, tmp_path: Path) -> None:
    assert groups_of(ClusterShape(2), ring, tmp_path) == [list(range(30)), list(range(30, 60))]


def test_what_was_chosen_is_kept_for_the_run(ring: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where METIS is gone when it goes on, or would cut otherwise."""
    chosen = groups_of(ClusterShape(3, partition="metis"), ring, tmp_path)
    assert chosen != groups_of(ClusterShape(3), ring, tmp_path / "other")
    monkeypatch.setattr(groups, "has_metis", lambda: False)
    assert groups_of(ClusterShape(), ring, tmp_path) == chosen


def test_the_cut_is_printed_before_and_after(ring: Graph, tmp_path: Path, capsys: Any) -> None:
    groups_of(ClusterShape(2, partition="metis"), ring, tmp_path)
    said = " ".join(capsys.readouterr().err.split())
    assert "note: 2 nodes, by METIS: " in said
    assert "rows travel in a phase (consecutive blocks: " in said


@pytest.mark.parametrize(
    ("name", "accepted"), [("metis", "pip install 'dpp2[partition]'"), ("best", "metis or blocks")]
)
def test_what_is_not_there_is_refused(name: str, accepted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "has_metis", lambda: False)
    with pytest.raises(BadInput, match=r"--partition") as refusal:
        groups.check_partition(name)
    assert accepted in str(refusal.value)


def test_a_cluster_file_and_lists_for_its_nodes(dpp2: Call, tmp_path: Path) -> None:
    ended = dpp2("partition", *NETWORK, "--hosts", HOSTS, "--kind", "metis", "--out", tmp_path / "c.toml", "--json")
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    assert said["cut"]["rows"] < said["blocks"]["rows"]
    cluster = Cluster.load(tmp_path / "c.toml")
    assert len(cluster.addresses) == 200
    assert sorted(cluster.nodes().values()) == HOSTS.split(",")
    for node in cluster.nodes():
        assert _agents(f"@{tmp_path / f'c-{node}.agents'}") == cluster.agents_of_node(node)


def test_nothing_is_written_over(dpp2: Call, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("mine")
    ended = dpp2("partition", "--hosts", HOSTS, "--out", tmp_path / "c.toml")
    assert (ended.code, [path.name for path in tmp_path.iterdir()]) == (2, ["c.toml"])
    assert "a file that is not there yet" in ended.err


IMPOSSIBLE = ("10.0.0.1", "", "a:0,b:1", "a:99999,b:1", "a b:1,c:1", "a\n:1,b:1", "a:٥,b:1", "a:1,a:1")


@pytest.mark.parametrize("hosts", [*IMPOSSIBLE, ",".join(f"a:{n}" for n in range(1, 52))])
def test_hosts_that_cannot_be_are_refused(hosts: str, dpp2: Call, tmp_path: Path) -> None:
    ended = dpp2("partition", "--hosts", hosts, "--out", tmp_path / "c.toml")
    assert (ended.code, list(tmp_path.iterdir())) == (2, [])
    assert "--hosts = " in ended.err


def test_a_list_of_agents_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--agents.*a readable file of such numbers"):
        _agents(f"@{tmp_path / 'none'}")
