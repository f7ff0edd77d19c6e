"""Nodes that fail or are missing, as real processes: exit codes, sentences, and who hears what."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.test_cluster_commands import Machines, ended, until
from tests.orchestrator.test_grpc_runs import TABLES, Runs, nodes_of

Call = Callable[..., Any]
SECRET = "4217.25"
OBJECTIVE = f"""
class Objective:
    dimension, smoothness, calls = 3, 1.0, 0
    def value(self, x):
        return float(x @ x) / 2
    def gradient(self, x):
        print("a gradient " * TIMES)
        Objective.calls += 1
        if Objective.calls > CALLS:
            raise ValueError("patient 7 earns {SECRET}")
        return x
print("loaded")
def objective(agent, agents):
    return Objective()
"""


@pytest.fixture
def machines(tmp_path: Path, environment: dict[str, str]) -> Iterator[Machines]:
    laid_out = Machines(tmp_path, environment)
    yield laid_out
    laid_out.clean_up()


@pytest.fixture
def runs(tmp_path: Path, environment: dict[str, str]) -> Iterator[Runs]:
    started = Runs(tmp_path, environment)
    yield started
    started.clean_up()


def own_objective(folder: Path, calls: int, times: int = 2000) -> list[str]:
    """Options of a run with an objective that prints, and that raises after so many calls."""
    (folder / "objective.py").write_text(OBJECTIVE.replace("CALLS", str(calls)).replace("TIMES", str(times)))
    own = {"problem.name": "file", "problem.path": folder / "objective.py", "run.rounds": 12, "network.agents": 3}
    tables = {name: value for name, value in TABLES.items() if name != "problem.dimension"} | own
    return [word for name, value in tables.items() for word in ("--set", f"{name}={value}")]


@pytest.mark.slow
def test_a_missing_node_is_named_in_a_pipe_within_five_seconds_and_given_up(machines: Machines) -> None:
    machines.lay_out()
    node = machines.node(0)
    began = time.monotonic()
    work = machines.start(*machines.orchestration("--patience", 6))
    assert work.stderr is not None
    first = work.stderr.readline()
    assert time.monotonic() - began < 5 + 3  # and the start of Python
    where = f"node 1 (agents 1, 2; 127.0.0.1:{machines.ports[1]})"
    assert first.strip() == f"round 0: waiting: {where} is not there yet (Connection refused)"
    said = ended(work, code=1)
    assert said.strip().splitlines()[-1].startswith(f"dpp2: given up after 6 s without progress: {where}")
    assert ended(node) == ""


@pytest.mark.slow
def test_a_node_that_fails_ends_with_a_code_and_the_others_with_it(machines: Machines, tmp_path: Path) -> None:
    """The owner's log has the words of the owner's code; nobody else has."""
    machines.lay_out()
    own_objective(tmp_path, calls=8, times=1)
    for path in tmp_path.glob("experiment*.toml"):
        tables = path.read_text().replace('name = "least-squares"\ndimension = 3\n', "")
        path.write_text(f'{tables}name = "file"\npath = "objective.py"\n')
    nodes = [machines.node(0), machines.node(1)]
    work = machines.start(*machines.orchestration())
    sentence = ended(work, code=1)
    failed, other = (nodes[1], nodes[0]) if "node 1 (" in sentence else (nodes[0], nodes[1])
    assert "has failed in round" in sentence
    assert "problem.path is not accepted at this node; its log says why" in sentence
    assert SECRET not in sentence
    log = ended(failed, code=1)
    assert SECRET in log
    assert log.strip().endswith("dpp2 node: the run has failed, as said above; the same command line goes on with it")
    other.wait(20)
    assert other.returncode in (0, 1)  # it was told to stop, or its own objective failed, too


@pytest.mark.slow
def test_an_objective_that_prints_stands_in_nobodys_way(runs: Runs, tmp_path: Path, dpp2: Call) -> None:
    """24 kB a round: more than a pipe holds. The document on standard output is whole."""
    chosen = own_objective(tmp_path, calls=10**9)
    done = dpp2("run", *chosen, "--transport", "grpc", "--processes", 2, "--json", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    (start,) = [at for at, line in enumerate(done.out.splitlines()) if line.startswith("{")]
    assert json.loads("\n".join(done.out.splitlines()[start:]))["rounds"] == 12


@pytest.mark.slow
def test_a_local_run_whose_objective_fails_says_so_once_and_leaves_nobody(runs: Runs, tmp_path: Path) -> None:
    chosen = own_objective(tmp_path, calls=20)
    said = runs("run", *chosen, "--transport", "grpc", "--processes", 2, "--out", tmp_path / "run", code=1)
    last = said.strip().splitlines()[-1]
    assert last.startswith("dpp2: node ")
    assert "has failed in round" in last
    assert SECRET in said  # in the log of the node, which is ours
    until(lambda: not nodes_of(tmp_path))
