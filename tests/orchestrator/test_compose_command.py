"""`dpp2 compose`: files for containers that say what they must, and nothing that only one of them may know."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpp2 import Experiment
from dpp2.node.cluster import Cluster
from dpp2.node.tls import Identity, node_names

ROOT = Path(__file__).parents[2]
Call = Callable[..., Any]


@pytest.fixture
def composed(dpp2: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """What a call prints, as a tree."""
    monkeypatch.chdir(tmp_path)

    def call(*options: object) -> Any:
        ended = dpp2("compose", *options)
        assert ended.code == 0, ended.err
        return yaml.safe_load(ended.out)

    return call


@pytest.mark.parametrize("override", ["", "tls", "damping", "sniffer"])
def test_the_files_of_the_repository_are_what_the_command_writes(
    override: str, dpp2: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--override", override) if override else ()
    written = dpp2("compose", "--agents", 6, "--topology", "ring", *options).out
    kept = ROOT / (f"deploy/{override}.yml" if override else "docker-compose.yml")
    assert written == kept.read_text()
    for path in (tmp_path / "deploy" / "ring-6").iterdir():
        assert path.read_text() == (ROOT / "deploy" / "ring-6" / path.name).read_text()


def test_a_container_for_each_agent_and_a_relay_for_each_link(composed: Call, tmp_path: Path) -> None:
    tree = composed("--agents", 20, "--topology", "ring")
    assert sorted(tree["services"]) == sorted(
        [*(f"agent-{agent}" for agent in range(20)), "orchestrator", "eavesdropper", "audit", "page"]
    )
    cluster = Cluster.load(tmp_path / "deploy" / "ring-20" / "cluster.toml")
    relay = tree["services"]["eavesdropper"]["command"]
    assert len(cluster.links) == relay.count("--link") == 20
    for (low, high), address in cluster.links.items():
        assert f"--link {low}-{high}=0.0.0.0:{address.rpartition(':')[2]},{cluster.addresses[high]}" in relay


@pytest.mark.parametrize("override", [None, "tls", "sniffer"])
def test_whoever_waits_gives_up_some_time(override: str | None, composed: Call) -> None:
    """So that `docker-compose up` ends: what it started again for ever would never end either."""
    options = ("--override", override) if override else ()
    services = composed("--agents", 3, "--topology", "ring", *options)["services"]
    commands = {name: str(service["command"]) for name, service in services.items() if "command" in service}
    for name in set(commands) - {"audit", "page"}:  # the page is only there for those who ask for it
        assert "--patience " in commands[name], name
    for name, service in services.items():
        assert service.get("restart", "no") == ("on-failure:8" if name.startswith("agent") and not override else "no")


def test_the_page_is_for_this_machine_alone_reads_and_is_only_there_if_asked_for(composed: Call) -> None:
    page = composed("--agents", 3, "--topology", "ring")["services"]["page"]
    assert page["profiles"] == ["page"]
    assert page["ports"] == ["127.0.0.1:8321:8321"]
    assert all(volume.endswith(":ro") for volume in page["volumes"])
    assert "secrets" not in page
    assert "--host 0.0.0.0" in page["command"]
    assert page["environment"] == {"DPP2_PAGE_TOKEN": "${DPP2_PAGE_TOKEN:-}"}


def test_an_agent_gets_its_own_secrets_and_every_secret_has_a_file(composed: Call) -> None:
    tree = composed("--agents", 4, "--topology", "star")
    for agent in range(4):
        assert tree["services"][f"agent-{agent}"]["secrets"] == ["eta.key", f"agent-{agent}.key", f"agent-{agent}.npz"]
    for other in ("orchestrator", "eavesdropper"):
        assert "secrets" not in tree["services"][other]
    used = {name for service in tree["services"].values() for name in service.get("secrets", [])}
    assert used == set(tree["secrets"])


def test_nothing_that_the_two_generations_of_compose_disagree_on(composed: Call) -> None:
    for override in ((), ("--override", "tls"), ("--override", "damping"), ("--override", "sniffer")):
        tree = composed("--agents", 3, "--topology", "ring", *override)
        assert not {"name", "configs", "version"} & set(tree)
        for service in tree["services"].values():
            for secret in service.get("secrets", []):
                assert isinstance(secret, str) or set(secret) == {"source", "target"}
            sources = [secret if isinstance(secret, str) else secret["source"] for secret in service.get("secrets", [])]
            assert len(sources) == len(set(sources))


def test_the_damped_experiment_differs_in_damping_alone(composed: Call, tmp_path: Path) -> None:
    composed("--agents", 3, "--topology", "ring", "--set", "run.rounds=7", "--files", "here")
    plain, damped = (
        Experiment.load(tmp_path / "here" / name).tables() for name in ("experiment.toml", "experiment-damped.toml")
    )
    assert plain["run"]["rounds"] == 7
    assert damped["algorithm"].pop("damping") == 1.0
    assert plain["algorithm"].pop("damping") == 0.0
    assert plain == damped


def test_as_json(dpp2: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = json.loads(dpp2("compose", "--agents", 3, "--topology", "ring", "--json").out)
    assert yaml.safe_load(document["compose"])["services"]
    assert all(Path(path).is_file() for path in document["files"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--agents", 1), "--agents = 1: expected a whole number from 2 to 1,000"),
        (("--topology", "rign"), "did you mean 'ring'"),
        (("--override", "tsl"), "did you mean 'tls'"),
    ],
)
def test_what_it_cannot_write_it_says_in_one_sentence(
    options: tuple[object, ...], sentence: str, dpp2: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = dpp2("compose", *options)
    assert ended.code == 2
    assert sentence in " ".join(ended.err.split())
    assert not list(tmp_path.iterdir())


def test_keys_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    def make(agents: int) -> dict[str, bytes]:
        line = [sys.executable, str(ROOT / "tools" / "keys.py"), "--agents", str(agents)]
        subprocess.run(line, cwd=tmp_path, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        return {str(p.relative_to(tmp_path)): p.read_bytes() for p in (tmp_path / "secrets").rglob("*") if p.is_file()}

    first = make(2)
    tokens = [line for line in (tmp_path / ".env").read_text().split() if line.startswith("DPP2_PAGE_TOKEN=")]
    second = make(3)
    assert {name: second[name] for name in first} == first
    assert {"secrets/agent-2.key", "secrets/agent-2.npz", "secrets/certs/node-2/cert.pem"} <= set(second) - set(first)
    for path in (tmp_path / "secrets").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o400), path
    user, _, token = (tmp_path / ".env").read_text().split()
    assert user == f"DPP2_UID={os.getuid() or 10001}"
    assert token == tokens[0]
    assert len(token) == len("DPP2_PAGE_TOKEN=") + 32
    assert (tmp_path / "runs" / "nodes" / "agent-2").stat().st_uid == (os.getuid() or 10001)
    Identity.load(tmp_path / "secrets" / "certs" / "node-1", node_names([1]))
