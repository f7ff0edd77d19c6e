"""Publishing the result of a run at a price: x^K + w^K instead of x^K (the last step that the paper leaves out).

Whoever sees x^K as it is recovers e^{K−1} exactly, and with it everything. x^K + w^K, with the very w^K that round K
would use, costs one more term of the same kind as every round; a resumed run that goes on sends the same sum again.
Where x^K is a function of the messages (DPP³), it is released as it is, and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpp2 import BadInput, Experiment, Simulation
from dpp2.arrays import Array
from dpp2.embedded import Block
from dpp2.prepared import PreparedRun
from dpp2.privacy import Epsilon, Unsupported
from dpp2.store.files import json_text, read_json, write_npz, write_text
from dpp2.store.ledgers import LedgerFile
from dpp2.store.locks import opened_run
from dpp2.store.rundir import RunDirectory

_FREE = "x^K is a function of the messages, and ε covers whoever hears them all: publishing it costs nothing more"


@dataclass(frozen=True, eq=False)
class Published:
    path: Path
    x: Array
    what: str  # x^K + w^K; x^K itself where ε covers it
    rounds: int
    before: Epsilon | Unsupported
    epsilon: Epsilon | Unsupported
    notes: tuple[str, ...]


def publish(run: Path) -> Published:
    """Release x^K + w^K (DPP³: x^K) of a finished or stopped run into published.npz, and charge every agent for it."""
    with opened_run(run) as directory:
        return _publish(run, directory)


def _publish(run: Path, directory: RunDirectory) -> Published:
    experiment = Experiment.load(run / "experiment.toml")
    simulation = Simulation(PreparedRun.of(experiment, directory.secrets(experiment)), record=False)
    try:
        snapshot = directory.load(simulation.snapshot(), experiment.run.rounds)
    except BadInput as refusal:  # it speaks of --resume
        raise BadInput("RUN", str(run), refusal.accepted) from None
    if snapshot is None or snapshot.k == 0:
        raise BadInput("RUN", str(run), "a run of at least one round")
    simulation.restore(snapshot)
    x = np.concatenate([_released(simulation, block, run) for block in simulation.driver.blocks])
    ledger = LedgerFile(directory.ledger)
    if not ledger.knows(simulation.budget):
        raise BadInput("RUN", str(run), f"a run that {directory.ledger} has charged: a ledger lies beside its runs")
    ledger.publish(simulation.budget)
    path = directory.path / "published.npz"
    write_npz(path, {"x": x, "mean": x.mean(axis=0), "rounds": np.array(simulation.k)})
    _note(directory.path / "privacy.json", simulation)
    account = simulation.account
    spent = account.epsilon(simulation.k, published=True)
    notes = account.notes_without("solution")  # that is what publishing answers
    what = f"x^{simulation.k} + w^{simulation.k}"
    if experiment.algorithm.result_is_covered:
        what, notes = f"x^{simulation.k}", (_FREE, *notes)
    return Published(path, x, what, simulation.k, account.epsilon(simulation.k), spent, notes)


def _note(path: Path, simulation: Simulation) -> None:
    """privacy.json tells of the release from now on."""
    spent = simulation.account.epsilon(simulation.k, published=True)
    document = read_json(path) if path.exists() else {}
    document["published"] = {"rounds": simulation.k, "epsilon": getattr(spent, "value", None), "total": str(spent)}
    write_text(path, json_text(document))


def _released(simulation: Simulation, block: Block, run: Path) -> Array:
    released = block.program.published(block.state, simulation.k)
    if isinstance(released, Unsupported):
        raise BadInput("RUN", str(run), f"a run whose result can be published ({released.reason})")
    return released
