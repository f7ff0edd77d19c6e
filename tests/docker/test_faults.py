"""Containers are killed, paused and cut off, and compute what undisturbed processes compute, bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from dpp2.node.limits import KEEPALIVE_SECONDS
from tests.docker.containers import COMPARED, Project, command, rate, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

STEADY = (
    "--set",
    "noise.decay=1.0",
)  # float64 carries it in every round: noise that decays would end a run with a budget
ROUNDS = 9000  # more than can be run while nothing is wrong: the last fault must meet a run that is under way
SHARE = 0.8  # of the rounds per second of plain processes
TRIES = 3
MEASURED = 1500  # rounds, from the first to the last tenth
CUT_SECONDS = 20
PATIENCE = 20  # seconds, of the orchestrator


def without_relay(project: Project) -> None:
    (project.public / "cluster.toml").write_text((project.public / "cluster-direct.toml").read_text())


def on(project: Project, agent: int, rounds: int) -> None:
    """Wait until so many more rounds have been run, so that the next fault meets a run that is under way."""
    until = project.rounds(agent) + rounds
    assert until < ROUNDS, "the run was over before it could be disturbed"
    wait_for(lambda: project.rounds(agent) >= until)


def kill_an_agent(project: Project) -> None:
    victim = project.container("agent-2")
    command("docker", "kill", victim)
    command("docker", "start", victim)


def pause_an_agent(project: Project) -> None:
    """For longer than it takes the others to ask whether it is still there."""
    victim = project.container("agent-3")
    command("docker", "pause", victim)
    before = project.rounds(0)
    time.sleep(KEEPALIVE_SECONDS + 2)
    assert project.rounds(0) < ROUNDS
    assert project.rounds(0) - before < 200, "nobody waited for it"
    command("docker", "unpause", victim)


def cut_an_agent_off(project: Project) -> None:
    victim = project.container("agent-4")
    (network,) = project.inspect("agent-4")["NetworkSettings"]["Networks"]
    command("docker", "network", "disconnect", network, victim)
    time.sleep(CUT_SECONDS)
    assert project.rounds(0) < ROUNDS
    command("docker", "network", "connect", "--alias", "agent-4", network, victim)


def kill_the_orchestrator(project: Project) -> None:
    conductor = project.container("orchestrator")
    command("docker", "kill", conductor)
    time.sleep(1)
    command("docker", "start", conductor)


def test_killed_paused_and_cut_off_the_run_ends_bit_identical(project: Callable[..., Project]) -> None:
    disturbed = project("--agents", "6", "--topology", "ring", "--set", f"run.rounds={ROUNDS}", *STEADY)
    services = [service for service in disturbed.services() if service != "audit"]
    disturbed.compose("up", "-d", *services)
    wait_for(lambda: disturbed.rounds(0) > 50)
    for fault in (kill_the_orchestrator, kill_an_agent, pause_an_agent, cut_an_agent_off):
        fault(disturbed)
        on(disturbed, 0, 100)
    wait_for(lambda: all(disturbed.ended(service) for service in services), 240)
    assert {service: disturbed.inspect(service)["State"]["ExitCode"] for service in services} == dict.fromkeys(
        services, 0
    )
    assert {disturbed.rounds(agent) for agent in range(6)} == {ROUNDS}
    plain, homes = disturbed.folder / "plain", disturbed.homes(disturbed.home(0).parent)
    disturbed.plain_processes(plain, disturbed.state(), nonces_of=homes)
    ours = disturbed.collect(homes, "disturbed")
    assert sorted(ours) == sorted(COMPARED)
    assert ours == disturbed.collect(disturbed.homes(plain), "undisturbed")


def test_an_agent_that_is_given_up_ends_everything(project: Callable[..., Project]) -> None:
    """Its data cannot be read, so it never starts; `up` ends, and the orchestrator's log says whom it waited for."""
    broken = project("--agents", "3", "--topology", "ring")
    data = broken.folder / "secrets" / "agent-1.npz"
    data.chmod(0o600)
    data.write_bytes(b"no numbers")
    written = broken.folder / "docker-compose.yml"
    assert "--patience 120" in written.read_text()
    written.write_text(written.read_text().replace("--patience 120", f"--patience {PATIENCE}"))
    with pytest.raises(AssertionError, match="orchestrator"):  # docker-compose itself ends with an error
        broken.up()
    others = ["agent-0", "agent-2", "orchestrator", "eavesdropper"]
    wait_for(lambda: all(broken.ended(service) for service in others), 60)
    ends = {service: broken.inspect(service)["State"]["ExitCode"] for service in others}
    assert ends == {"agent-0": 0, "agent-2": 0, "orchestrator": 1, "eavesdropper": 0}
    said = broken.compose("logs", "--no-color", "orchestrator")
    assert "waiting: node 1 (agent-1:7000) is not there yet" in said
    assert f"given up after {PATIENCE} s without progress: node 1 (agent-1:7000) is not there yet" in said


def test_containers_keep_up_with_plain_processes(project: Callable[..., Project]) -> None:
    """Both are measured one after the other: where something else on the machine fell into one, once more."""
    pairs: list[tuple[float, float]] = []
    while len(pairs) < TRIES and not (pairs and pairs[-1][0] >= SHARE * pairs[-1][1]):
        pairs.append(_rates(project))
    assert any(in_containers >= SHARE * in_processes for in_containers, in_processes in pairs), pairs


def _rates(project: Callable[..., Project]) -> tuple[float, float]:
    """Rounds a second in containers and in plain processes."""
    apart = project("--agents", "6", "--topology", "ring", "--set", f"run.rounds={MEASURED}", *STEADY)
    without_relay(apart)
    agents = [f"agent-{agent}" for agent in range(6)]
    apart.compose("up", "-d", *agents)
    apart.compose("up", "-d", "--no-deps", "orchestrator")
    in_containers = rate(apart.home(0), MEASURED)
    wait_for(lambda: apart.ended("orchestrator"))
    in_processes = apart.plain_processes(apart.folder / "plain", apart.state())
    print(f"{in_containers:.0f} rounds a second in containers, {in_processes:.0f} in processes")
    return in_containers, in_processes
