"""`docker-compose up` as a user calls it: agents, orchestrator, eavesdropper and audit in containers, to the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment
from tests.docker.containers import IMAGE, Project, command, needles

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

FIRST_ROUND_SECONDS = 20
IMAGE_MEGABYTES = 480  # beyond the base
NAMES = ("x_i hidden by tier one", "gradients hidden by tier one", "protection persists when noise → 0", "ε-DP of f_i")


@pytest.fixture(scope="module")
def plain(project: Callable[..., Project]) -> Project:
    whole = project()
    whole.up()
    return whole


@pytest.fixture(scope="module")
def laid_over(plain: Project) -> Callable[[str], Project]:
    """The same project, the same keys, with an override on top."""

    def up(override: str) -> Project:
        plain.files = ["docker-compose.yml", f"deploy/{override}.yml"]
        plain.up()
        return plain

    return up


def audited(project: Project, run: str) -> dict[str, Any]:
    assert project.inspect("audit")["State"]["ExitCode"] == 0
    return dict(json.loads((project.folder / "runs" / run / "audit.json").read_text()))


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {one["claim"]: one["outcome"] for one in report["verdicts"]}


def same_observation(run: Path) -> None:
    """What was decoded from the wire is what the agents say they have sent, to the bit."""
    with np.load(run / "tap" / "observation.npz") as overheard, np.load(run / "observation.npz") as sent:
        for phase in ("y", "z"):
            assert overheard[phase].tobytes() == sent[phase].tobytes()
    assert json.loads((run / "tap" / "decode.json").read_text())["gaps"] == []


def when(moment: str) -> datetime:
    return datetime.fromisoformat(moment[:26].rstrip("Z"))


def test_everything_ends_by_itself_and_the_audit_judges_what_the_relay_heard(plain: Project) -> None:
    report = audited(plain, "compose")
    assert {service: plain.inspect(service)["State"]["ExitCode"] for service in plain.services()} == dict.fromkeys(
        plain.services(), 0
    )
    same_observation(plain.folder / "runs" / "compose")
    assert verdicts(report) == dict(zip(NAMES, (*["did not hold"] * 3, "in name only"), strict=True))
    assert (plain.folder / "runs" / "compose" / "report.html").stat().st_size > 10_000
    assert not plain.state().exists(), "the next `up` would go on with this run"


def test_all_rounds_are_over_before_the_first_was_due(plain: Project) -> None:
    begun = min(when(plain.inspect(service)["Created"]) for service in plain.services())
    ended = when(plain.inspect("orchestrator")["State"]["FinishedAt"])
    assert (ended - begun).total_seconds() < FIRST_ROUND_SECONDS


def test_nobody_is_root_and_nobody_writes_outside_what_was_mounted(plain: Project) -> None:
    for service in plain.services():
        facts = plain.inspect(service)
        assert facts["Config"]["User"].split(":")[0] not in ("", "0", "root"), service
        assert facts["HostConfig"]["ReadonlyRootfs"], service
        assert facts["HostConfig"]["CapDrop"] == ["ALL"], service
        assert not facts["HostConfig"]["CapAdd"], service


def test_secrets_show_up_neither_in_descriptions_nor_in_logs_nor_on_the_wire(plain: Project) -> None:
    seen = {f"inspect {name}": json.dumps(plain.inspect(name)).encode() for name in plain.services()}
    seen |= {
        "logs": plain.compose("logs", "--no-color").encode(),
        "image": command("docker", "inspect", IMAGE).encode(),
    }
    seen |= {path.name: path.read_bytes() for path in (plain.folder / "runs" / "compose" / "tap").glob("*.tap")}
    assert any(name.endswith(".tap") and len(content) > 300_000 for name, content in seen.items())  # 150 rounds
    for secret, forms in needles(plain.folder / "secrets").items():
        for place, content in seen.items():
            assert not any(form in content for form in forms), f"{secret} in {place}"


def test_each_agent_is_given_its_own_data_and_key_and_nobody_elses(plain: Project) -> None:
    for service in plain.services():
        mounted = {Path(mount["Destination"]).name for mount in plain.inspect(service)["Mounts"]}
        secret = {name for name in mounted if name.endswith((".key", ".npz"))}
        if service.startswith("agent-"):
            assert secret == {"eta.key", f"{service}.key", f"{service}.npz"}
        elif service == "audit":
            assert not any(name.endswith(".key") for name in secret)
        else:
            assert not secret, service


def test_the_image_holds_no_build_tools_and_stays_small(image: str) -> None:
    size, base = (int(command("docker", "image", "inspect", "-f", "{{.Size}}", name)) for name in (IMAGE, image))
    assert size - base < IMAGE_MEGABYTES * 10**6
    listing = command("docker", "run", "--rm", "--entrypoint", "ls", IMAGE, "/opt/dpp2/lib/python3.11/site-packages")
    assert "grpc" in listing.split()
    assert not {"pip", "setuptools", "sklearn", "dp_accounting", "dask", "pytest"} & set(listing.split())


def test_with_tls_the_attacks_have_nothing_to_work_on(laid_over: Callable[[str], Project]) -> None:
    encrypted = laid_over("tls")
    report, tap = audited(encrypted, "tls"), encrypted.folder / "runs" / "tls" / "tap"
    assert report["attacks"] == []
    assert verdicts(report) == dict(zip(NAMES, (*["not judged"] * 3, "in name only"), strict=True))
    assert not (tap / "observation.npz").exists()
    assert json.loads((tap / "ciphertext.json").read_text())["rounds_estimate"] > 0
    captured = b"".join(path.read_bytes() for path in tap.glob("*.tap"))
    sent = np.load(tap.parent / "observation.npz")["y"]
    assert sent[3, 2].tobytes() not in captured


def test_a_passive_sniffer_hears_the_same_and_is_the_only_root(laid_over: Callable[[str], Project]) -> None:
    sniffed = laid_over("sniffer")
    report = audited(sniffed, "sniffed")
    same_observation(sniffed.folder / "runs" / "sniffed")
    assert verdicts(report)[NAMES[0]] == "did not hold"
    root = {name for name in sniffed.services() if sniffed.inspect(name)["Config"]["User"].startswith("0:")}
    assert root == {"eavesdropper"}
    rights = sniffed.inspect("eavesdropper")["HostConfig"]
    assert (rights["CapDrop"], rights["CapAdd"]) == (["ALL"], ["NET_RAW"])
    assert rights["ReadonlyRootfs"]


def test_damping_is_another_run_of_the_same_agents(laid_over: Callable[[str], Project]) -> None:
    damped = laid_over("damping")
    audited(damped, "damped")
    run = damped.folder / "runs" / "damped"
    assert Experiment.load(run / "experiment.toml").algorithm.table()["damping"] == 1.0
    same_observation(run)


def test_another_size_on_another_graph(project: Callable[..., Project]) -> None:
    star = project("--agents", "9", "--topology", "star", "--set", "run.rounds=60")
    star.up()
    audited(star, "compose")
    same_observation(star.folder / "runs" / "compose")
