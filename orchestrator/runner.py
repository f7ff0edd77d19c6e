"""Runs an experiment into a run directory: charges, whatever transport carries the rounds, results, resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dpp2 import BadInput, Experiment, Result, Simulation
from dpp2.orchestrator.logged import logged
from dpp2.orchestrator.results import write_results
from dpp2.orchestrator.transports.base import ClusterShape, Interrupted, Progress, RunFailed, transport_of
from dpp2.prepared import PreparedRun, Secrets
from dpp2.store.ledgers import LedgerFile
from dpp2.store.locks import new_run, opened_run
from dpp2.store.rundir import RunDirectory

__all__ = ["ClusterShape", "FinishedRun", "Interrupted", "Progress", "RunFailed", "resume", "start"]

Begun = Callable[[Path], None]

_MAY_CHANGE = ("run.rounds", "privacy.budget")  # in a resumed run


@dataclass(frozen=True)
class FinishedRun:
    """A run and where it was written."""

    directory: RunDirectory
    result: Result
    began_at: int  # the round that it began or went on with

    @property
    def stopped_at_once(self) -> bool:
        """Whether the budget left no round to be run."""
        return self.result.privacy.stopped is not None and self.result.rounds == self.began_at


def start(
    experiment: Experiment,
    out: Path | None,
    *,
    stem: str,
    force: bool,
    progress: Progress,
    cluster: ClusterShape | None = None,
    begun: Begun = lambda path: None,
) -> FinishedRun:
    """Run from round 0. The experiment is checked in full before a directory is touched.

    `begun` hears where the run is written, before the first round.
    """
    shape = cluster or ClusterShape()
    transport_of(experiment, shape)
    simulation = _simulation(experiment, progress)
    with new_run(out, stem=stem, force=force) as directory:
        return _charged(simulation, directory, progress, shape, begun)


def resume(
    path: Path,
    overrides: list[str],
    progress: Progress,
    cluster: ClusterShape | None = None,
    begun: Begun = lambda path: None,
) -> FinishedRun:
    """Go on where an interrupted run stopped, or longer than a finished one went (`run.rounds`)."""
    for override in overrides:
        if override.partition("=")[0].strip() not in _MAY_CHANGE:
            raise BadInput("--set", override, "run.rounds=K or privacy.budget=E: no more may change in a resumed run")
    with opened_run(path, "--resume") as directory:
        experiment = Experiment.load(path / "experiment.toml", overrides)
        shape = cluster or ClusterShape()
        transport_of(experiment, shape)
        simulation = _simulation(experiment, progress, directory.secrets(experiment))
        directory.check_same(simulation.experiment)
        snapshot = directory.load(simulation.snapshot(), experiment.run.rounds)
        if snapshot is not None:
            simulation.restore(snapshot)
        return _charged(simulation, directory, progress, shape, begun)


def _charged(
    simulation: Simulation, directory: RunDirectory, progress: Progress, shape: ClusterShape, begun: Begun
) -> FinishedRun:
    """Charge before the first round, settle after the last; only a kill leaves the charge standing.

    Nodes keep their own account of what they send, in the same ledger; then the run is only told how far it goes.
    """
    progress(simulation.k, simulation.allowance.rounds, "consulting the ledgers")
    ledgers, transport = LedgerFile(directory.ledger), transport_of(simulation.experiment, shape)
    began_at = simulation.k
    try:
        (ledgers.consult if transport.keeps_accounts else ledgers.reserve)(simulation.budget)
    except BadInput:
        directory.discard()
        raise
    if not transport.keeps_accounts:
        simulation.tell_uncovered(ledgers.reserve)
    try:
        directory.begin(simulation.prepared)
        begun(directory.path)
        with logged(simulation, directory) as tell_end:
            transport.run(simulation, directory, shape, progress)
            progress(simulation.allowance.rounds, simulation.allowance.rounds, "writing results, then settling ledgers")
            result = write_results(simulation, directory)
            tell_end(result)
        return FinishedRun(directory, result, began_at)
    finally:
        if not transport.keeps_accounts:
            ledgers.settle(simulation.budget)


def _simulation(experiment: Experiment, progress: Progress, secrets: Secrets | None = None) -> Simulation:
    """Of a million agents each step takes some seconds, so it is said which one is being done."""
    try:
        progress(0, experiment.run.rounds, "drawing the graph and checking its weights")
        prepared = PreparedRun.of(experiment, secrets)
        progress(0, experiment.run.rounds, f"drawing the objectives of {prepared.graph.agents:,} agents")
        return Simulation(prepared)
    except MemoryError as error:
        wanted = f"rounds, agents and dimension whose records fit in memory ({error})"
        raise BadInput("run.rounds", experiment.run.rounds, wanted) from None
