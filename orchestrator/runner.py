"""Runs an experiment into a run directory: progress, checkpoints, interruption, resume."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from dpp2 import BadInput, Experiment, Result, Simulation
from dpp2.setting import Secrets
from orchestrator import plots
from orchestrator.ledgers import LedgerFile
from orchestrator.rundir import RunDirectory, free_name

_LOOK_SECONDS = 0.1  # how often progress is shown and Ctrl-C noticed
_CHECKPOINT_SECONDS = 2.0

Progress = Callable[[int, int, float], None]  # (rounds done, of how many, gap)


class Interrupted(Exception):
    """The user stopped the run; everything up to round k is safe in the run directory."""

    def __init__(self, path: Path, k: int) -> None:
        self.path, self.k = path, k
        go_on = f"dpp2 run --resume {shlex.quote(str(path))}"
        super().__init__(f"stopped after {k} rounds; `{go_on}` goes on from there")


class RunFailed(Exception):
    """The user's own code failed in the middle of a run; what was done before is safe in the run directory."""


@dataclass(frozen=True)
class Finished:
    """A run and where it was written."""

    directory: RunDirectory
    result: Result


def start(experiment: Experiment, out: Path | None, *, stem: str, force: bool, progress: Progress) -> Finished:
    """Run from round 0. The experiment is checked in full before a directory is touched."""
    simulation = _simulation(experiment)
    directory = RunDirectory.create(out or free_name(Path("runs"), stem), force=force)
    return _charged(simulation, directory, progress)


def resume(path: Path, overrides: list[str], progress: Progress) -> Finished:
    """Go on where an interrupted run stopped, or longer than a finished one went (`run.rounds`)."""
    directory = RunDirectory.open(path)
    for override in overrides:
        if override.partition("=")[0].strip() != "run.rounds":
            raise BadInput("--set", override, "run.rounds=K: nothing else may change when a run is resumed")
    experiment = Experiment.load(path / "experiment.toml", overrides)
    simulation = _simulation(experiment, directory.secrets(experiment))
    directory.restore(simulation)
    return _charged(simulation, directory, progress)


def _charged(simulation: Simulation, directory: RunDirectory, progress: Progress) -> Finished:
    """Charge before the first round, settle after the last; only a kill leaves the charge standing."""
    ledgers = LedgerFile(directory.ledger)
    try:
        ledgers.reserve(simulation)
    except BadInput:
        directory.discard()
        raise
    try:
        directory.begin(simulation)
        return _go_on(simulation, directory, progress)
    finally:
        ledgers.settle(simulation)


def _simulation(experiment: Experiment, secrets: Secrets | None = None) -> Simulation:
    try:
        return Simulation(experiment, secrets=secrets)
    except MemoryError as error:
        wanted = f"rounds, agents and dimension whose records fit in memory ({error})"
        raise BadInput("run.rounds", experiment.run.rounds, wanted) from None


def _go_on(simulation: Simulation, directory: RunDirectory, progress: Progress) -> Finished:
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
            progress(simulation.k, simulation.allowance.rounds, simulation.gap)
            if now - saved_at > _CHECKPOINT_SECONDS or stop_requested():
                directory.save(simulation, saved)
                saved, saved_at = simulation.k, now
            if stop_requested() and simulation.remaining:
                raise Interrupted(directory.path, simulation.k)
    result = simulation.result()
    directory.finish(simulation, result)
    plots.convergence(result, directory.path / "convergence.png")
    plots.epsilon(simulation.account, result.rounds, directory.path / "epsilon.png")
    return Finished(directory, result)


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
