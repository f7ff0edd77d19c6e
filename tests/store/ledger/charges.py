"""What ledgers hold after a run, what they should hold, and ways to end a run early."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpp2 import Experiment, Simulation
from dpp2.orchestrator import runner
from dpp2.privacy import Epsilon, Releases, Unsupported, epsilon

Call = Callable[..., Any]
ROUNDS = 8
TABLES = {
    "network.topology": "ring",
    "network.agents": 3,
    "problem.name": "least-squares",
    "problem.dimension": 2,
    "noise.u_e": 5.0,
    "noise.u_w": 5.0,
    "noise.decay": 0.95,
    "run.rounds": ROUNDS,
}
COUNTEREXAMPLE = Path(__file__).parents[3] / "experiments/counterexample.toml"


@dataclass(frozen=True)
class Row:
    """One line of the ledger."""

    data: str
    run: str
    agent: int
    rounds: int
    published: int | None
    epsilon: float | None


def rows(folder: Path) -> list[Row]:
    """What the file says, read without our own code."""
    with sqlite3.connect(folder / "ledger.sqlite") as connection:
        found = connection.execute("SELECT data, run, agent, entry FROM entries ORDER BY run, CAST(agent AS INTEGER)")
        parsed = [(data, run, int(agent), json.loads(entry)) for data, run, agent, entry in found]
    connection.close()
    return [Row(data, run, agent, e["rounds"], e["published"], e["epsilon"]) for data, run, agent, e in parsed]


def rounds_charged(folder: Path) -> list[int]:
    return [row.rounds for row in rows(folder)]


def total(folder: Path, agent: int = 0) -> float:
    return sum(row.epsilon or 0.0 for row in rows(folder) if row.agent == agent)


def sets(**changes: Any) -> list[str]:
    chosen = TABLES | {name.replace("__", "."): value for name, value in changes.items()}
    return [word for name, value in chosen.items() for word in ("--set", f"{name}={value}") if value is not None]


def experiment(**changes: Any) -> Experiment:
    return Experiment.load(overrides=sets(**changes)[1::2])


def mechanisms(**changes: Any) -> tuple[Releases, ...]:
    return Simulation(experiment(**changes), record=False).account.mechanisms


def number(spent: Epsilon | Unsupported) -> float:
    assert isinstance(spent, Epsilon)
    assert spent.value is not None
    return spent.value


def worst(rounds: int, **changes: Any) -> float:
    return max(number(epsilon(mechanism, rounds)) for mechanism in mechanisms(**changes))


Run = Callable[..., dict[str, Any]]
Refused = Callable[..., str]


class Killed(BaseException):
    """Nothing catches this, like SIGKILL."""


def silent(done: int, total: int, note: str) -> None:
    pass


def stop_at(k: int) -> runner.Progress:
    return lambda done, total, note: signal.raise_signal(signal.SIGINT) if done == k else None


def kill_at(k: int) -> runner.Progress:
    def progress(done: int, total: int, note: str) -> None:
        if done == k:
            raise Killed

    return progress
