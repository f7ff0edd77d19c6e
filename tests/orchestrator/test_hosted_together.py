"""Hundreds of agents on two nodes, as real processes: a sparse matrix as graph, `[hosts]`, ranges, lists of agents."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from dpp2.node.cluster import Cluster
from tests.orchestrator.test_cluster_commands import ended, free_port

Call = Callable[..., Any]
AGENTS, ROUNDS = 400, 5
EXPERIMENT = f"""[run]
rounds = {ROUNDS}
telemetry = "none"
[network]
topology = "file"
path = "{{graph}}"
[problem]
name = "quadratic"
"""


class TwoHosts:
    """Their files, and the processes that were started; whatever is left at the end is killed."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self._environment, self._started = folder, environment, list[subprocess.Popen[str]]()
        self.cluster, self.certs = folder / "cluster.toml", folder / "certs"
        self.experiment, self.homes = folder / "experiment.toml", list[Path]()
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]

    def draw(self, names: np.ndarray[Any, Any]) -> None:
        """A ring with chords, whose agents have these names."""
        one = np.concatenate([names, names])
        other = np.concatenate([np.roll(names, 1), np.roll(names, 7)])
        links = csr_array((np.ones(len(one)), (one, other)), shape=(AGENTS, AGENTS))
        save_npz(self.folder / "graph.npz", links)
        self.experiment.write_text(EXPERIMENT.format(graph=self.folder / "graph.npz"))

    def files(self) -> list[object]:
        return ["--experiment", self.experiment, "--cluster", self.cluster]

    def node(self, agents: str, node: int) -> None:
        """`dpp2 node`, once it listens."""
        self.homes.append(self.folder / f"home-{node}")
        words = [
            "node",
            "--agents",
            agents,
            *self.files(),
            "--home",
            self.homes[-1],
            "--tls",
            self.certs / f"node-{node}",
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "dpp2.orchestrator", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
            start_new_session=True,
        )
        self._started.append(process)
        assert process.stdout is not None
        assert "listening" in json.loads(process.stdout.readline())

    def run(self, dpp2: Call) -> None:
        """From orchestrating to the bytes of an embedded run."""
        kept = ["--state", self.folder / "orchestrator.json", "--patience", "60"]
        driven = dpp2("orchestrate", *self.files(), "--tls", self.certs / "orchestrator", *kept)
        assert driven.code == 0, driven.err
        for process in self._started:
            assert ended(process) == ""
        merged, embedded = self.folder / "merged", self.folder / "embedded"
        collected = dpp2("collect", *self.homes, "--experiment", self.experiment, "--out", merged)
        assert collected.code == 0, collected.err
        assert dpp2("run", self.experiment, "--out", embedded).code == 0
        for name in ("observation.npz", "solution.npz"):
            assert (merged / name).read_bytes() == (embedded / name).read_bytes(), name

    def clean_up(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def hosts(tmp_path: Path, environment: dict[str, str]) -> Iterator[TwoHosts]:
    laid_out = TwoHosts(tmp_path, environment)
    yield laid_out
    laid_out.clean_up()


def test_ranges_of_agents(hosts: TwoHosts, dpp2: Call, quick_plot: None) -> None:
    hosts.draw(np.arange(AGENTS))
    first, second = hosts.addresses
    hosts.cluster.write_text(f'[hosts]\n"{first}" = "0-249"\n"{second}" = "250-{AGENTS - 1}"\n')
    assert dpp2("certs", "--cluster", hosts.cluster, "--out", hosts.certs).code == 0
    hosts.node("0-249", 0)
    hosts.node(f"250-{AGENTS - 1}", 250)
    hosts.run(dpp2)


def test_lists_of_scattered_agents(hosts: TwoHosts, dpp2: Call, quick_plot: None) -> None:
    """METIS finds the ring again, whose neighbours have names all over: neither node has a range of agents."""
    hosts.draw(np.random.default_rng(3).permutation(AGENTS))
    words = ("--hosts", ",".join(hosts.addresses), "--kind", "metis", "--out", hosts.cluster)
    parted = dpp2("partition", hosts.experiment, *words)
    assert parted.code == 0, parted.err
    assert dpp2("certs", "--cluster", hosts.cluster, "--out", hosts.certs).code == 0
    for node in Cluster.load(hosts.cluster).nodes():
        hosts.node(f"@{hosts.folder / f'cluster-{node}.agents'}", node)
    hosts.run(dpp2)
