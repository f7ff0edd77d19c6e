"""The files for many machines that are written by hand: what an agent may know, and that they can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dpp2 import Experiment
from dpp2.node.cluster import Cluster

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="module")
def stack() -> Any:
    return yaml.safe_load((DEPLOY / "swarm.yml").read_text())


def test_a_swarm_service_is_given_its_own_agents_secrets_only(stack: Any) -> None:
    for agent in range(6):
        service = stack["services"][f"agent-{agent}"]
        given = {secret["source"] for secret in service["secrets"]}
        own = {f"{who}.{kind}.pem" for who in (f"node-{agent}", "probe") for kind in ("ca", "cert", "key")}
        assert given == {"eta.key", f"agent-{agent}.key", f"agent-{agent}.npz"} | own
        assert service["deploy"]["restart_policy"]["condition"] == "on-failure"
    assert {secret["source"] for secret in stack["services"]["orchestrator"]["secrets"]} == {
        f"orchestrator.{kind}.pem" for kind in ("ca", "cert", "key")
    }


def test_the_example_of_three_machines_can_be_read() -> None:
    cluster = Cluster.load(DEPLOY / "three-machines" / "cluster.toml")
    assert [cluster.agents_of_node(node) for node in cluster.nodes()] == [(0, 1), (2, 3), (4, 5)]
    assert Experiment.load(DEPLOY / "three-machines" / "experiment.toml").resolve().network.agents == 6
