"""`dpp2 compose --kubernetes`: valid for the API's schema, one's own secrets alone, and policies that are the graph."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dpp2 import Experiment
from dpp2.node.cluster import Cluster

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
Call = Callable[..., Any]
NETWORKS = {"ring": 6, "star": 5, "complete": 4, "path": 3}


class Manifests:
    """All objects of one manifest."""

    def __init__(self, text: str) -> None:
        self.text, self.all = text, list(yaml.safe_load_all(text))

    def of(self, kind: str) -> dict[str, Any]:
        return {one["metadata"]["name"]: one for one in self.all if one["kind"] == kind}

    def pods(self) -> dict[str, Any]:
        found = {**self.of("StatefulSet"), **self.of("Job")}
        return {name: one["spec"]["template"] for name, one in found.items()}

    def graph(self, folder: Path) -> dict[int, set[int]]:
        """Who is whose neighbour, by the experiment in the manifest."""
        (folder / "experiment.toml").write_text(self.of("ConfigMap")["public"]["data"]["experiment.toml"])
        network = Experiment.load(folder / "experiment.toml").resolve().network
        near: dict[int, set[int]] = {agent: set() for agent in range(network.agents)}
        for i, j in network.graph().edges.tolist():
            near[i].add(j)
            near[j].add(i)
        return near


@pytest.fixture(params=NETWORKS)
def manifests(request: pytest.FixtureRequest, dpp2: Call) -> Manifests:
    topology = request.param
    ended = dpp2("compose", "--agents", NETWORKS[topology], "--topology", topology, "--kubernetes")
    assert ended.code == 0, ended.err
    return Manifests(ended.out)


@pytest.fixture
def shipped() -> Manifests:
    return Manifests((DEPLOY / "kubernetes.yml").read_text())


def test_the_file_of_the_repository_is_what_the_command_writes(
    dpp2: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = dpp2("compose", "--agents", 6, "--topology", "ring", "--kubernetes").out
    assert written == (DEPLOY / "kubernetes.yml").read_text()
    assert not list(tmp_path.iterdir())


def test_manifests_keep_to_the_schema(manifests: Manifests) -> None:
    assert {"Service", "ConfigMap", "StatefulSet", "Job", "NetworkPolicy"} <= {one["kind"] for one in manifests.all}
    for manifest in manifests.all:
        kubernetes_validate.validate(manifest, "1.31", strict=True)


def test_kubernetes_and_compose_run_the_same_experiment(shipped: Manifests, tmp_path: Path) -> None:
    for name, content in shipped.of("ConfigMap")["public"]["data"].items():
        (tmp_path / name).write_text(content)
    ours, theirs = (Experiment.load(folder / "experiment.toml").resolve() for folder in (tmp_path, DEPLOY / "ring-6"))
    assert ours.digest == theirs.digest
    assert ours.privacy.budget == theirs.privacy.budget is not None
    assert ours.run.telemetry == "none"  # nothing here writes down what is private
    addresses = Cluster.load(tmp_path / "cluster.toml").addresses
    assert addresses == {agent: f"agent-{agent}-0.agents.dpp2.svc.cluster.local:7000" for agent in range(6)}


def test_an_agent_is_a_pod_of_its_own(manifests: Manifests, tmp_path: Path) -> None:
    agents, sets = manifests.graph(tmp_path), manifests.of("StatefulSet")
    assert set(sets) == {f"agent-{agent}" for agent in agents}
    for agent in agents:
        one = sets[f"agent-{agent}"]["spec"]
        assert one["replicas"] == 1
        assert one["selector"]["matchLabels"] == one["template"]["metadata"]["labels"]
        (node,) = one["template"]["spec"]["containers"]
        assert f"--agents={agent}" in node["args"]
        assert f"--agents={agent}" in node["readinessProbe"]["exec"]["command"]
    selector = manifests.of("Service")["agents"]["spec"]["selector"]
    assert selector.items() <= sets["agent-0"]["spec"]["template"]["metadata"]["labels"].items()


def test_nobody_is_root(manifests: Manifests) -> None:
    for template in manifests.pods().values():
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        for container in itertools.chain(pod["containers"], pod["initContainers"]):
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"]
            assert rights["capabilities"] == {"drop": ["ALL"]}


def test_a_pod_mounts_its_own_secret_and_no_other(manifests: Manifests) -> None:
    for name, template in manifests.pods().items():
        volumes = template["spec"]["volumes"]
        (secret,) = [volume["secret"] for volume in volumes if "secret" in volume]
        assert secret["secretName"] == name
        assert not any("projected" in volume or "hostPath" in volume for volume in volumes)
        private = {item["path"] for item in secret["items"] if not item["path"].endswith(".pem")}
        assert private == ({"eta.key", f"{name}.npz"} if name.startswith("agent-") else set())
        (first,) = template["spec"]["initContainers"]
        assert all(
            item["path"] in first["command"][-1].split() or f"{item['path']};" in first["command"][-1]
            for item in secret["items"]
        )


def test_the_container_that_runs_sees_copies_that_are_its_own_alone(manifests: Manifests) -> None:
    for template in manifests.pods().values():
        (runs,), (first,) = template["spec"]["containers"], template["spec"]["initContainers"]
        assert "secret" not in {mount["name"] for mount in runs["volumeMounts"]}
        assert "install -D -m 0400" in first["command"][-1]
        (own,) = [volume for volume in template["spec"]["volumes"] if volume["name"] == "own"]
        assert own["emptyDir"] == {"medium": "Memory"}


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a selector of pods means the one with these labels."""
    same = selector.get("matchLabels", {}).items() <= labels.items()
    return same and all(
        one["operator"] == "In" and labels.get(one["key"]) in one["values"]
        for one in selector.get("matchExpressions", [])
    )


def may_talk(manifests: Manifests) -> set[tuple[str, str]]:
    """(who, to whom) on port 7000, as all policies together say: out of the one, and into the other."""
    labels = {name: template["metadata"]["labels"] for name, template in manifests.pods().items()}

    def side(policy: dict[str, Any], way: str, peers: str, who: str, other: str) -> bool:
        rules = policy.get(way, []) if matches(policy["podSelector"], labels[who]) else []
        return any(
            {"port": 7000} in rule["ports"]
            and any(
                "namespaceSelector" not in peer and matches(peer["podSelector"], labels[other]) for peer in rule[peers]
            )
            for rule in rules
        )

    policies = [policy["spec"] for policy in manifests.of("NetworkPolicy").values()]
    return {
        (who, other)
        for who, other in itertools.permutations(labels, 2)
        if any(side(policy, "egress", "to", who, other) for policy in policies)
        and any(side(policy, "ingress", "from", other, who) for policy in policies)
    }


def test_policies_are_the_graph_and_the_orchestrator(manifests: Manifests, tmp_path: Path) -> None:
    near = manifests.graph(tmp_path)
    wanted = {(f"agent-{i}", f"agent-{j}") for i, others in near.items() for j in others}
    wanted |= {("orchestrator", f"agent-{agent}") for agent in near}
    assert may_talk(manifests) == wanted


def test_nothing_is_open_by_default_but_names(manifests: Manifests) -> None:
    policies = {name: policy["spec"] for name, policy in manifests.of("NetworkPolicy").items()}
    assert policies["closed"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    (rule,) = policies["names"]["egress"]
    assert {(port["protocol"], port["port"]) for port in rule["ports"]} == {("UDP", 53), ("TCP", 53)}
    assert rule["to"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "kube-system"}
    everybody = [name for name, policy in policies.items() if policy["podSelector"] == {}]
    assert sorted(everybody) == ["closed", "names"]
    assert "ingress" not in policies["names"]
    assert "ingress" not in policies["orchestrator"]


def commands_of_the_page() -> str:
    """The shell lines of the page's part on Kubernetes that make Secrets."""
    page = (ROOT / "docs" / "multi-machine.md").read_text()
    part = page.partition("## Kubernetes")[2].partition("\n## ")[0]
    lines = "".join(re.findall(r"^```sh.*?\n(.*?)^```", part, re.MULTILINE | re.DOTALL)).splitlines()
    return "\n".join(line for line in lines if not re.match(r"make |kubectl apply|kubectl -n dpp2 logs|dpp2 ", line))


def test_the_steps_of_the_page_make_the_secrets_that_pods_mount(shipped: Manifests, tmp_path: Path) -> None:
    """Run as they stand, with a kubectl that writes down what it is told."""
    names = [f"node-{agent}" for agent in range(6)]
    for path in (
        *(f"secrets/agent-{agent}.{kind}" for agent in range(6) for kind in ("npz", "key")),
        *(
            f"secrets/certs/{who}/{kind}.pem"
            for who in (*names, "orchestrator", "probe")
            for kind in ("ca", "cert", "key")
        ),
        "secrets/eta.key",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    stub = tmp_path / "bin" / "kubectl"
    stub.parent.mkdir()
    log = f"print(json.dumps(sys.argv[1:]), file=open({str(tmp_path / 'log')!r}, 'a'))"
    stub.write_text(f"#!/usr/bin/env python3\nimport json, sys\n{log}\n")
    stub.chmod(0o755)
    environment = {**os.environ, "PATH": f"{stub.parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-eu", "-c", commands_of_the_page()], cwd=tmp_path, env=environment, check=True, timeout=60)
    made: dict[str, dict[str, str]] = {}
    for line in (tmp_path / "log").read_text().splitlines():
        words = json.loads(line)
        if words[2:5] == ["create", "secret", "generic"]:
            files = [word.removeprefix("--from-file=") for word in words[6:]]
            made[words[5]] = {key or Path(file).name: file for key, _, file in (f.rpartition("=") for f in files)}
    for name, template in shipped.pods().items():
        (secret,) = [volume["secret"] for volume in template["spec"]["volumes"] if "secret" in volume]
        assert set(made[name]) == {item["key"] for item in secret["items"]}
        assert all((tmp_path / file).is_file() for file in made[name].values())
    assert set(made) == set(shipped.pods())
    for agent in range(6):
        others = re.compile(rf"(agent|node)-(?!{agent}\b)\d|orchestrator|agent-\d\.key")
        assert not [file for file in made[f"agent-{agent}"].values() if others.search(file)]


@pytest.mark.parametrize("more", [("--override", "tls"), ("--files", "here")])
def test_a_manifest_has_no_other_files(more: tuple[str, ...], dpp2: Call) -> None:
    ended = dpp2("compose", "--kubernetes", *more)
    assert ended.code == 2
    assert "no --override or --files with it" in " ".join(ended.err.split())


def test_as_json(dpp2: Call) -> None:
    document = json.loads(dpp2("compose", "--agents", 3, "--kubernetes", "--json").out)
    assert Manifests(document["kubernetes"]).of("StatefulSet")
    assert document["files"] == []
