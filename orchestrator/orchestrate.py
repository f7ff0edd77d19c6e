"""Drives nodes that others have started, on this machine or elsewhere, through one run.

What is kept is one small file, so that the same command line goes on after the orchestrator itself has died: the run's
id, which for an unseeded run is random.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dpp2 import BadInput, Experiment
from dpp2.node.cluster import Cluster
from dpp2.node.tls import Identity
from dpp2.orchestrator.drive import Drive, DriveFailed, stop
from dpp2.orchestrator.logged import LoggedDrive
from dpp2.orchestrator.transports.base import RunFailed
from dpp2.prepared import PreparedRun, Secrets
from dpp2.store.events import EventLog
from dpp2.store.files import read_json, write_text
from dpp2.store.modes import make_private


@dataclass(frozen=True)
class RunSummary:
    """How a run over nodes ended."""

    run_id: str
    rounds: int
    wanted: int
    stopped: str  # why there were fewer, if so
    diverged: bool
    ended: str  # why, where a node could not go on
    frames: int
    bytes: int
    refused: int


def run_id_of(experiment: Experiment, kept: Path) -> str:
    """A seeded run's id follows from the experiment; an unseeded one's is drawn once and kept."""
    if isinstance(experiment.run.seed, int):
        return Secrets.of(experiment).run_id
    if kept.is_file():
        try:
            known = read_json(kept)
            digest, run_id = str(known["digest"]), str(known["run_id"])
        except (ValueError, KeyError, TypeError):
            raise BadInput("--state", str(kept), "a file that dpp2 orchestrate has written") from None
        if digest != experiment.digest:
            raise BadInput("--state", str(kept), "the state of this experiment, or a new file")
        return run_id
    run_id = Secrets.of(experiment).run_id
    write_text(kept, json.dumps({"run_id": run_id, "digest": experiment.digest}))
    return run_id


@dataclass(frozen=True)
class Orchestration:
    """A run over nodes that others have started. It is prepared: what `dpp2 run` refuses never gets this far."""

    prepared: PreparedRun
    run_id: str
    cluster: Cluster
    identity: Identity | None
    window: int  # rounds of credit
    keep: bool  # leave the nodes running at the end
    patience: float | None = None  # seconds without progress after which the run is given up; None: it waits


def watched_folder(state: Path) -> Path:
    """Where a run over nodes is described for `dpp2 watch`: beside the orchestrator's state."""
    return state.with_suffix(".watch")


@contextmanager
def described(asked: Orchestration, state: Path) -> Iterator[LoggedDrive]:
    """Everything that is public, and what happens: the orchestrator has no more to show."""
    folder, experiment = watched_folder(state), asked.prepared.experiment
    _check_size(asked)
    told = replace(experiment, run=experiment.run.updated(telemetry="none"))  # whatever nodes keep, none of it is here
    with suppress(OSError):  # a run is no worse for not being watched
        make_private(folder)
        write_text(folder / "experiment.toml", told.to_toml())
        write_text(folder / "cluster.toml", asked.cluster.to_toml())
    log = EventLog(folder / "events.jsonl")
    prepared, tls = replace(asked.prepared, experiment=told), asked.identity is not None
    logged = LoggedDrive(log, prepared, experiment.run.rounds, tls=tls)
    logged.begin([asked.cluster.agents_of_node(node) for node in asked.cluster.nodes()], 0)
    try:
        yield logged
    except RunFailed as failure:
        logged.end("failed", str(failure))
        raise
    except KeyboardInterrupt:
        logged.end("interrupted", "the same command goes on")
        raise
    finally:
        log.close()


def _check_size(asked: Orchestration) -> None:
    agents, addresses = asked.prepared.experiment.network.agents, len(asked.cluster.addresses)
    if addresses != agents:
        raise BadInput("--cluster", addresses, f"{agents} agents, as in the experiment")


def orchestrate(asked: Orchestration, progress: Callable[[Drive], None]) -> RunSummary:
    """All rounds that every node's budget admits; then the nodes are told to end, unless they are to be kept."""
    experiment = asked.prepared.experiment
    _check_size(asked)
    drive = asyncio.run(_driven(asked, progress))
    seen = drive.seen.values()
    return RunSummary(
        run_id=asked.run_id,
        rounds=drive.round,
        wanted=experiment.run.rounds,
        stopped=drive.last.reason,
        diverged=drive.diverged,
        ended=drive.ended,
        frames=sum(one.frames for one in seen),
        bytes=sum(one.bytes for one in seen),
        refused=sum(one.refused for one in seen),
    )


async def _driven(asked: Orchestration, progress: Callable[[Drive], None]) -> Drive:
    run_id, digest, identity = asked.run_id, asked.prepared.experiment.digest, asked.identity
    drive = Drive(asked.cluster, run_id, digest, window=asked.window, identity=identity, patience=asked.patience)
    try:
        await drive.run(progress)
    except DriveFailed:
        await _stop(asked)
        raise
    await _stop(asked)
    return drive


async def _stop(asked: Orchestration) -> None:
    """A run that has failed ends the nodes, too: without it they would wait for ever."""
    if not asked.keep:
        await stop(asked.cluster, asked.run_id, asked.identity)
