"""The files for many machines: Kubernetes' against the schema of its API, Swarm's against what an agent may know."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dpp2 import Experiment
from node.cluster import Cluster

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yml").read_text())}


@pytest.fixture(scope="module")
def stack() -> Any:
    return yaml.safe_load((DEPLOY / "swarm.yml").read_text())


def test_kubernetes_manifests_keep_to_the_schema(manifests: dict[str, Any]) -> None:
    assert {"Service", "ConfigMap", "StatefulSet", "Job"} <= set(manifests)
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, "1.31", strict=True)


def test_kubernetes_and_compose_run_the_same_experiment(manifests: dict[str, Any], tmp_path: Path) -> None:
    for name, content in manifests["ConfigMap"]["data"].items():
        (tmp_path / name).write_text(content)
    ours, theirs = (
        Experiment.load(folder / "experiment.toml").resolve().digest for folder in (tmp_path, DEPLOY / "ring-6")
    )
    assert ours == theirs
    pods = manifests["StatefulSet"]["spec"]["replicas"]
    addresses = Cluster.load(tmp_path / "cluster.toml").addresses
    assert addresses == {pod: f"agent-{pod}.agents.dpp2.svc.cluster.local:7000" for pod in range(pods)}


def test_nobody_is_root_in_kubernetes(manifests: dict[str, Any]) -> None:
    for kind in ("StatefulSet", "Job"):
        pod = manifests[kind]["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        for container in itertools.chain(pod["containers"], pod.get("initContainers", [])):
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"]
            assert rights["capabilities"] == {"drop": ["ALL"]}


def test_the_node_of_a_pod_sees_its_own_secrets_only(manifests: dict[str, Any]) -> None:
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    shared = {volume["name"] for volume in pod["volumes"] if "secret" in volume}
    (node,) = pod["containers"]
    assert shared == {"eta", "data", "certs"}
    assert not shared & {mount["name"] for mount in node["volumeMounts"]}


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
