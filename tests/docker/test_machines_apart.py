"""Three machines with two agents each: network namespaces with addresses of their own, joined by a bridge in a fourth.

What they compute together is what an embedded run of the same experiment computes, bit for bit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docker.containers import COMPARED, ROOT, command, dpp2
from tests.needed import not_here

pytestmark = pytest.mark.netns

HOSTS = {"10.77.0.1": (0, 1), "10.77.0.2": (2, 3), "10.77.0.3": (4, 5)}
EXPERIMENT = """[run]
rounds = 60
seed = 3
[network]
topology = "ring"
agents = 6
[problem]
name = "logistic"
samples = 20
"""


@dataclass
class Machines:
    """Namespaces, and processes in them; whatever is left at the end is killed."""

    folder: Path
    prefix: str = field(default_factory=lambda: f"dpp2-{os.getpid()}")
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def build(self) -> None:
        """The switch is a namespace as well: nothing of this touches the network of the machine."""
        command("ip", "netns", "add", self.name("switch"))
        self.within("switch", "ip", "link", "add", "br0", "type", "bridge")
        self.within("switch", "ip", "link", "set", "br0", "up")
        for n, address in enumerate([*HOSTS, "10.77.0.9"]):
            host, port = self.name(address), f"port{n}"
            command("ip", "netns", "add", host)
            self.within("switch", "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            self.within("switch", "ip", "link", "set", port, "master", "br0", "up")
            self.within(address, "ip", "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self.within(address, "ip", "link", "set", device, "up")

    def name(self, host: str) -> str:
        return f"{self.prefix}-{host}"

    def within(self, host: str, *words: object) -> str:
        return command("ip", "netns", "exec", self.name(host), *words, PYTHONPATH=str(ROOT))

    def start(self, host: str, *words: object) -> None:
        line = ("ip", "netns", "exec", self.name(host), sys.executable, "-m", "dpp2.orchestrator", *words)
        self.running.append(subprocess.Popen([str(word) for word in line], cwd=ROOT, text=True))

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        for host in ("switch", *HOSTS, "10.77.0.9"):
            subprocess.run(["ip", "netns", "delete", self.name(host)], check=False, capture_output=True)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if os.getuid() or not shutil.which("ip"):
        not_here("network namespaces take root and the package iproute2")
    made = Machines(tmp_path)
    try:
        made.build()
        yield made
    finally:
        made.end()


def test_three_machines_over_tls_equal_the_embedded_run(machines: Machines, tmp_path: Path) -> None:
    cluster, experiment, certs = tmp_path / "cluster.toml", tmp_path / "experiment.toml", tmp_path / "certs"
    agents = {agent: f"{host}:7000" for host, hosted in HOSTS.items() for agent in hosted}
    cluster.write_text("[agents]\n" + "".join(f'{agent} = "{address}"\n' for agent, address in agents.items()))
    experiment.write_text(EXPERIMENT)
    files = ("--cluster", cluster, "--experiment", experiment)
    dpp2("certs", "--cluster", cluster, "--out", certs)
    homes = [tmp_path / f"home-{hosted[0]}" for hosted in HOSTS.values()]
    for home, (host, hosted) in zip(homes, HOSTS.items(), strict=True):
        own = ("--home", home, "--listen", f"{host}:7000", "--tls", certs / f"node-{hosted[0]}", "--telemetry", "full")
        machines.start(host, "node", "--agents", ",".join(map(str, hosted)), *files, *own)
    python = (sys.executable, "-m", "dpp2.orchestrator")
    said = machines.within("10.77.0.9", *python, "orchestrate", *files, "--tls", certs / "orchestrator", "--json")
    assert '"rounds": 60' in said
    assert [process.wait(30) for process in machines.running] == [0, 0, 0]
    exports = [home.with_suffix(".zip") for home in homes]
    for home, file in zip(homes, exports, strict=True):
        dpp2("export", home, "--experiment", experiment, "--out", file)
    dpp2("collect", *exports, "--experiment", experiment, "--out", tmp_path / "apart")
    dpp2("run", experiment, "--out", tmp_path / "embedded")
    for name in COMPARED:
        assert (tmp_path / "apart" / name).read_bytes() == (tmp_path / "embedded" / name).read_bytes(), name
