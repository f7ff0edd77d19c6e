"""Makes a run directory of what nodes on several machines have written, handed in as exports or as homes.

Whoever collects need not hold anybody's data, nor anybody's state. With both, everything that an embedded run leaves is
there. Without, there is what the nodes wrote down; what would take another look at the data is left out and named.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from dpp2 import BadInput, Experiment, Simulation
from dpp2 import keys as keyed
from dpp2.algorithms.base import Private
from dpp2.arrays import Array, within
from dpp2.errors import MissingData
from dpp2.orchestrator.exports import pack
from dpp2.orchestrator.given import open_nodes, refuse_keys
from dpp2.orchestrator.merge import MergedRun, NodeFolder
from dpp2.orchestrator.results import write_results
from dpp2.prepared import PreparedRun, Secrets
from dpp2.privacy import Unsupported
from dpp2.privacy.account import Account
from dpp2.problems.base import Objective
from dpp2.recorder import Recorder
from dpp2.simulation import Snapshot
from dpp2.store.files import PRIVATE, json_text, write_npz, write_text
from dpp2.store.kept import finish_records
from dpp2.store.locks import new_run
from dpp2.store.results import write_checksums
from dpp2.store.rundir import RunDirectory, epsilon_document, write_metrics

Pieces = Iterable[Mapping[str, Array]]  # of the records of nodes, in order

_NEARLY = 2.0**-10  # of the bound that a run stops at when it diverges: so far something has got by then


@dataclass(frozen=True)
class Collected:
    path: Path
    run_id: str
    rounds: int
    agents: int
    telemetry: bool
    missing: str | None  # what could not be made, and why


def collect(given: Sequence[Path], experiment: Experiment, out: Path, run_id: str | None, *, force: bool) -> Collected:
    """Merge what nodes have left (exports, homes, or single runs in them) into the run directory `out`."""
    experiment = experiment.resolve()
    refuse_keys(given)
    nodes, run_id = open_nodes(given, run_id)
    check_digests(nodes, experiment)
    merged = MergedRun.of(nodes, experiment.network.agents, run_id)
    telemetry, early = "full" if merged.telemetry else "none", merged.k < experiment.run.rounds
    experiment = replace(experiment, run=experiment.run.updated(rounds=max(merged.k, 1), telemetry=telemetry))
    # Nothing is drawn any more, so any keys will do where the run's own are secret.
    prepared = PreparedRun.of(experiment, Secrets(keyed.fresh_key(), keyed.fresh_key(), run_id))
    objective, missing = _objective(prepared)
    if objective is not None and objective.dimension != merged.dimension:
        raise BadInput(
            "dimension of the records", merged.dimension, f"{objective.dimension}, as the data of --experiment have"
        )
    snapshot, pieces = merged.snapshot(experiment), merged.pieces(experiment.algorithm, private=merged.telemetry)
    simulation = _simulation(prepared, snapshot) if objective is not None else None
    if simulation is not None:
        write: Callable[[RunDirectory], object] = partial(_whole_run, simulation, snapshot, pieces)
    else:
        write = partial(_of_records, prepared, snapshot, pieces, objective, merged.dimension, early)
    if "x" not in snapshot.state:
        missing = "; ".join(["x^K: an export holds no state without telemetry", *([missing] if missing else [])])
    _write_whole(out, experiment, write, force=force)
    return Collected(out, run_id, merged.k, merged.agents, merged.telemetry, missing)


def export(homes: Sequence[Path], experiment: Experiment, out: Path, run_id: str | None) -> list[NodeFolder]:
    """Pack the records of nodes that have run here, for whoever collects."""
    experiment = experiment.resolve()
    nodes, _ = open_nodes(homes, run_id)
    check_digests(nodes, experiment)
    pack(nodes, experiment.algorithm, out)
    return nodes


def check_digests(nodes: Sequence[NodeFolder], experiment: Experiment) -> None:
    """Refuse what has run another experiment."""
    for node in nodes:
        if node.digest != experiment.digest:
            has_run = f"what {node.path} has run, which is {node.digest[:8]}"
            raise BadInput("--experiment", experiment.digest[:8], has_run)


def _write_whole(out: Path, experiment: Experiment, write: Callable[[RunDirectory], object], *, force: bool) -> None:
    """Beside `out` first: what cannot be written whole replaces nothing."""
    whole = out.resolve()
    beside = whole.with_name(f".{whole.name}.part")
    try:
        made = RunDirectory.create(beside, force=True)
        made.describe(experiment)
        write(made)
        with new_run(out, force=force):
            _move(beside, whole)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _move(folder: Path, to: Path) -> None:
    """What lies in a folder. Folders that are there already get what lies in them."""
    for path in [*folder.iterdir()]:
        if path.is_dir() and (to / path.name).is_dir():
            _move(path, to / path.name)
        else:
            path.replace(to / path.name)


def _objective(prepared: PreparedRun) -> tuple[Objective | None, str | None]:
    """The agents' objectives, or what cannot be made if their data are not here."""
    try:
        return prepared.objective(), None
    except MissingData as refusal:
        why = f"the agents' data are not here ({refusal})"
        return None, f"gap at the last x, and ε without privacy.smoothness: {why}"


def _simulation(prepared: PreparedRun, snapshot: Snapshot) -> Simulation | None:
    """The run as if it had been embedded, where its state is whole."""
    simulation, state = Simulation(prepared, to_disk=True), snapshot.state
    whole = {name: rows.shape for name, rows in simulation.driver.state().items()}
    return simulation if {name: rows.shape for name, rows in state.items()} == whole else None


def _whole_run(simulation: Simulation, snapshot: Snapshot, pieces: Pieces, directory: RunDirectory) -> None:
    directory.keep(simulation.recorder, simulation.run_id)
    simulation.restore(snapshot, pieces)
    write_results(simulation, directory)


def _of_records(
    prepared: PreparedRun,
    snapshot: Snapshot,
    pieces: Pieces,
    objective: Objective | None,
    dimension: int,
    early: bool,
    directory: RunDirectory,
) -> None:
    """What the nodes wrote down, and no more than x of their state. `early`: they stopped before the last round."""
    experiment, k, x = prepared.experiment, snapshot.k, snapshot.state.get("x")
    smoothness = np.full(prepared.graph.agents, np.nan) if objective is None else objective.smoothness
    account = replace(Account.of(experiment, smoothness, dimension), uncovered=snapshot.uncovered)
    recorder = Recorder.of(prepared, account, dimension, to_disk=True)
    directory.keep(recorder, prepared.run_id)
    recorder.take(pieces)
    _measure_last(recorder, k, x, objective)
    spent, claimed = account.epsilon(k), account.paper_epsilon(k) if k else Unsupported("nothing was run")
    last = recorder.last_sent(k) + ([] if x is None else [x])
    diverged = early and not all(within(rows, _NEARLY * experiment.run.largest) for rows in last)
    document = {**epsilon_document(spent, claimed), "rounds": k, "notes": list(account.notes_after(diverged=diverged))}
    directory.write_arrays(*finish_records(directory.path, recorder, k, prepared.P, prepared.run_id))
    if x is not None:
        write_npz(directory.path / "solution.npz", {"x": x, "mean": x.mean(axis=0)}, PRIVATE)
    write_metrics(directory.path / "metrics.csv", recorder.metrics(k))
    write_text(directory.path / "privacy.json", json_text(document))
    write_checksums(directory.path, prepared.run_id)


def _measure_last(recorder: Recorder, k: int, x: Array | None, objective: Objective | None) -> None:
    """The metrics of x^k, which no round has paid for, where both it and the objectives are here."""
    if x is None or objective is None:
        recorder.record_unmeasured(k, k + 1)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        values, grad = objective(x)
        recorder.record_metrics(k, [x], [Private(values, grad, {}, {})])
