"""Runs an experiment into a run directory: progress, checkpoints, interruption, resume."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from dpp2 import BadInput, Experiment, Result, Simulation
from dpp2.prepared import Secrets
from orchestrator import plots
from store.files import write_text
from store.ledgers import LedgerFile
from store.rundir import RunDirectory, free_name

if TYPE_CHECKING:
    from orchestrator.local import Tap

_LOOK_SECONDS = 0.1  # how often progress is shown and Ctrl-C noticed
_CHECKPOINT_SECONDS = 2.0

Progress = Callable[[int, int, str], None]  # (rounds done, of how many, a note)


class Interrupted(Exception):
    """The user stopped the run; everything up to round k is safe in the run directory."""

    def __init__(self, path: Path, k: int) -> None:
        self.path, self.k = path, k
        go_on = f"dpp2 run --resume {shlex.quote(str(path))}"
        super().__init__(f"stopped after {k} rounds; `{go_on}` goes on from there")


class RunFailed(Exception):
    """A run could not go on; what was done before is safe in the run directory."""


_WINDOW = 512  # rounds of credit, unless they are run one by one


@dataclass(frozen=True)
class ClusterShape:
    """How a run over gRPC is laid out on this machine."""

    processes: int | None = None  # None: one per agent
    strict: bool = False  # one round at a time
    tls: bool = False  # every node with a certificate of its own
    tap: Callable[[Path], Tap] | None = None  # who listens between the nodes, and keeps it in this folder

    def check(self, experiment: Experiment) -> None:
        """Refuse what would be ignored, or could not be done, before anything is made."""
        asked = {"--processes": self.processes, "--strict": self.strict, "--tls": self.tls, "--tap": self.tap}
        for option, value in asked.items():
            if value and experiment.run.transport != "grpc":
                raise BadInput(option, value if option == "--processes" else "on", "--transport grpc beside it")
        if self.tap and min(self.processes or 2, experiment.network.agents) < 2:
            raise BadInput("--tap", "on", "at least two processes: within one, nothing reaches the wire")

    def groups(self, agents: int, kept: Path) -> list[list[int]]:
        """Agents in consecutive groups of nearly equal size, one per process; a resumed run keeps those it had."""
        before: list[list[int]] = json.loads(kept.read_text()) if kept.is_file() else []
        count = min(self.processes or len(before) or agents, agents)
        if before and count != len(before):
            raise BadInput("--processes", count, f"{len(before)}, as when the run began")
        bounds = [agents * n // count for n in range(count + 1)]
        groups = [list(range(low, high)) for low, high in pairwise(bounds)]
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, json.dumps(groups))
        return groups


@dataclass(frozen=True)
class Finished:
    """A run and where it was written."""

    directory: RunDirectory
    result: Result


def start(
    experiment: Experiment,
    out: Path | None,
    *,
    stem: str,
    force: bool,
    progress: Progress,
    cluster: ClusterShape | None = None,
) -> Finished:
    """Run from round 0. The experiment is checked in full before a directory is touched."""
    if cluster:
        cluster.check(experiment)
    simulation = _simulation(experiment)
    directory = RunDirectory.create(out or free_name(Path("runs"), stem), force=force)
    return _charged(simulation, directory, progress, cluster or ClusterShape())


def resume(path: Path, overrides: list[str], progress: Progress, cluster: ClusterShape | None = None) -> Finished:
    """Go on where an interrupted run stopped, or longer than a finished one went (`run.rounds`)."""
    directory = RunDirectory.open(path)
    for override in overrides:
        if override.partition("=")[0].strip() not in ("run.rounds", "privacy.budget"):
            raise BadInput("--set", override, "run.rounds=K or privacy.budget=E: no more may change in a resumed run")
    experiment = Experiment.load(path / "experiment.toml", overrides)
    if cluster:
        cluster.check(experiment)
    simulation = _simulation(experiment, directory.secrets(experiment))
    directory.restore(simulation)
    return _charged(simulation, directory, progress, cluster or ClusterShape())


def _charged(simulation: Simulation, directory: RunDirectory, progress: Progress, cluster: ClusterShape) -> Finished:
    """Charge before the first round, settle after the last; only a kill leaves the charge standing.

    Nodes keep their own account of what they send, in the same ledger, so a run over gRPC is only told how far it goes.
    """
    ledgers, over_grpc = LedgerFile(directory.ledger), simulation.experiment.run.transport == "grpc"
    try:
        (ledgers.consult if over_grpc else ledgers.reserve)(simulation)
    except BadInput:
        directory.discard()
        raise
    try:
        directory.begin(simulation)
        return _go_on(simulation, directory, progress, cluster)
    finally:
        if not over_grpc:
            ledgers.settle(simulation)


def _simulation(experiment: Experiment, secrets: Secrets | None = None) -> Simulation:
    try:
        return Simulation(experiment, secrets=secrets)
    except MemoryError as error:
        wanted = f"rounds, agents and dimension whose records fit in memory ({error})"
        raise BadInput("run.rounds", experiment.run.rounds, wanted) from None


def _go_on(simulation: Simulation, directory: RunDirectory, progress: Progress, cluster: ClusterShape) -> Finished:
    if simulation.experiment.run.transport == "grpc":
        _over_grpc(simulation, directory, progress, cluster)
    else:
        _embedded(simulation, directory, progress)
    result = simulation.result()
    directory.finish(simulation, result)
    plots.convergence(result, directory.path / "convergence.png")
    plots.epsilon(simulation.account, result.rounds, directory.path / "epsilon.png")
    return Finished(directory, result)


def _over_grpc(simulation: Simulation, directory: RunDirectory, progress: Progress, cluster: ClusterShape) -> None:
    """Every round at node processes of this machine; their records are merged when they have ended."""
    from node.server import run_folder
    from orchestrator.local import LocalCluster  # grpc takes its time to load, and embedded runs need none of it
    from orchestrator.merge import load_node_records

    nodes = directory.path / "nodes"
    groups = cluster.groups(simulation.prepared.graph.agents, nodes / "groups.json")
    tls = cluster.tls or (nodes / "certs").exists()  # a run that began with TLS goes on with it
    tap = cluster.tap(directory.path / "tap") if cluster.tap else None
    local = LocalCluster(simulation, nodes, groups, ledger=directory.ledger, tls=tls, tap=tap)
    began, rounds = time.perf_counter(), simulation.allowance.rounds
    with _stop_requests() as stop_requested:
        window = 1 if cluster.strict else _WINDOW
        _run_cluster(
            local.run(
                lambda drive: progress(drive.round, rounds, _late(drive.late())),
                window=window,
                stop_requested=stop_requested,
            )
        )
        if not local.finished:
            raise Interrupted(directory.path, local.round)
    folders = [run_folder(nodes / f"node-{min(group)}", simulation.run_id) for group in groups]
    load_node_records(simulation, folders, diverged=local.diverged)
    if tap:
        tap.finish(directory.path)
    simulation.seconds += time.perf_counter() - began


def _run_cluster(work: Coroutine[Any, Any, None]) -> None:
    from orchestrator.drive import DriveFailed

    try:
        asyncio.run(work)
    except DriveFailed as failure:
        raise RunFailed(str(failure)) from None


def _embedded(simulation: Simulation, directory: RunDirectory, progress: Progress) -> None:
    saved, saved_at, chunk = simulation.k, time.monotonic(), 1
    with _stop_requests() as stop_requested:
        while simulation.remaining:
            began = time.monotonic()
            try:
                simulation.advance(chunk)
            except BadInput as failure:
                directory.save(simulation, saved)
                raise RunFailed(f"round {simulation.k} failed: {failure}") from failure
            now = time.monotonic()
            chunk = max(1, int(chunk * _LOOK_SECONDS / max(now - began, 1e-6))) if now > began else chunk
            progress(simulation.k, simulation.allowance.rounds, f"gap {simulation.gap:.2e}")
            if now - saved_at > _CHECKPOINT_SECONDS or stop_requested():
                directory.save(simulation, saved)
                saved, saved_at = simulation.k, now
            if stop_requested() and simulation.remaining:
                raise Interrupted(directory.path, simulation.k)


def _late(agents: list[int]) -> str:
    return f"waiting for {', '.join(map(str, agents[:8]))}{' …' if len(agents) > 8 else ''}" if agents else ""


@contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is noticed between rounds, where the state is whole; a second one ends the process as usual."""
    requested = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: requested
    finally:
        signal.signal(signal.SIGINT, before)
