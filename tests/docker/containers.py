"""A Compose project in a folder of its own, and the same agents as plain processes beside it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dpp2 import Experiment
from dpp2.node.cluster import Cluster
from dpp2.node.disk import RealDisk
from dpp2.node.journal import journal_entries
from dpp2.node.sealed import read_facts, write_facts

ROOT = Path(__file__).parents[2]
IMAGE = "dpp2:test"
COMPARED = ("observation.npz", "truth.npz", "solution.npz")
_PHASES = len(Experiment.load().algorithm.phases)


def command(*words: object, cwd: Path | None = None, timeout: float = 240, **more: str) -> str:
    """What it printed; one that fails is a failed test."""
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        timeout=timeout,
        capture_output=True,
        text=True,
        env={**os.environ, **more},
    )
    assert ended.returncode == 0, f"{words}: {ended.stdout[-3000:]}{ended.stderr[-3000:]}"
    return ended.stdout


def dpp2(*words: object, cwd: Path | None = None) -> str:
    return command(sys.executable, "-m", "dpp2.orchestrator", *words, cwd=cwd, PYTHONPATH=str(ROOT))


def wait_for(what: Callable[[], Any], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


class Project:
    """Without options, the files that lie in the repository; with options, those that `dpp2 compose` writes."""

    def __init__(self, folder: Path, options: Sequence[str] = (), number: int = 0) -> None:
        self.folder, self.files = folder, ["docker-compose.yml"]
        self._environment = {
            "COMPOSE_PROJECT_NAME": f"dpp2test{os.getpid()}x{number}",
            "DPP2_IMAGE": IMAGE,
            "DPP2_BRIDGE": f"dpp2t{os.getpid() % 10**6}x{number}",
        }
        if options:
            (folder / "docker-compose.yml").write_text(dpp2("compose", "--files", "deploy/it", *options, cwd=folder))
            self.public = folder / "deploy" / "it"
        else:
            shutil.copy(ROOT / "docker-compose.yml", folder)
            shutil.copytree(ROOT / "deploy", folder / "deploy")
            self.public = folder / "deploy" / "ring-6"
        self.agents = len(Cluster.load(self.public / "cluster.toml").addresses)
        keys = (sys.executable, ROOT / "tools" / "keys.py", "--agents", self.agents)
        command(*keys, cwd=folder, PYTHONPATH=str(ROOT))

    def compose(self, *words: object, timeout: float = 240) -> str:
        files = [word for file in self.files for word in ("-f", file)]
        return command("docker-compose", *files, *words, cwd=self.folder, timeout=timeout, **self._environment)

    def up(self) -> None:
        """As a user calls it: until every container has ended."""
        self.compose("up", "--no-color")

    def down(self) -> None:
        self.compose("down", "--volumes", "--timeout", "2")

    def container(self, service: str) -> str:
        return self.compose("ps", "-q", service).strip()

    def inspect(self, service: str) -> dict[str, Any]:
        (found,) = json.loads(command("docker", "inspect", self.container(service)))
        return dict(found)

    def ended(self, service: str) -> bool:
        return bool(self.inspect(service)["State"]["Status"] == "exited")

    def services(self) -> list[str]:
        """Those that `up` starts: the page is behind a profile."""
        written = yaml.safe_load((self.folder / "docker-compose.yml").read_text())["services"]
        return [
            name for name in self.compose("config", "--services").split() if "profiles" not in written.get(name, {})
        ]

    def home(self, agent: int) -> Path:
        return self.folder / "runs" / "nodes" / f"agent-{agent}"

    def state(self) -> Path:
        return self.folder / "runs" / "nodes" / "orchestrator" / "orchestrator.json"

    def rounds(self, agent: int) -> int:
        return rounds_of(self.home(agent))

    def collect(self, homes: Sequence[Path], out: str) -> dict[str, str]:
        """The records of a run, whoever ran it, as `dpp2 collect` merges them: a digest of each file."""
        dpp2("collect", *homes, "--out", self.folder / out, "--experiment", self.local_experiment())
        paths = [self.folder / out / name for name in COMPARED]
        return {path.name: sha256(path.read_bytes()).hexdigest() for path in paths if path.exists()}

    def local_experiment(self) -> Path:
        """The same experiment, by digest, with the data where this machine has them."""
        path = self.public / "experiment-local.toml"
        text = (self.public / "experiment.toml").read_text()
        path.write_text(text.replace("/run/secrets", str(self.folder / "secrets")))
        assert (
            Experiment.load(path).resolve().digest == Experiment.load(self.public / "experiment.toml").resolve().digest
        )
        return path

    def homes(self, below: Path) -> list[Path]:
        return [below / f"agent-{agent}" for agent in range(self.agents)]

    def plain_processes(
        self, homes: Path, state_of: Path, telemetry: str = "full", nonces_of: Sequence[Path] = ()
    ) -> float:
        """The same run, by keys, data and run id, undisturbed in processes on this machine; returns rounds a second.

        Its noise is the same only with the nonces that the nodes of these homes drew.
        """
        homes.mkdir()
        for theirs, ours in zip(nonces_of, self.homes(homes), strict=False):
            _give_nonce(theirs, ours)
        state = homes / "orchestrator.json"
        shutil.copy(state_of, state)
        ports = _free_ports(self.agents)
        cluster = homes / "cluster.toml"
        cluster.write_text(Cluster({a: f"127.0.0.1:{port}" for a, port in enumerate(ports)}, {}).to_toml())
        files = ("--cluster", cluster, "--experiment", self.local_experiment(), "--plaintext")
        keys = ("--keys", self.folder / "secrets", "--eta-key", self.folder / "secrets" / "eta.key")
        words = [
            (*files, *keys, "--telemetry", telemetry, "--agents", a, "--listen", f"127.0.0.1:{port}")
            for a, port in enumerate(ports)
        ]
        node = (sys.executable, "-m", "dpp2.orchestrator", "node")
        nodes = [
            subprocess.Popen([str(w) for w in (*node, *own, "--home", homes / f"agent-{a}")], cwd=ROOT)
            for a, own in enumerate(words)
        ]
        orchestrate = (sys.executable, "-m", "dpp2.orchestrator", "orchestrate", *files, "--state", state)
        conductor = subprocess.Popen([str(word) for word in orchestrate], cwd=ROOT)
        try:
            return rate(homes / "agent-0", Experiment.load(self.local_experiment()).run.rounds)
        finally:
            for process in (conductor, *nodes):
                process.wait(60)


def _give_nonce(theirs: Path, ours: Path) -> None:
    """A home in which their run stands before its first round, with their nonce."""
    (run,) = (theirs / "runs").iterdir()
    folder = ours / "runs" / run.name
    folder.mkdir(parents=True, mode=0o700)
    once, facts = (read_facts(RealDisk(run), name) for name in ("run.json", "node.json"))
    assert once is not None
    assert facts is not None
    unsent = {"released": 0, "uncovered": None, "ended": None, "entries": 0}
    write_facts(RealDisk(folder), "node.json", facts | unsent)
    write_facts(RealDisk(folder), "run.json", once)


def rate(home: Path, rounds: int) -> float:
    """Rounds a second of a run that has yet to begin, from its first to its last tenth, by what a node writes down."""
    wait_for(lambda: rounds_of(home) >= rounds // 10)
    since, begun = time.monotonic(), rounds_of(home)
    wait_for(lambda: rounds_of(home) >= rounds - rounds // 10)
    return (rounds_of(home) - begun) / (time.monotonic() - since)


def rounds_of(home: Path) -> int:
    """Rounds of its longest run of which everything has left; a journal is on disk before anything leaves."""
    journals = [path.read_bytes() for path in home.glob("runs/*/journal.bin")]
    return max((sum(1 for _ in journal_entries(one)) for one in journals), default=0) // _PHASES


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def needles(folder: Path) -> dict[str, list[bytes]]:
    """What must turn up nowhere, by secret file: keys as text and as bytes, and one record of each agent's data."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(folder.glob("*.key")):
        found[path.name] = [path.read_bytes(), bytes.fromhex(path.read_text())]
    for path in sorted(folder.glob("*.npz")):
        found[path.name] = [np.load(path)["features"][7].tobytes()]
    for path in sorted(folder.glob("certs/*/key.pem")):
        found[str(path)] = [path.read_bytes().splitlines()[1]]
    return found
