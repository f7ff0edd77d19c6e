"""A cluster of node processes on this machine: started, restarted when one dies, and gone when this process is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from dpp2 import Experiment
from dpp2.graph_files import matrix_of
from dpp2.node.cluster import Cluster
from dpp2.node.keyring import folder_of_keys, key_files, write_key
from dpp2.node.ranges import ranges_text
from dpp2.node.tls import ORCHESTRATOR, Identity
from dpp2.orchestrator import certs
from dpp2.orchestrator.drive import Drive, DriveFailed, stop
from dpp2.orchestrator.processes import FORKS, Nursery, Running, Start, announced, by_itself, ended
from dpp2.prepared import PreparedRun
from dpp2.store.files import write_npz, write_text
from dpp2.topology import FromFile

_HOST = "127.0.0.1"
_DAYS = 30  # a run's own certificates, made for it and for nothing else
_LISTED_EDGES = 10_000  # that are written as text, if there are no more; a sparse matrix is read at once
_LONG = 4096  # characters in one argument
_MOST_RESTARTS = 50  # of one node: beyond that its death is no accident


class Tap(Protocol):
    """Somebody who listens between the nodes."""

    async def start(
        self, addresses: Mapping[int, str], links: Sequence[tuple[int, int]]
    ) -> Mapping[tuple[int, int], str]:
        """`addresses` of all agents, `links` between nodes; returns the addresses that take the place of some links."""

    async def stop(self) -> None: ...

    def finish(self, run: Path) -> object:
        """The run directory is complete: decode what was heard."""


class LocalCluster:
    """One process per group of agents, in folders below `folder`; `tls` gives each a certificate of its own."""

    def __init__(
        self,
        prepared: PreparedRun,
        folder: Path,
        groups: Sequence[Sequence[int]],
        *,
        ledger: Path,
        tls: bool = False,
        tap: Tap | None = None,
    ) -> None:
        self._prepared, self._folder, self._ledger = prepared, folder, ledger
        self._groups = {min(group): list(group) for group in groups}
        self._processes: dict[int, Running] = {}
        self._ports: dict[int, int] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._tls, self._tap = tls, tap
        self._identity: Identity | None = None
        self._experiment = folder / "experiment.toml"
        self._nursery: Nursery | None = None
        self._start_node: Start = by_itself
        self._stopping = False
        self.finished, self.diverged, self.round = False, False, 0

    async def run(self, progress: Callable[[Drive], None], *, window: int, stop_requested: Callable[[], bool]) -> None:
        """All rounds; ends with every node stopped, whatever happens. Returns early when a stop is requested."""
        run_id, digest = self._prepared.run_id, self._prepared.experiment.digest
        try:
            cluster = await self._start()
            drive = Drive(cluster, run_id, digest, window=window, identity=self._identity)
            work = asyncio.create_task(drive.run(progress))
            while not work.done() and not stop_requested():
                await asyncio.wait({work}, timeout=0.1)
                for keeper in self._keepers:
                    if keeper.done() and not self._stopping:
                        work.cancel()
                        keeper.result()  # why it gave up
            self.round, self.diverged = drive.round, drive.diverged
            if work.done():
                self._stopping = True
                await stop(cluster, run_id, self._identity)  # whether it went well or not
                work.result()
                self.finished = True
            else:
                work.cancel()
        finally:
            await self._end()

    async def _start(self) -> Cluster:
        self._write_files()
        if FORKS and len(self._groups) > 1:
            self._nursery = self._new_nursery()
            self._start_node = self._nursery.start
        await self._spawn_all()
        addresses = {a: f"{_HOST}:{self._ports[node]}" for node, group in self._groups.items() for a in group}
        links = await self._tap.start(addresses, self._links()) if self._tap else {}
        cluster = Cluster(addresses, links)
        write_text(self._folder / "cluster.toml", cluster.to_toml())
        self._keepers = [asyncio.create_task(self._keep(node)) for node in self._groups]
        return cluster

    async def _spawn_all(self) -> None:
        """Every node; if one does not start, nobody waits for the others."""
        spawning = [asyncio.create_task(self._spawn(node, port=0)) for node in self._groups]
        try:
            await asyncio.gather(*spawning)
        finally:
            for task in spawning:
                task.cancel()
            await asyncio.gather(*spawning, return_exceptions=True)

    def _new_nursery(self) -> Nursery:
        """An experiment that runs its owner's own Python is read in each node: nobody knows what that may start."""
        experiment = self._prepared.experiment
        own = experiment.problem.runs_own_code() or experiment.algorithm.runs_own_code()
        room = max(len(" ".join(self._words(node, port=65535))) for node in self._groups)
        return Nursery(None if own else self._experiment, room)

    def _links(self) -> list[tuple[int, int]]:
        """Edges between agents of different nodes: those that reach the wire."""
        host = {agent: node for node, group in self._groups.items() for agent in group}
        return [(i, j) for i, j in self._prepared.graph.edges.tolist() if host[i] != host[j]]

    def _write_files(self) -> None:
        """What each node reads: the experiment with its graph in a file, and the keys."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_text(self._experiment, for_nodes(self._prepared, self._folder).to_toml())
        if self._prepared.experiment.run.seed == "os":
            for path, key in self._keys().items():
                if not path.exists():
                    write_key(path, key)
        if self._tls:
            certs.make(self._folder / "certs", list(self._groups.values()), days=_DAYS)
            self._identity = Identity.load(self._folder / "certs" / "orchestrator", [ORCHESTRATOR])

    def _keys(self) -> dict[Path, bytes]:
        """The secrets of an unseeded run, each in its file."""
        secrets = self._prepared.secrets
        keys: dict[Path, bytes] = {}
        for node, group in self._groups.items():
            own = dict(zip(group, secrets.agent_keys(group), strict=True))
            keys |= key_files(folder_of_keys(self._home(node)), own)
        return keys | {self._folder / "eta.key": secrets.eta}

    def _home(self, node: int) -> Path:
        return self._folder / f"node-{node}"

    async def _spawn(self, node: int, port: int) -> None:
        """Start a node and wait until it listens; one that is killed on the way is started again."""
        for _ in range(_MOST_RESTARTS):
            process, said = await announced(self._start_node, self._words(node, port))
            self._processes[node] = process
            if said:
                self._ports[node] = int(json.loads(said)["listening"])
                return
            if await process.wait() > 0:  # it refused to start, and has said why
                raise DriveFailed(f"node {node} did not start (exit code {process.returncode}); its message is above")
        raise DriveFailed(f"node {node} was killed {_MOST_RESTARTS} times while starting")

    def _words(self, node: int, port: int) -> list[str]:
        """The command line of a node, after its name."""
        agents, home = self._agents(node), str(self._home(node))
        security = ["--tls", str(self._folder / "certs" / f"node-{node}")] if self._tls else ["--plaintext"]
        return [
            *("--agents", agents, "--home", home, "--listen", f"{_HOST}:{port}"),
            *("--experiment", str(self._experiment), "--cluster", str(self._folder / "cluster.toml")),
            *("--eta-key", str(self._folder / "eta.key"), "--ledger", str(self._ledger)),
            *("--telemetry", self._prepared.experiment.run.telemetry),
            "--trust-journal",  # nobody takes part but this user's own processes, none of which lies
            *security,
        ]

    def _agents(self, node: int) -> str:
        """As `--agents` takes them. Linux takes 128 KB in one argument, and other systems less."""
        if len(agents := ranges_text(self._groups[node])) <= _LONG:
            return agents
        path = self._folder / f"node-{node}.agents"
        write_text(path, agents)
        return f"@{path}"

    async def _keep(self, node: int) -> None:
        """Bring a node back whenever it dies; it resumes from its own checkpoint on the same port."""
        for _ in range(_MOST_RESTARTS):
            await self._processes[node].wait()
            if self._stopping:
                return
            await self._spawn(node, self._ports[node])
        raise DriveFailed(f"node {node} died {_MOST_RESTARTS} times")

    async def _end(self) -> None:
        self._stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(ended(process) for process in self._processes.values()))
        if self._nursery:
            await self._nursery.close()
        if self._tap:
            await self._tap.stop()


def for_nodes(prepared: PreparedRun, folder: Path) -> Experiment:
    """The same experiment, by digest, with its graph as a file: a node need not know how it was drawn."""
    experiment, graph = prepared.experiment, prepared.graph
    if len(graph.edges) > _LISTED_EDGES:
        path = folder / "graph.npz"
        write_npz(path, matrix_of(graph))
    else:
        path = folder / "graph.edges"
        write_text(path, "".join(f"{i} {j}\n" for i, j in graph.edges.tolist()))
    network = FromFile(path=str(path), agents=graph.agents, weights=experiment.network.weights)
    return replace(experiment, network=network)
