"""Node processes on this machine, which speak gRPC with each other. They keep records and accounts of their own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpp2 import BadInput, Experiment, Simulation
from dpp2.edge_keys import WITHOUT_TLS
from dpp2.node.process import check_descriptors
from dpp2.orchestrator.groups import check_partition, groups_of
from dpp2.orchestrator.output import errors, waiting
from dpp2.orchestrator.transports.base import ClusterShape, Interrupted, Progress, RunFailed, Transport, stop_requests
from dpp2.privacy.account import Note
from dpp2.store.files import read_json, write_text
from dpp2.store.rundir import RunDirectory

if TYPE_CHECKING:
    from dpp2.orchestrator.drive import Drive

_WINDOW = 512  # rounds of credit, unless they are run one by one
_KEEP_SECONDS = 2.0  # how often the clock is written down


class Grpc:
    options: tuple[str, ...] = ("processes", "partition", "strict", "tls", "tap")
    keeps_accounts = True

    def check(self, experiment: Experiment, shape: ClusterShape) -> None:
        if shape.tap and min(shape.processes or 2, experiment.network.agents) < 2:
            alone = min(shape.processes or 2, experiment.network.agents)
            raise BadInput("--processes", alone, "at least 2 with --tap: within one, nothing reaches the wire")
        _check_elsewhere(experiment)
        processes = min(shape.processes or experiment.network.agents, experiment.network.agents)
        check_descriptors("--processes", processes)
        check_partition(shape.partition)

    def reached(self, directory: RunDirectory, run_id: str) -> int:
        """Nodes may be further than whoever drove them has heard."""
        from dpp2.node.server import run_folder
        from dpp2.orchestrator.merge import furthest

        return furthest([run_folder(home, run_id) for home in (directory.path / "nodes").glob("node-*")])

    def run(self, simulation: Simulation, directory: RunDirectory, shape: ClusterShape, progress: Progress) -> None:
        """Every round at node processes; the run takes up what they have written down when they have ended."""
        from dpp2.node.server import run_folder
        from dpp2.orchestrator.herald import Herald
        from dpp2.orchestrator.local import (
            LocalCluster,  # grpc takes its time to load, and embedded runs need none of it
        )
        from dpp2.orchestrator.logged import LoggedDrive, charged
        from dpp2.orchestrator.merge import completed, load_node_records

        prepared, nodes, rounds = simulation.prepared, directory.path / "nodes", simulation.allowance.rounds
        groups = groups_of(shape, prepared.graph, nodes)
        if (shape.processes or 0) > len(groups):
            errors.print(
                f"note: --processes {shape.processes} is more than the number of agents: {len(groups)} are started"
            )
        tls = shape.tls or (nodes / "certs").exists()  # a run that began with TLS goes on with it
        if prepared.experiment.shares_edge_secrets and not tls:
            simulation.budget.remark(Note("plaintext", WITHOUT_TLS))
        tap = shape.tap(directory.path / "tap") if shape.tap else None
        local = LocalCluster(prepared, nodes, groups, ledger=directory.ledger, tls=tls, tap=tap)
        clock = RoundClock(nodes / "seconds.json", simulation.seconds)

        herald = Herald(errors.print)
        logged = LoggedDrive(directory.log, prepared, rounds, tls=tls, tap=str(getattr(tap, "name", "")))
        logged.begin(groups, simulation.k)
        progress(simulation.k, rounds, f"starting {len(groups)} node{'s' * (len(groups) > 1)}")

        def heard(drive: Drive) -> None:
            clock.hear(drive)
            herald.look(drive)
            logged.look(drive)
            progress(drive.round, rounds, waiting(drive.late()))

        folders = [run_folder(nodes / f"node-{min(group)}", prepared.run_id) for group in groups]
        with stop_requests() as stop_requested:
            window = 1 if shape.strict else _WINDOW
            try:
                _run_cluster(local.run(heard, window=window, stop_requested=stop_requested))
            finally:
                clock.keep()
            if not local.finished:
                k = completed(folders) or local.round
                raise Interrupted(directory.path, k, charged(simulation, directory))
        load_node_records(simulation, folders, diverged=local.diverged, seconds=clock.seconds)
        if tap:
            tap.finish(directory.path)


def _check_elsewhere(experiment: Experiment) -> None:
    """Other processes must be able to build what is run; and this one must be able to wait for them."""
    for section in (experiment.algorithm, experiment.problem):
        if why := section.only_here():
            raise BadInput("run.transport", "grpc", f"a transport within this process: {why}")
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        wanted = "a call from outside of a running event loop, as a notebook has one: await asyncio.to_thread(run, …)"
        raise BadInput("run.transport", "grpc", wanted)


class RoundClock:
    """Seconds that nodes have spent on rounds, without their start-up, over all interruptions of a run."""

    def __init__(self, path: Path, before: float) -> None:
        """`before` is what the run directory knows of; the file also knows of a run that was interrupted."""
        self._path, self._before = path, before
        with suppress(OSError, ValueError, KeyError, TypeError):  # a clock is no reason to refuse a run
            self._before = max(before, float(read_json(path)["seconds"]))
        self._began: float | None = None
        self._last = self._kept = 0.0

    def hear(self, drive: Drive) -> None:
        """Somebody has reported. The clock runs from when all nodes are prepared until the last report."""
        self._last = time.perf_counter()
        if self._began is None and all(seen.prepared for seen in drive.seen.values()):
            self._began = self._kept = self._last
        if self._last - self._kept > _KEEP_SECONDS:
            self.keep()

    @property
    def seconds(self) -> float:
        return self._before + (0.0 if self._began is None else self._last - self._began)

    def keep(self) -> None:
        """On disk, for whoever resumes the run."""
        if self._began is not None:
            self._kept = self._last
            with suppress(OSError):  # a full disk stops nodes that have something to lose, and they say so
                write_text(self._path, json.dumps({"seconds": self.seconds}))


def _run_cluster(work: Coroutine[Any, Any, None]) -> None:
    from dpp2.orchestrator.drive import DriveFailed

    try:
        asyncio.run(work)
    except DriveFailed as failure:
        raise RunFailed(str(failure)) from None


TRANSPORT: Transport = Grpc()
