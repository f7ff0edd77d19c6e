"""Makes a run directory of the folders that nodes on several machines have written.

Whoever collects need not hold anybody's data. With them, everything that an embedded run leaves is there. Without,
there is what the nodes wrote down, and what would take another look at the data is left out and named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from dpp2 import BadInput, Experiment, Simulation
from dpp2 import keys as keyed
from dpp2.errors import MissingData
from dpp2.prepared import PreparedRun, Secrets
from dpp2.privacy import Unsupported
from dpp2.privacy.account import Account
from dpp2.recorder import Recorder
from dpp2.stability import HOPELESS
from orchestrator.merge import MergedRun
from orchestrator.results import write_results
from store.files import json_text, write_npz, write_text
from store.rundir import RunDirectory, epsilon_document, write_metrics


@dataclass(frozen=True)
class Collected:
    path: Path
    run_id: str
    rounds: int
    agents: int
    telemetry: bool
    missing: str | None  # what could not be made, and why


def collect(homes: Sequence[Path], experiment: Experiment, out: Path, run_id: str | None, *, force: bool) -> Collected:
    """Merge nodes' folders (their homes, or single runs in them) into the run directory `out`."""
    experiment = experiment.resolve()
    folders, run_id = _runs(homes, run_id)
    merged = MergedRun.open(folders, experiment.network.agents, run_id)
    for node in merged.nodes:
        if node.digest != experiment.digest:
            has_run = f"what {node.path} has run, which is {node.digest[:8]}"
            raise BadInput("--experiment", experiment.digest[:8], has_run)
    telemetry, early = "full" if merged.telemetry else "none", merged.k < experiment.run.rounds
    experiment = replace(experiment, run=experiment.run.updated(rounds=max(merged.k, 1), telemetry=telemetry))
    # Nothing is drawn any more, so any keys will do where the run's own are secret.
    prepared = PreparedRun.of(experiment, Secrets(keyed.fresh_key(), keyed.fresh_key(), run_id))
    missing = _missing(prepared)
    write = _with_data(prepared, merged) if missing is None else _without_data(prepared, merged, early=early)
    directory = RunDirectory.create(out, force=force)  # only now: folders that cannot be read must replace nothing
    directory.describe(experiment)
    write(directory)
    return Collected(out, run_id, merged.k, merged.agents, merged.telemetry, missing)


def _missing(prepared: PreparedRun) -> str | None:
    """What cannot be made if the agents' data are not here."""
    try:
        prepared.objective()
    except MissingData as refusal:
        return f"gap at the last x, and ε without privacy.smoothness: the agents' data are not here ({refusal})"
    return None


def _runs(homes: Sequence[Path], wanted: str | None) -> tuple[list[Path], str]:
    """The folder of one run in each home; which one must be clear or said."""
    found = [[home] if (home / "node.json").is_file() else sorted((home / "runs").glob("*")) for home in homes]
    for home, runs in zip(homes, found, strict=True):
        if not runs:
            raise BadInput("DIR", str(home), "the home of a node that has run")
    ids = set.intersection(*({folder.name for folder in runs} for runs in found))
    if wanted is None and len(ids) != 1:
        which = f"one of {', '.join(sorted(ids))}" if ids else "homes that have a run in common"
        raise BadInput("--run-id", None, which)
    chosen = wanted or ids.pop()
    folders = [folder for runs in found for folder in runs if folder.name == chosen]
    if len(folders) != len(homes):
        raise BadInput("--run-id", chosen, f"a run of every folder: {', '.join(sorted(ids)) or 'there is none'}")
    return folders, chosen


def _with_data(prepared: PreparedRun, merged: MergedRun) -> Callable[[RunDirectory], object]:
    simulation = Simulation(prepared)
    simulation.restore(merged.snapshot(prepared.experiment))
    return partial(write_results, simulation)


def _without_data(prepared: PreparedRun, merged: MergedRun, *, early: bool) -> Callable[[RunDirectory], object]:
    """What the nodes wrote down; nobody has measured the last x. `early`: they stopped before the last round."""
    experiment, k, x = prepared.experiment, merged.k, merged.state()["x"]
    smoothness = np.full(merged.agents, experiment.privacy.smoothness or np.nan)
    account = Account.of(experiment, smoothness, merged.dimension)
    recorder = Recorder.of(prepared, account, merged.dimension)
    recorder.restore(k, merged.records(experiment.algorithm))
    recorder.record_unmeasured(k, k + 1)
    records = {"observation": recorder.observation(k, prepared.P), "truth": recorder.truth(k)}
    spent, claimed = account.epsilon(k), account.paper_epsilon(k) if k else Unsupported("nothing was run")
    diverged = early and not np.abs(x).max() < HOPELESS
    notes = list(account.notes_after(diverged=diverged))
    document = {**epsilon_document(spent, claimed), "rounds": k, "notes": notes}

    def write(directory: RunDirectory) -> None:
        for name, arrays in (records | {"solution": {"x": x, "mean": x.mean(axis=0)}}).items():
            if arrays is not None:
                write_npz(directory.path / f"{name}.npz", arrays)
        write_metrics(directory.path / "metrics.csv", recorder.metrics(k))
        write_text(directory.path / "privacy.json", json_text(document))

    return write
