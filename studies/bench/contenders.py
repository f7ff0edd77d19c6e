"""What `dpp2 bench network` compares, as processes that take turns: real nodes, bare streams, DISROPT."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import numpy as np

from dpp2.node.cluster import Cluster
from dpp2.node.codec import encode
from dpp2.node.limits import CHANNEL_OPTIONS, CHECKPOINT_EVERY
from dpp2.node.process import SETTINGS
from dpp2.node.tls import ORCHESTRATOR, Identity, node_name, open_channel
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc
from dpp2.orchestrator import certs
from dpp2.orchestrator.local import Tap, for_nodes
from dpp2.orchestrator.transports.base import RunFailed
from dpp2.prepared import PreparedRun
from dpp2.store.files import write_text

REPETITIONS = 5

Groups = Sequence[Sequence[Sequence[int]]]  # processes of nodes of agents


class Side(Protocol):
    """One of the things that are compared: it runs blocks of rounds and says how long they took."""

    async def block(self, rounds: int) -> float: ...


class Process:
    """A child that is spoken to in lines."""

    def __init__(self, child: asyncio.subprocess.Process, name: str) -> None:
        self._child, self._name = child, name

    @classmethod
    async def start(cls, *command: str, **environment: str) -> Process:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=os.environ | environment)
        return cls(child, " ".join(command))

    @classmethod
    async def module(cls, name: str, settings: Mapping[str, Any], environment: Mapping[str, str]) -> Process:
        """A module of this package, which reads its settings from its first line."""
        process = await cls.start(sys.executable, "-m", f"dpp2.studies.bench.{name}", **environment)
        process.say(json.dumps(settings))
        return process

    def say(self, line: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n".encode())

    async def hear(self) -> Any:
        assert self._child.stdout is not None
        line = await self._child.stdout.readline()
        if not line:
            raise RunFailed(f"a process of the benchmark ended before it answered: {self._name}")
        return json.loads(line)

    async def ask(self, line: str) -> Any:
        self.say(line)
        return await self.hear()

    async def end(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            await asyncio.wait_for(self._child.wait(), 10)
        except TimeoutError:
            self._child.kill()
            await self._child.wait()


class Lines:
    """Processes that are told how many rounds to run, and answer how long they took: bare streams, DISROPT."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes

    async def block(self, rounds: int) -> float:
        return float(max(await asyncio.gather(*(process.ask(str(rounds)) for process in self._processes))))


@asynccontextmanager
async def bare(prepared: PreparedRun, groups: Groups, *, tuned: bool = True) -> Any:
    """Agents of one process share it here as their nodes do there; each keeps its own streams.

    Tuned: with the same settings of gRPC and Python as nodes have, which make streams faster, too.
    """
    graph, frame = prepared.graph, frame_bytes(prepared)
    neighbours = {agent: [int(j) for j in graph.neighbours(agent)] for agent in range(graph.agents)}
    shared = {"neighbours": neighbours, "bytes": frame, "tuned": tuned}
    agents = [[agent for node in process for agent in node] for process in groups]
    environment = SETTINGS if tuned else SETTINGS | {"GRPC_EXPERIMENTS": ""}
    processes = await asyncio.gather(
        *(Process.module("bare", {**shared, "agents": own}, environment) for own in agents)
    )
    try:
        ports: dict[str, int] = {}
        for process in processes:
            ports |= await process.hear()
        for process in processes:
            process.say(json.dumps(ports))
        yield Lines(processes)
    finally:
        await asyncio.gather(*(process.end() for process in processes))


@dataclass(frozen=True)
class Used:
    resident: float  # bytes of memory, now
    cpu: float  # seconds, so far


class Nodes:
    """Real nodes, driven as an orchestrator drives them."""

    def __init__(self, controls: Sequence[Any], run: str, processes: Sequence[Process]) -> None:
        self._run, self._processes = run, processes
        self._controls = controls
        self._watches = [control.Watch(wire_pb2.WatchRequest(run=run)) for control in controls]
        self.rounds = 0

    async def block(self, rounds: int) -> float:
        began = asyncio.get_running_loop().time()
        await self.release(rounds)
        await asyncio.gather(*(self._reach(watch) for watch in self._watches))
        return asyncio.get_running_loop().time() - began

    async def release(self, rounds: int) -> None:
        """Credit for so many more."""
        self.rounds += rounds
        request = wire_pb2.ReleaseRequest(run=self._run, until=self.rounds)
        await asyncio.gather(*(control.Release(request) for control in self._controls))

    async def _reach(self, watch: Any) -> None:
        async for report in watch:
            if report.failure:
                raise RuntimeError(report.failure)
            if report.round >= self.rounds:
                return

    async def used(self) -> list[Used]:
        """By each process."""
        return [Used(**used) for used in await asyncio.gather(*(p.ask("?") for p in self._processes))]

    def cancel(self) -> None:
        for watch in self._watches:
            watch.cancel()


@asynccontextmanager
async def nodes(
    prepared: PreparedRun, groups: Groups, *, tls: bool = False, every: int = CHECKPOINT_EVERY, tap: Tap | None = None
) -> Any:
    """One process per element of `groups`, with a node per element of that, which hosts its agents."""
    flat = [node for process in groups for node in process]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dpp2-bench-")))
        certificates = folder / "certs" if tls else None
        if certificates:
            certs.make(certificates, flat, days=1)
        processes, ports = await workers(stack, prepared, groups, folder, certificates, every)
        addresses = {agent: f"127.0.0.1:{ports[str(node[0])]}" for node in flat for agent in node}
        links: Mapping[tuple[int, int], str] = {}
        if tap:
            links = await tap.start(addresses, [(i, j) for i, j in prepared.graph.edges.tolist()])
            stack.push_async_callback(tap.stop)
        write_text(folder / "cluster.toml", Cluster(addresses, links).to_toml())
        identity = Identity.load(certificates / "orchestrator", [ORCHESTRATOR]) if certificates else None
        channels = [open_channel(identity, addresses[node[0]], node_name(node), CHANNEL_OPTIONS) for node in flat]
        controls = [wire_pb2_grpc.ControlStub(await stack.enter_async_context(channel)) for channel in channels]
        request = wire_pb2.PrepareRequest(run=prepared.run_id, digest=prepared.experiment.digest)
        hosted = iter(controls)
        await asyncio.gather(*(_prepare([next(hosted) for _ in process], request) for process in groups))
        side = Nodes(controls, prepared.run_id, processes)
        stack.callback(side.cancel)
        yield side


async def _prepare(controls: Sequence[Any], request: Any) -> None:
    """The nodes of one process, one by one: each waits for its files, and meanwhile the others hear no calls."""
    for control in controls:
        await control.Prepare(request)


async def workers(
    stack: AsyncExitStack, prepared: PreparedRun, groups: Groups, folder: Path, certificates: Path | None, every: int
) -> tuple[list[Process], dict[str, int]]:
    """The processes, which end with the stack, and the ports that their nodes listen on."""
    write_text(folder / "experiment.toml", for_nodes(prepared, folder).to_toml())
    shared = {"experiment": str(folder / "experiment.toml"), "cluster": str(folder / "cluster.toml")}
    shared |= {"home": str(folder), "tls": str(certificates or "")}
    settings = [{**shared, "groups": process, "every": every} for process in groups]
    processes = await asyncio.gather(*(Process.module("worker", one, SETTINGS) for one in settings))
    ports: dict[str, int] = {}
    for process in processes:  # all of them before the first is waited for, which may take too long
        stack.push_async_callback(process.end)
    for process in processes:
        ports |= await process.hear()
    return processes, ports


@asynccontextmanager
async def disropt(prepared: PreparedRun, python: str) -> Any:
    """The same network under DISROPT, a process per agent."""
    script = Path(__file__).with_name("mpi.py")
    agents = prepared.graph.agents
    with tempfile.TemporaryDirectory(prefix="dpp2-bench-") as folder:
        edges = Path(folder) / "graph.edges"
        write_text(edges, "".join(f"{i} {j}\n" for i, j in prepared.graph.edges))
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        command = (*_mpirun(), "-n", str(agents), python, str(script), str(edges))
        process = await Process.start(*command, OMP_NUM_THREADS="1", **as_root)
        try:
            yield Lines([process])
        finally:
            await process.end()


def _mpirun() -> tuple[str, ...]:
    """Open MPI has to be told that there are more processes than cores; others do not know the word."""
    said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    return ("mpirun", "--oversubscribe") if "Open MPI" in said else ("mpirun",)


def has_disropt(python: str) -> bool:
    """Whether DISROPT can be run with this Python."""
    found = shutil.which("mpirun") and shutil.which(python)
    return bool(found) and subprocess.run([python, "-c", "import disropt"], capture_output=True).returncode == 0


def frame_bytes(prepared: PreparedRun) -> int:
    """As long as a frame of one agent is."""
    rows = np.ones((1, prepared.objective([0]).dimension))
    return len(encode(prepared.run_id, 1000, prepared.experiment.algorithm.phases[0], [1], rows))


async def taking_turns(sides: Mapping[str, Side], rounds: Mapping[str, int]) -> dict[str, float]:
    """Median rounds per second of each."""
    for name, side in sides.items():
        await side.block(max(2, rounds[name] // 5))
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(REPETITIONS):
        for name, side in sides.items():
            rates[name].append(rounds[name] / await side.block(rounds[name]))
    return {name: median(values) for name, values in rates.items()}


def separately(agents: int, processes: int) -> Groups:
    """A node for every agent, spread over processes."""
    bounds = [agents * n // processes for n in range(processes + 1)]
    return [[[a] for a in range(low, high)] for low, high in pairwise(bounds)]


def together(agents: int, processes: int) -> Groups:
    """One node in each process, with its share of the agents."""
    return [[[agent for node in process for agent in node]] for process in separately(agents, processes)]
