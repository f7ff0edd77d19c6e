"""The ledger of runs on disk: no round is charged twice, none is forgotten, and budgets hold over runs and crashes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dpp2 import BadInput, Experiment, Simulation
from dpp2.privacy import Epsilon, Mechanism, Unsupported, epsilon, largest_rounds
from node.ledgers import LedgerFile
from orchestrator import rundir, runner
from orchestrator.rundir import read_metrics
from orchestrator.runner import Interrupted

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
COUNTEREXAMPLE = Path(__file__).parents[2] / "experiments/counterexample.toml"


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


def mechanisms(**changes: Any) -> tuple[Mechanism, ...]:
    return Simulation(experiment(**changes), record=False).account.mechanisms


def number(spent: Epsilon | Unsupported) -> float:
    assert isinstance(spent, Epsilon)
    assert spent.value is not None
    return spent.value


def worst(rounds: int, **changes: Any) -> float:
    return max(number(epsilon(mechanism, rounds)) for mechanism in mechanisms(**changes))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pictures; one round between looks."""
    for name in ("convergence", "epsilon"):
        monkeypatch.setattr(f"orchestrator.plots.{name}", lambda *args: None)
    monkeypatch.setattr(runner, "_LOOK_SECONDS", 0.0)


@pytest.fixture
def dpp2_run(dpp2: Call) -> Callable[..., dict[str, Any]]:
    """`dpp2 run --json`, which must succeed."""

    def run(*words: object) -> dict[str, Any]:
        ended = dpp2("run", "--json", *words)
        assert (ended.code, ended.err) == (0, "")
        found = json.loads(ended.out)
        assert isinstance(found, dict)
        return found

    return run


Run = Callable[..., dict[str, Any]]


class TestCharged:
    def test_every_agent_for_the_rounds_that_were_run(self, tmp_path: Path, dpp2_run: Run) -> None:
        printed = dpp2_run("--out", tmp_path / "run", *sets())
        found, agents = rows(tmp_path), mechanisms()
        assert [(row.agent, row.rounds, row.published) for row in found] == [(i, ROUNDS, None) for i in range(3)]
        assert [row.epsilon for row in found] == [number(epsilon(agent, ROUNDS)) for agent in agents]
        assert {row.run for row in found} == {printed["run_id"]}
        assert len({row.data for row in found}) == 3
        assert printed["privacy"]["epsilon"] == max(row.epsilon for row in found if row.epsilon)

    def test_metrics(self, tmp_path: Path, dpp2_run: Run) -> None:
        lists = {"noise__u_e": [0.5, 5.0, 5.0], "noise__decay": [1.0, 0.5, 0.9]}
        printed = dpp2_run("--out", tmp_path / "run", *sets(**lists))
        spent = read_metrics(tmp_path / "run/metrics.csv").epsilon
        assert spent.tolist() == [worst(k, **lists) for k in range(ROUNDS + 1)]
        assert spent[0] == 0
        assert printed["privacy"]["epsilon"] == spent[-1]
        assert [row.epsilon for row in rows(tmp_path)] == [number(epsilon(m, ROUNDS)) for m in mechanisms(**lists)]

    def test_the_same_seeded_run_again_charges_nothing_more(self, tmp_path: Path, dpp2_run: Run) -> None:
        """It sends the same bytes."""
        for name in ("first", "second"):
            dpp2_run("--out", tmp_path / name, *sets())
        assert rounds_charged(tmp_path) == [ROUNDS] * 3

    @pytest.mark.parametrize("published", [False, True])
    def test_the_same_seeded_run_again_but_shorter_takes_nothing_back(
        self, published: bool, tmp_path: Path, dpp2: Call, dpp2_run: Run
    ) -> None:
        dpp2_run("--out", tmp_path / "long", *sets())
        if published:
            assert dpp2("privacy", "publish", tmp_path / "long").code == 0
        before = rows(tmp_path)
        dpp2_run("--out", tmp_path / "short", *sets(run__rounds=3))
        assert rows(tmp_path) == before
        dpp2_run("--out", tmp_path / "longer", *sets(run__rounds=11))
        assert rounds_charged(tmp_path) == [11] * 3

    def test_an_extended_run_pays_for_what_was_added(self, tmp_path: Path, dpp2_run: Run) -> None:
        dpp2_run("--out", tmp_path / "run", *sets())
        dpp2_run("--resume", tmp_path / "run", "--set", "run.rounds=13")
        assert rounds_charged(tmp_path) == [13] * 3

    def test_runs_with_fresh_noise_add_up(self, tmp_path: Path, dpp2_run: Run) -> None:
        for name in ("first", "second"):
            dpp2_run("--out", tmp_path / name, *sets(run__seed="os"))
        found = rows(tmp_path)
        assert [row.rounds for row in found] == [ROUNDS] * 6
        assert len({row.data for row in found}) == 3
        assert len({row.run for row in found}) == 2

    def test_a_diverged_run_is_settled(self, tmp_path: Path, dpp2: Call) -> None:
        ended = dpp2("run", COUNTEREXAMPLE, "--json", "--out", tmp_path / "run")
        ran = json.loads(ended.out)["rounds"]
        assert (ended.code, 0 < ran < 500) == (1, True)
        assert set(rounds_charged(tmp_path)) == {ran}

    def test_a_run_that_fails_in_the_users_own_code_is_settled(self, tmp_path: Path, dpp2: Call) -> None:
        (tmp_path / "own.py").write_text(FAILING)
        ended = dpp2("run", "--out", tmp_path / "run", *own(tmp_path / "own.py"))
        assert ended.code == 1, ended.err
        failed = int(ended.err.split("round ")[1].split()[0])
        assert 0 < failed < ROUNDS
        assert set(rounds_charged(tmp_path)) == {failed}


class TestBudget:
    def test_stops_before_the_round_that_would_exceed_it(self, tmp_path: Path, dpp2: Call, dpp2_run: Run) -> None:
        budget = (worst(5) + worst(6)) / 2
        printed = dpp2_run("--out", tmp_path / "run", *sets(privacy__budget=budget))
        kept = json.loads((tmp_path / "run/privacy.json").read_text())
        assert (printed["rounds"], printed["privacy"]["rounds"]) == (5, 5)
        assert printed["privacy"] == kept
        assert kept["budget"] == budget
        assert kept["epsilon"] == worst(5) <= budget
        assert kept["stopped"].startswith(f"round 5 would bring the total to ε = {worst(6):.6g}, over the budget of ")
        assert rounds_charged(tmp_path) == [5] * 3
        assert len(read_metrics(tmp_path / "run/metrics.csv").epsilon) == 6
        said = dpp2("run", "--out", tmp_path / "again", *sets(privacy__budget=budget))
        assert said.code == 0
        assert f"stopped by privacy.budget after 5 rounds: {kept['stopped']}" in said.err

    @pytest.mark.parametrize("budget", ["exact", 1e9, None])
    def test_a_budget_that_suffices_is_not_mentioned(
        self, budget: object, tmp_path: Path, dpp2_run: Run, dpp2: Call
    ) -> None:
        chosen = sets(privacy__budget=worst(ROUNDS) if budget == "exact" else budget)
        printed = dpp2_run("--out", tmp_path / "run", *chosen)
        assert (printed["rounds"], printed["privacy"]["stopped"]) == (ROUNDS, None)
        assert "stopped" not in dpp2("run", "--out", tmp_path / "again", *chosen).err

    def test_not_even_one_round(self, tmp_path: Path, dpp2_run: Run) -> None:
        printed = dpp2_run("--out", tmp_path / "run", *sets(privacy__budget=1e-9))
        assert (printed["rounds"], printed["privacy"]["epsilon"]) == (0, 0.0)
        assert "round 0 would bring the total to" in printed["privacy"]["stopped"]
        assert rows(tmp_path) == []
        assert printed["gap"] == printed["gap_initial"]

    def test_the_agent_with_the_least_noise_decides(self, tmp_path: Path, dpp2_run: Run) -> None:
        lists = {"noise__u_e": [20.0, 2.0, 20.0], "noise__u_w": [20.0, 2.0, 20.0], "noise__decay": [0.9, 1.0, 0.9]}
        printed = dpp2_run("--out", tmp_path / "run", *sets(**lists, privacy__budget=0.3))
        least = min(largest_rounds(agent, 0.3, ROUNDS) for agent in mechanisms(**lists))  # type: ignore[type-var]
        assert printed["rounds"] == least == largest_rounds(mechanisms(**lists)[1], 0.3, ROUNDS)
        assert 0 < printed["rounds"] < ROUNDS
        assert printed["privacy"]["epsilon"] <= 0.3

    def test_is_for_all_runs_on_the_same_data_together(self, tmp_path: Path, dpp2_run: Run) -> None:
        budget = worst(10)
        chosen = {"run__seed": "os", "privacy__budget": budget}
        first = dpp2_run("--out", tmp_path / "first", *sets(**chosen, run__rounds=6))
        second = dpp2_run("--out", tmp_path / "second", *sets(**chosen, run__rounds=20))
        third = dpp2_run("--out", tmp_path / "third", *sets(**chosen, run__rounds=20))
        assert first["rounds"] == 6
        assert 0 < second["rounds"] < 10
        assert worst(6) + worst(second["rounds"]) <= budget < worst(6) + worst(second["rounds"] + 1)
        assert third["rounds"] == 0
        assert "earlier runs on the same data have spent" in second["privacy"]["stopped"]
        assert max(total(tmp_path, agent) for agent in range(3)) <= budget

    def test_goes_on_after_a_resume(self, tmp_path: Path, dpp2_run: Run) -> None:
        chosen = sets(privacy__budget=worst(11), run__seed="os")
        assert dpp2_run("--out", tmp_path / "run", *chosen)["rounds"] == ROUNDS
        longer = dpp2_run("--resume", tmp_path / "run", "--set", "run.rounds=50")
        assert (longer["rounds"], longer["privacy"]["epsilon"]) == (11, worst(11))
        again = dpp2_run("--resume", tmp_path / "run")
        assert (again["rounds"], bool(again["privacy"]["stopped"])) == (11, True)
        assert rounds_charged(tmp_path) == [11] * 3

    def test_other_data_have_their_own(self, tmp_path: Path, dpp2_run: Run) -> None:
        for seed in (1, 2, 3):
            chosen = sets(privacy__budget=worst(6, problem__seed=seed), problem__seed=seed, run__seed="os")
            assert dpp2_run("--out", tmp_path / str(seed), *chosen)["rounds"] == 6
        assert len({row.data for row in rows(tmp_path)}) == 9

    def test_what_is_not_data_does_not_open_a_new_account(self, tmp_path: Path, dpp2_run: Run) -> None:
        """Another network, step or start, another noise: the same records are spent."""
        changes: list[dict[str, Any]] = [
            {},
            {"network__topology": "star"},
            {"algorithm__alpha": 0.08, "algorithm__damping": 0.5},
            {"run__start": "zero"},
            {"noise__u_e": 9.0},
            {"privacy__smoothness": 50.0},
        ]
        for number_, change in enumerate(changes):
            dpp2_run("--out", tmp_path / str(number_), *sets(**change))
        found = rows(tmp_path)
        assert len({row.data for row in found}) == 3
        assert len({row.run for row in found}) == len(changes)

    def test_a_run_without_noise_leaves_nothing_to_spend(self, tmp_path: Path, dpp2_run: Run) -> None:
        dpp2_run("--out", tmp_path / "bare", *sets(run__seed="os", noise__u_e=0))
        after = dpp2_run("--out", tmp_path / "run", *sets(run__seed="os", privacy__budget=1e9))
        assert after["rounds"] == 0
        assert "earlier runs on the same data have spent ∞" in after["privacy"]["stopped"]


def csv_folder(folder: Path, *contents: str) -> Path:
    folder.mkdir()
    for agent, content in enumerate(contents):
        (folder / f"agent-{agent}.csv").write_text(content)
    return folder


def own(path: Path, **changes: Any) -> list[str]:
    return sets(problem__name="file", problem__path=path, problem__dimension=None, **changes)


CONTENTS = ("0.5,1.0,1\n-1.0,0.2,-1\n", "0.1,-0.4,-1\n0.3,0.3,1\n", "2.0,0.0,1\n0.0,1.0,-1\n")
STEEPER = """
class Bowl:
    dimension = 2
    def __init__(self, agent): self.smoothness = 3.0 - agent
    def value(self, x): return self.smoothness * float(x @ x) / 2
    def gradient(self, x): return self.smoothness * x
def objective(agent, agents): return Bowl(agent)
"""
FAILING = """
class Bowl:
    dimension, smoothness, calls = 2, 1.0, 0
    def value(self, x): return float(x @ x) / 2
    def gradient(self, x):
        Bowl.calls += 1
        if Bowl.calls > 24:
            raise RuntimeError("no more")
        return x
def objective(agent, agents): return Bowl()
"""


class TestDataFromFiles:
    """They are known by their content: not by path, name or who holds them."""

    def budget(self, folder: Path) -> float:
        agents = Simulation(Experiment.load(overrides=own(folder)[1::2]), record=False).account.mechanisms
        return max(number(epsilon(agent, 6)) for agent in agents)

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
    def test_a_copy_is_the_same_data(self, order: tuple[int, ...], tmp_path: Path, dpp2_run: Run) -> None:
        first = csv_folder(tmp_path / "first", *CONTENTS)
        second = csv_folder(tmp_path / "second", *(CONTENTS[agent] for agent in order))
        chosen = {"run__seed": "os", "privacy__budget": self.budget(first)}
        assert dpp2_run("--out", tmp_path / "runs/1", *own(first, **chosen))["rounds"] == 6
        after = dpp2_run("--out", tmp_path / "runs/2", *own(second, **chosen))
        assert after["rounds"] == 0
        assert "earlier runs on the same data have spent" in after["privacy"]["stopped"]

    def test_one_digit_makes_other_data(self, tmp_path: Path, dpp2_run: Run) -> None:
        folder = csv_folder(tmp_path / "data", *CONTENTS)
        dpp2_run("--out", tmp_path / "runs/1", *own(folder, run__seed="os"))
        (folder / "agent-1.csv").write_text(CONTENTS[1].replace("0.3", "0.4"))
        dpp2_run("--out", tmp_path / "runs/2", *own(folder, run__seed="os"))
        held = [{row.data for row in rows(tmp_path / "runs") if row.agent == agent} for agent in range(3)]
        assert [len(data) for data in held] == [1, 2, 1]

    @pytest.mark.parametrize("kind", ["one file of code", "copies of one record"])
    def test_agents_with_the_same_bytes_keep_an_entry_each(self, kind: str, tmp_path: Path, dpp2_run: Run) -> None:
        path = tmp_path / "own.py"
        if kind == "one file of code":
            path.write_text(STEEPER)
        else:
            path = csv_folder(tmp_path / "data", *[CONTENTS[0]] * 3)
        chosen = own(path, noise__u_e=[1.0, 2.0, 3.0])
        printed = dpp2_run("--out", tmp_path / "runs/1", *chosen)
        found = rows(tmp_path / "runs")
        assert [(row.agent, row.rounds) for row in found] == [(agent, ROUNDS) for agent in range(3)]
        assert max(row.epsilon for row in found if row.epsilon) == printed["privacy"]["epsilon"]
        assert len({row.epsilon for row in found}) == 3
        assert dpp2_run("--resume", tmp_path / "runs/1", "--set", "run.rounds=9")["rounds"] == 9
        assert rounds_charged(tmp_path / "runs") == [9] * 3

    def test_a_run_without_a_known_smoothness_is_not_forgotten(self, tmp_path: Path, dpp2_run: Run) -> None:
        """It had no ε; a bound that is declared for a later run does not give it one."""
        (tmp_path / "own.py").write_text(STEEPER.replace("self.smoothness = 3.0 - agent", "self.slope = 3.0 - agent"))
        (tmp_path / "own.py").write_text((tmp_path / "own.py").read_text().replace("self.smoothness", "self.slope"))
        unknown = dpp2_run("--out", tmp_path / "runs/1", *own(tmp_path / "own.py", run__seed="os"))
        assert unknown["privacy"]["epsilon"] is None
        assert rounds_charged(tmp_path / "runs") == [ROUNDS] * 3
        dpp2_run("--resume", tmp_path / "runs/1", "--set", "run.rounds=9")
        declared = own(tmp_path / "own.py", run__seed="os", privacy__smoothness=3.0, privacy__budget=1e9)
        after = dpp2_run("--out", tmp_path / "runs/2", *declared)
        assert after["rounds"] == 0
        assert after["privacy"]["stopped"].startswith("no budget can be kept: in run ")


class Killed(BaseException):
    """Nothing catches this, like SIGKILL."""


def silent(done: int, total: int, gap: float) -> None:
    pass


def stop_at(k: int) -> runner.Progress:
    return lambda done, total, gap: signal.raise_signal(signal.SIGINT) if done == k else None


def kill_at(k: int) -> runner.Progress:
    def progress(done: int, total: int, gap: float) -> None:
        if done == k:
            raise Killed

    return progress


@pytest.fixture
def killable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed settles nothing, and goes on from the last round."""
    monkeypatch.setattr(runner, "_CHECKPOINT_SECONDS", -1.0)
    settle = LedgerFile.settle

    def settled(self: LedgerFile, simulation: Simulation) -> None:
        if not isinstance(sys.exc_info()[1], Killed):
            settle(self, simulation)

    monkeypatch.setattr(LedgerFile, "settle", settled)


@pytest.mark.usefixtures("killable")
class TestInterrupted:
    def begin(self, path: Path, progress: runner.Progress = silent, **changes: Any) -> None:
        runner.start(experiment(**changes), path, stem="", force=False, progress=progress)

    @pytest.mark.parametrize("seed", [1, "os"])
    def test_ctrl_c_pays_for_the_rounds_that_were_run(self, seed: object, tmp_path: Path) -> None:
        with pytest.raises(Interrupted):
            self.begin(tmp_path / "run", stop_at(3), run__seed=seed)
        assert rounds_charged(tmp_path) == [3] * 3
        with pytest.raises(Interrupted):
            runner.resume(tmp_path / "run", [], stop_at(5))
        assert rounds_charged(tmp_path) == [5] * 3
        runner.resume(tmp_path / "run", [], silent)
        assert rounds_charged(tmp_path) == [ROUNDS] * 3

    @pytest.mark.parametrize("seed", [1, "os"])
    def test_a_killed_run_stays_charged_until_it_is_resumed(self, seed: object, tmp_path: Path) -> None:
        with pytest.raises(Killed):
            self.begin(tmp_path / "run", kill_at(3), run__seed=seed)
        assert rounds_charged(tmp_path) == [ROUNDS] * 3
        with pytest.raises(Killed):
            runner.resume(tmp_path / "run", [], kill_at(5))
        assert rounds_charged(tmp_path) == [ROUNDS] * 3
        with pytest.raises(Interrupted):
            runner.resume(tmp_path / "run", [], stop_at(6))
        assert rounds_charged(tmp_path) == [6] * 3
        runner.resume(tmp_path / "run", [], silent)
        assert rounds_charged(tmp_path) == [ROUNDS] * 3

    def test_killed_while_it_is_extended(self, tmp_path: Path) -> None:
        self.begin(tmp_path / "run")
        with pytest.raises(Killed):
            runner.resume(tmp_path / "run", ["run.rounds=20"], kill_at(12))
        assert rounds_charged(tmp_path) == [20] * 3
        with pytest.raises(Interrupted):
            runner.resume(tmp_path / "run", [], stop_at(15))
        assert rounds_charged(tmp_path) == [15] * 3

    def test_whoever_comes_after_a_kill_sees_all_that_was_reserved(self, tmp_path: Path) -> None:
        budget = worst(ROUNDS + 2)
        with pytest.raises(Killed):
            self.begin(tmp_path / "killed", kill_at(2), run__seed="os", privacy__budget=budget)
        self.begin(tmp_path / "next", run__seed="os", privacy__budget=budget)
        reserved = {row.run: row.rounds for row in rows(tmp_path)}
        assert sorted(reserved.values())[-1] == ROUNDS
        assert total(tmp_path) <= budget
        runner.resume(tmp_path / "killed", [], silent)  # its rounds were granted before, and still are
        assert max(total(tmp_path, agent) for agent in range(3)) <= budget
        assert read_metrics(tmp_path / "killed/metrics.csv").round[-1] == ROUNDS

    def test_killed_at_every_write(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """At every moment: rounds that left a trace on disk are charged, and after a resume exactly they are."""
        write = rundir._write
        for deadly in range(1, 1 + 2 * 3 + 6):
            folder, left = tmp_path / str(deadly), iter(range(deadly, -1, -1))

            def counted(*args: Any, left: Iterator[int] = left) -> None:
                if next(left) == 0:
                    raise Killed
                write(*args)

            with monkeypatch.context() as patched:
                patched.setattr(rundir, "_write", counted)
                with suppress(Killed):
                    self.begin(folder / "run", run__rounds=3)
            parts = [int(part.stem.split("-")[2]) for part in folder.rglob("records-*.npz")]
            assert all(charged >= max(parts, default=0) for charged in rounds_charged(folder))
            runner.resume(folder / "run", [], silent)
            assert rounds_charged(folder) == [3] * 3


class TestPublished:
    def test_charged_once(self, tmp_path: Path, dpp2: Call, dpp2_run: Run) -> None:
        dpp2_run("--out", tmp_path / "run", *sets(run__seed="os"))
        agents = mechanisms()
        for _ in range(2):
            assert dpp2("privacy", "publish", tmp_path / "run").code == 0
            found = rows(tmp_path)
            assert [(row.rounds, row.published) for row in found] == [(ROUNDS, ROUNDS)] * 3
            assert [row.epsilon for row in found] == [number(epsilon(m, ROUNDS, published=True)) for m in agents]

    def test_absorbed_by_the_round_that_sends_it_again(self, tmp_path: Path, dpp2: Call, dpp2_run: Run) -> None:
        dpp2_run("--out", tmp_path / "run", *sets())
        dpp2("privacy", "publish", tmp_path / "run")
        dpp2_run("--resume", tmp_path / "run", "--set", f"run.rounds={ROUNDS + 1}")
        assert [row.epsilon for row in rows(tmp_path)] == [number(epsilon(m, ROUNDS + 1)) for m in mechanisms()]

    def test_refused_over_budget(self, tmp_path: Path, dpp2: Call, dpp2_run: Run) -> None:
        dpp2_run("--out", tmp_path / "run", *sets(privacy__budget=worst(ROUNDS) * (1 + 1e-9)))
        before = rows(tmp_path)
        ended = dpp2("privacy", "publish", tmp_path / "run", "--json")
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert "enough to publish, which would bring agent " in ended.err
        assert not (tmp_path / "run/published.npz").exists()
        assert rows(tmp_path) == before

    def test_refused_when_other_runs_have_spent_it(self, tmp_path: Path, dpp2: Call, dpp2_run: Run) -> None:
        room = max(number(epsilon(m, 4, published=True)) for m in mechanisms())
        chosen = sets(run__seed="os", run__rounds=4, privacy__budget=room)
        dpp2_run("--out", tmp_path / "one", *chosen)
        dpp2_run("--out", tmp_path / "two", *sets(run__seed="os", run__rounds=1))
        assert dpp2("privacy", "publish", tmp_path / "one").code == 2

    def test_granted_with_just_enough(self, tmp_path: Path, dpp2: Call, dpp2_run: Run) -> None:
        room = max(number(epsilon(m, ROUNDS, published=True)) for m in mechanisms())
        dpp2_run("--out", tmp_path / "run", *sets(privacy__budget=room))
        assert dpp2("privacy", "publish", tmp_path / "run").code == 0
        assert max(total(tmp_path, agent) for agent in range(3)) == room

    def test_a_run_that_was_stopped(self, tmp_path: Path, dpp2: Call) -> None:
        with pytest.raises(Interrupted):
            runner.start(experiment(), tmp_path / "run", stem="", force=False, progress=stop_at(3))
        found = json.loads(dpp2("privacy", "publish", tmp_path / "run", "--json").out)
        assert (found["rounds"], found["epsilon_before"]) == (3, worst(3))
        assert [(row.rounds, row.published) for row in rows(tmp_path)] == [(3, 3)] * 3


def replaced_by(text: bytes) -> Callable[[Path], object]:
    return lambda ledger: ledger.write_bytes(text)


def with_entry(text: object) -> Callable[[Path], None]:
    def spoil(ledger: Path) -> None:
        with sqlite3.connect(ledger) as connection:
            connection.execute("UPDATE entries SET entry = ?", (text,))
        connection.close()

    return spoil


def other_tables(ledger: Path) -> None:
    with sqlite3.connect(ledger) as connection:
        connection.execute("DROP TABLE entries")
        connection.execute("CREATE TABLE entries (something, else_)")
    connection.close()


def directory(ledger: Path) -> None:
    ledger.unlink()
    ledger.mkdir()


class TestDamaged:
    @pytest.mark.parametrize(
        ("spoil", "sentence"),
        [
            (replaced_by(b"this is no database, whatever its name says" * 100), "a ledger that can be used (file is"),
            (lambda ledger: os.truncate(ledger, 5000), "a ledger that can be used ("),
            (directory, "a ledger that can be used (unable to open database file)"),
            (other_tables, "a ledger that can be used (no such column"),
            (with_entry("{"), "ledger entry = '{': expected a JSON object"),
            (with_entry("3"), "ledger entry = '3': expected a JSON object"),
            (with_entry(b"\xff"), "ledger entry = "),
            (with_entry("{}"), ".mechanism = None: expected a table of parameters"),
            (with_entry('{"rounds": -1, "mechanism": {}}'), ".rounds = -1: expected a whole number ≥ 0"),
        ],
    )
    def test_nothing_is_run(
        self, spoil: Callable[[Path], object], sentence: str, tmp_path: Path, dpp2: Call, dpp2_run: Run
    ) -> None:
        dpp2_run("--out", tmp_path / "before", *sets())
        spoil(tmp_path / "ledger.sqlite")
        for words in (("run", "--out", tmp_path / "run", *sets()), ("privacy", "publish", tmp_path / "before")):
            ended = dpp2(*words, "--json")
            assert (ended.code, ended.out) == (2, "")
            assert ended.err.startswith("dpp2: ledger")
            assert ended.err.count("\n") == 1
            assert sentence in ended.err
        assert not list((tmp_path / "run").rglob("*.npz"))
        assert not (tmp_path / "before/published.npz").exists()

    def test_a_folder_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: object, **options: object) -> None:
            raise sqlite3.OperationalError("attempt to write a readonly database")

        monkeypatch.setattr("node.ledgers.sqlite3.connect", refuse)
        with pytest.raises(BadInput, match=r"^ledger = '.*ledger.sqlite': expected .*readonly"):
            runner.start(experiment(), tmp_path / "run", stem="", force=False, progress=silent)

    def test_a_reservation_that_fails_leaves_no_half_of_it(
        self, tmp_path: Path, dpp2_run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dpp2_run("--out", tmp_path / "before", *sets())
        before = rows(tmp_path)

        def die(self: object, run_id: object) -> None:
            raise Killed

        simulation = Simulation(experiment(run__seed="os"))
        monkeypatch.setattr("node.ledgers._entry", die)
        with pytest.raises(Killed):
            LedgerFile(tmp_path / "ledger.sqlite").reserve(simulation)
        assert rows(tmp_path) == before


PREPARED = """
import os, signal, time
from dpp2 import Simulation
from orchestrator import plots, rundir, runner
plots.convergence = plots.epsilon = lambda *args: None
runner._CHECKPOINT_SECONDS, runner._LOOK_SECONDS = -1.0, 0.0
{}
from orchestrator.cli import main
main()
"""
# Look at the ledger, then take one's time before charging it: without a lock both would be granted the same rest.
SLOW = """
allow = Simulation.allow
def slow(self, ledgers):
    if hasattr(self, "recorder"):
        time.sleep(0.5)
    allow(self, ledgers)
Simulation.allow = slow
"""
DIES = """
save = rundir.RunDirectory.save
def saved(self, simulation, since):
    save(self, simulation, since)
    if simulation.k == 3:
        os.kill(os.getpid(), signal.SIGKILL)
rundir.RunDirectory.save = saved
"""


class TestRealProcesses:
    def command(self, prepared: str, *words: object) -> list[str]:
        return [sys.executable, "-c", PREPARED.format(prepared), "run", *map(str, words)]

    def test_two_at_once_cannot_both_have_the_rest(self, tmp_path: Path, environment: dict[str, str]) -> None:
        budget = worst(12)
        chosen = sets(run__seed="os", privacy__budget=budget, run__rounds=10)
        started = [
            subprocess.Popen(
                self.command(SLOW, "--json", "--out", tmp_path / name, *chosen),
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("one", "two")
        ]
        printed = [json.loads(process.communicate(timeout=60)[0]) for process in started]
        assert [process.returncode for process in started] == [0, 0]
        ran = sorted(found["rounds"] for found in printed)
        assert ran[1] == 10
        assert ran[0] < 10
        assert worst(10) + worst(ran[0]) <= budget < worst(10) + worst(ran[0] + 1)
        assert max(total(tmp_path, agent) for agent in range(3)) <= budget

    def test_sigkill(self, tmp_path: Path, environment: dict[str, str]) -> None:
        words = ("--out", tmp_path / "run", *sets(run__seed="os"))
        killed = subprocess.run(self.command(DIES, *words), env=environment, capture_output=True, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert rounds_charged(tmp_path) == [ROUNDS] * 3
        runner.resume(tmp_path / "run", [], silent)
        assert rounds_charged(tmp_path) == [ROUNDS] * 3
        assert len({row.run for row in rows(tmp_path)}) == 1


class TestWhere:
    def test_beside_the_runs(self, tmp_path: Path, dpp2_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        dpp2_run(*sets())
        assert (tmp_path / "runs/ledger.sqlite").is_file()
        dpp2_run("--out", "runs/named", *sets(run__seed="os"))
        assert len(rows(tmp_path / "runs")) == 6

    def test_replacing_a_run_does_not_replace_what_it_spent(self, tmp_path: Path, dpp2_run: Run) -> None:
        for _ in range(2):
            dpp2_run("--out", tmp_path / "run", "--force", *sets(run__seed="os"))
        assert rounds_charged(tmp_path) == [ROUNDS] * 6
        shutil.rmtree(tmp_path / "run")
        assert rounds_charged(tmp_path) == [ROUNDS] * 6
