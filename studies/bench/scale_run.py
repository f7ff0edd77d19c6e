"""One embedded run of the scale benchmark, in a process of its own so that its memory can be told.

`python -m dpp2.studies.bench.scale_run AGENTS` prints one line of JSON: an `EmbeddedRun`. Set-up is all that
`dpp2 run` does before round 0, ledgers included. With the word `turns` behind it, it only sets the agents up, and runs
as many further rounds as each line on stdin says: a line of JSON tells what they took, for whoever takes turns with it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median

from dpp2 import Experiment, Simulation
from dpp2.prepared import PreparedRun
from dpp2.store.ledgers import LedgerFile
from dpp2.studies.bench.scale_numbers import EmbeddedRun

SETTINGS = ("network.topology=small-world", "network.neighbours=10", "problem.name=quadratic", "run.rounds=1000")
_ROUNDS = 1_000_000  # agents times rounds in one timing, about
_REPETITIONS = 3


def block_rounds(agents: int) -> int:
    """So many rounds are timed at once: more of a small network."""
    return min(max(3, _ROUNDS // agents), 100)


def _prepared(agents: int) -> PreparedRun:
    return PreparedRun.of(Experiment.load(overrides=[*SETTINGS, f"network.agents={agents}"]))


def embedded(agents: int) -> EmbeddedRun:
    """Set up, some rounds, and settle: nothing is recorded."""
    before, began = _peak(), time.perf_counter()
    prepared = _prepared(agents)
    drawn = time.perf_counter()
    simulation = Simulation(prepared, record=False)
    hosted = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dpp2-bench-") as folder:
        ledgers = LedgerFile(Path(folder) / "ledger.sqlite")
        ledgers.reserve(simulation.budget)
        charged = time.perf_counter()
        per_round = median(_timed(simulation) for _ in range(_REPETITIONS))
        settling = time.perf_counter()
        ledgers.settle(simulation.budget)
        settled = time.perf_counter() - settling
    return EmbeddedRun(
        agents=agents,
        edges=len(prepared.graph.edges),
        network_seconds=drawn - began,
        data_seconds=hosted - drawn,
        ledger_seconds=charged - hosted,
        settle_seconds=settled,
        rounds_per_second=1 / per_round,
        bytes_per_agent=(_peak() - before) / agents,
    )


def _timed(simulation: Simulation) -> float:
    """Seconds per round. The first repetition warms up, and the median forgets it."""
    rounds = block_rounds(simulation.prepared.graph.agents)
    before = simulation.seconds
    simulation.advance(rounds)
    return (simulation.seconds - before) / rounds


def _peak() -> int:
    """The most memory that this process has held, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def in_turns(agents: int) -> None:
    """Seconds, and seconds of CPU, of every block of rounds that is asked for."""
    simulation = Simulation(_prepared(agents), record=False)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        began, used = time.perf_counter(), time.process_time()
        simulation.advance(int(line))
        print(json.dumps([time.perf_counter() - began, time.process_time() - used]), flush=True)


if __name__ == "__main__":
    if sys.argv[2:] == ["turns"]:
        in_turns(int(sys.argv[1]))
    else:
        print(json.dumps(asdict(embedded(int(sys.argv[1])))))
