"""Runs an experiment into a run directory: charges, whatever transport carries the rounds, results, resume."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dpp2 import BadInput, Experiment, Result, Simulation
from dpp2.orchestrator.logged import logged
from dpp2.orchestrator.results import write_results
from dpp2.orchestrator.transports.base import ClusterShape, Interrupted, Progress, RunFailed, transport_of
from dpp2.prepared import PreparedRun, Secrets
from dpp2.store.ledgers import LedgerFile
from dpp2.store.locks import RUNS, new_run, opened_run
from dpp2.store.results import check_records
from dpp2.store.rundir import RunDirectory

__all__ = ["ClusterShape", "FinishedRun", "Interrupted", "NoRoundLeft", "Progress", "RunFailed", "resume", "start"]

Begun = Callable[[Path], None]

_MAY_CHANGE = ("run.rounds", "privacy.budget")  # in a resumed run


@dataclass(frozen=True)
class FinishedRun:
    """A run and where it was written."""

    directory: RunDirectory
    result: Result
    began_at: int  # the round that it began or went on with
    steps: Mapping[str, float]  # what was done beside the rounds, and for how many seconds

    @property
    def went_on(self) -> bool:
        """Whether any round was run: a resumption may find none left."""
        return self.result.rounds > self.began_at


class NoRoundLeft(RunFailed):
    """The budget admits not one round more. A new run is then refused, and nothing of it stays behind."""

    def __init__(self, why: str | None) -> None:
        super().__init__(f"privacy.budget leaves no round to run: {why}")


class Steps:
    """Says what is done before the first round and after the last, and notes how long it takes."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.seconds = progress, dict[str, float]()

    @contextmanager
    def step(self, what: str, done: int, total: int) -> Iterator[None]:
        self.progress(done, total, what)
        began = time.perf_counter()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - began


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
    """Run from round 0. The experiment and its budget are checked in full before a directory is touched.

    `begun` hears where the run is written, before the first round.
    """
    shape = cluster or ClusterShape()
    transport_of(experiment, shape)
    if out is not None:
        RunDirectory.check_free(out, force=force)
    steps = Steps(progress)
    simulation = _simulation(experiment, steps)
    _check_disk(simulation, out or RUNS)
    if simulation.account.budget is not None:
        with steps.step("consulting the ledgers", 0, simulation.allowance.rounds):
            _check_rounds_left(simulation, RunDirectory(out or RUNS / stem).ledger)
    with new_run(out, stem=stem, force=force) as directory:
        try:
            directory.keep(simulation.recorder, simulation.run_id)
            return _charged(simulation, directory, steps, shape, begun)
        except NoRoundLeft:  # another run was quicker, or the noise of the first round is too small for its grid
            directory.clear()
            raise


def _check_disk(simulation: Simulation, out: Path) -> None:
    """Refuse records that cannot be written to their end."""
    place = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.is_dir())
    wanted, free = simulation.recorder.bytes_on_disk, shutil.disk_usage(place).free
    if wanted > free:
        said = f"{wanted / 2**30:,.1f} GiB, and {free / 2**30:,.1f} are free"
        accepted = f'rounds, agents and dimension whose records fit on the disk ({said}), or run.records = "none"'
        raise BadInput("run.rounds", simulation.experiment.run.rounds, accepted)


def _check_rounds_left(simulation: Simulation, ledger: Path) -> None:
    """Refuse a run whose budget admits no round, as far as ledgers tell; none is made for that."""
    _check_any_round(simulation)
    if ledger.exists():
        LedgerFile(ledger).consult(simulation.budget)
    if not simulation.allowance.rounds:
        where = shlex.quote(str(ledger.parent))
        raise NoRoundLeft(f"{simulation.allowance.reason} (`dpp2 privacy ledger {where}` shows what has been spent)")


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
        experiment = directory.as_kept(Experiment.load(path / "experiment.toml", overrides))
        shape = cluster or ClusterShape()
        transport = transport_of(experiment, shape)
        steps = Steps(progress)
        simulation = _simulation(experiment, steps, directory.secrets(experiment))
        directory.check_same(simulation.experiment)
        if (k := transport.reached(directory, simulation.run_id)) > experiment.run.rounds:
            raise BadInput("run.rounds", experiment.run.rounds, f"at least {k}, the rounds that were run already")
        directory.keep(simulation.recorder, simulation.run_id)
        check_records(path, 1, "--resume")
        snapshot = directory.load(simulation.snapshot(), experiment.run.rounds)
        if snapshot is not None:
            simulation.restore(snapshot)
        return _charged(simulation, directory, steps, shape, begun)


def _charged(
    simulation: Simulation, directory: RunDirectory, steps: Steps, shape: ClusterShape, begun: Begun
) -> FinishedRun:
    """Charge before the first round, settle after the last; only a kill leaves the charge standing.

    Nodes keep their own account of what they send, in the same ledger; then the run is only told how far it goes.
    """
    rounds = simulation.allowance.rounds
    ledgers, transport = LedgerFile(directory.ledger), transport_of(simulation.experiment, shape)
    began_at = simulation.k
    with steps.step("consulting the ledgers", simulation.k, rounds):
        (ledgers.consult if transport.keeps_accounts else ledgers.reserve)(simulation.budget)
    _check_any_round(simulation)
    if not transport.keeps_accounts:
        simulation.tell_uncovered(ledgers.reserve)

    def settle() -> None:
        if not transport.keeps_accounts:
            with steps.step("settling the ledgers", rounds, rounds):
                ledgers.settle(simulation.budget)

    try:
        directory.begin(simulation.prepared)
        begun(directory.path)
        with logged(simulation, directory) as tell_end:
            transport.run(simulation, directory, shape, steps.progress)
            _check_any_round(simulation)
            with steps.step("writing results", rounds, rounds):
                result = write_results(simulation, directory)
            tell_end(result)
        finished = FinishedRun(directory, result, began_at, steps.seconds)
    except BaseException:  # Ctrl-C as well: what ended the run is what is said
        with suppress(BadInput, OSError):
            settle()
        raise
    try:
        settle()
    except (BadInput, OSError) as error:
        raise _not_settled(directory, error) from error
    return finished


def _not_settled(directory: RunDirectory, error: BadInput | OSError) -> RunFailed:
    """The run is whole and the ledger says too much, never too little."""
    said = error.accepted if isinstance(error, BadInput) else error.strerror or str(error)
    why = said.removeprefix("a ledger that can be used (").removesuffix(")")
    where = shlex.quote(str(directory.path))
    return RunFailed(
        f"the run is finished and written to {directory.path}, but {directory.ledger} could not be settled ({why}): "
        f"the charge made before the first round stands; `dpp2 run --resume {where}` settles it"
    )


def _check_any_round(simulation: Simulation) -> None:
    """A run of no rounds at all has no results."""
    if not simulation.allowance.rounds:
        raise NoRoundLeft(simulation.allowance.reason)


def _simulation(experiment: Experiment, steps: Steps, secrets: Secrets | None = None) -> Simulation:
    """Of a million agents each step takes some seconds, so it is said which one is being done."""
    rounds = experiment.run.rounds
    try:
        with steps.step("drawing the graph and checking its weights", 0, rounds):
            prepared = PreparedRun.of(experiment, secrets)
        with steps.step(f"drawing the objectives of {prepared.graph.agents:,} agents", 0, rounds):
            return Simulation(prepared, to_disk=True)
    except MemoryError as error:
        wanted = f"rounds, agents and dimension whose records fit in memory ({error})"
        raise BadInput("run.rounds", rounds, wanted) from None
