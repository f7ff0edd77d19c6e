"""The Swarm stack on a Swarm of one machine: overlay network, secrets, placement, and agents that come back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dpp2.orchestrator.demonstration import Demonstration
from tests.docker.containers import IMAGE, Project, command, rounds_of, wait_for
from tests.needed import not_here

pytestmark = [pytest.mark.docker, pytest.mark.timeout(400)]

ROUNDS = 1500
STACK = "dpp2test"


@pytest.fixture
def swarm(image: str) -> Iterator[None]:
    if command("docker", "info", "-f", "{{.Swarm.LocalNodeState}}").strip() != "inactive":
        not_here("this engine is part of a Swarm, which a test must not change")
    command("docker", "swarm", "init", "--advertise-addr", "127.0.0.1")
    machine = command("docker", "info", "-f", "{{.Swarm.NodeID}}").strip()
    labels = [word for name in "abc" for word in ("--label-add", f"dpp2.{name}=true")]
    command("docker", "node", "update", *labels, machine)
    yield
    command("docker", "stack", "rm", STACK)
    wait_for(lambda: not command("docker", "ps", "-aq", "-f", f"name={STACK}_"))
    for volume in command("docker", "volume", "ls", "-q", "-f", f"name={STACK}_").split():
        subprocess.run(["docker", "volume", "rm", volume], check=False, capture_output=True)
    command("docker", "swarm", "leave", "--force")


def volume(name: str) -> Path:
    """Where the engine keeps it, which may be before it is there."""
    return Path(command("docker", "info", "-f", "{{.DockerRootDir}}").strip()) / "volumes" / f"{STACK}_{name}" / "_data"


def containers(service: str) -> list[str]:
    return command("docker", "ps", "-q", "-f", f"name={STACK}_{service}").split()


def states(service: str) -> list[str]:
    shown = command("docker", "service", "ps", f"{STACK}_{service}", "--format", "{{.CurrentState}}")
    return [line.split()[0] for line in shown.splitlines()]


def test_an_agent_that_dies_comes_back_and_the_run_ends_as_in_plain_processes(
    swarm: None, project: Callable[..., Project]
) -> None:
    stacked = project()
    experiment = stacked.public / "experiment.toml"
    experiment.write_text(Demonstration.of(6, "ring", [f"run.rounds={ROUNDS}", "noise.decay=1.0"]).to_toml())
    deploy = ("docker", "stack", "deploy", "--resolve-image", "never", "-c", "deploy/swarm.yml", STACK)
    command(*deploy, cwd=stacked.folder, DPP2_IMAGE=IMAGE)
    wait_for(lambda: rounds_of(volume("agent-0")) > 50, 120)
    command("docker", "kill", *containers("agent-2"))
    wait_for(lambda: states("orchestrator")[0] == "Complete", 200)
    wait_for(lambda: all(states(f"agent-{agent}")[0] == "Complete" for agent in range(6)))
    assert "Failed" in states("agent-2")
    homes = [volume(f"agent-{agent}") for agent in range(6)]
    ours = stacked.collect(homes, "stacked")
    assert sorted(ours) == ["observation.npz", "solution.npz"]  # nobody here writes down what is private
    plain = stacked.folder / "plain"
    state = volume("orchestrator") / "orchestrator.json"
    stacked.plain_processes(plain, state, telemetry="none", nonces_of=homes)
    assert ours == stacked.collect(stacked.homes(plain), "undisturbed")
    described = command("docker", "service", "inspect", *(f"{STACK}_agent-{agent}" for agent in range(6)))
    assert all(one["Spec"]["TaskTemplate"]["ContainerSpec"]["User"] == "10001:10001" for one in json.loads(described))
