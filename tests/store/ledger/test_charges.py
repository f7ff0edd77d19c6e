"""No round is charged twice, none is forgotten, and budgets hold over runs on the same data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpp2 import Experiment, Simulation
from dpp2.budget import RunBudget
from dpp2.privacy import epsilon, largest_rounds
from dpp2.store.ledgers import LedgerFile
from dpp2.store.rundir import read_metrics
from tests.store.ledger.charges import (
    COUNTEREXAMPLE,
    ROUNDS,
    Call,
    Refused,
    Run,
    experiment,
    mechanisms,
    number,
    rounds_charged,
    rows,
    sets,
    total,
    worst,
)


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

    @pytest.mark.parametrize("transport", ["embedded", "grpc"])
    def test_that_leaves_no_round_is_refused_before_anything_is_made(
        self, transport: str, tmp_path: Path, refused: Refused
    ) -> None:
        why = refused(tmp_path / "runs/run", *sets(privacy__budget=worst(1) / 2, run__transport=transport))
        assert why.startswith(f"round 0 would bring the total to ε = {worst(1):.6g}, over the budget of")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("transport", ["embedded", "grpc"])
    def test_a_refusal_spares_the_run_that_was_to_be_replaced(
        self, transport: str, tmp_path: Path, dpp2: Call, dpp2_run: Run
    ) -> None:
        """Also where only the ledger knows that nothing is left."""
        chosen = {"privacy__budget": worst(1) * 1.01, "run__seed": "os"}
        dpp2_run("--out", tmp_path / "run", *sets(**chosen))
        before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
        ended = dpp2("run", "--out", tmp_path / "run", "--force", *sets(**chosen, run__transport=transport))
        assert (ended.code, "earlier runs on the same data have spent" in ended.err) == (1, True)
        assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before

    def test_that_another_run_has_used_up_meanwhile(
        self, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was there when it was asked for, and gone when it was to be charged."""
        budget, consult = worst(1) * 1.01, LedgerFile.consult

        def consulted(self: LedgerFile, asked: RunBudget) -> None:
            consult(self, asked)
            self.reserve(Simulation(experiment(privacy__budget=budget, run__seed="os")).budget)

        LedgerFile(tmp_path / "ledger.sqlite").totals()  # which makes the file
        monkeypatch.setattr(LedgerFile, "consult", consulted)
        why = refused(tmp_path / "run", *sets(privacy__budget=budget, run__seed="os"))
        assert "earlier runs on the same data have spent" in why

    @pytest.mark.parametrize("transport", ["embedded", "grpc"])
    def test_the_first_round_shows_that_its_noise_is_too_small(
        self, transport: str, tmp_path: Path, refused: Refused
    ) -> None:
        """Nobody knew before it was computed; nothing was sent, and nothing stays."""
        tiny = {"noise__u_e": 1e-18, "noise__u_w": 1e-18, "privacy__budget": 1e60}
        why = refused(tmp_path / "run", *sets(**tiny, run__transport=transport))
        assert why.startswith("round 0 would bring the total to ε = ∞")
        assert rounds_charged(tmp_path) == [0] * 3

    def test_going_on_with_a_run_whose_budget_is_spent_is_a_failure(self, tmp_path: Path, dpp2: Call) -> None:
        run = tmp_path / "run"
        assert dpp2("run", "--out", run, *sets(privacy__budget=worst(1) * 1.01)).code == 0
        spent_up = dpp2("run", "--resume", run)
        assert (spent_up.code, spent_up.out, len(spent_up.err.splitlines())) == (1, "", 1)
        assert "no round to run: round 1 would" in spent_up.err
        assert dpp2("run", "--resume", run, "--set", f"privacy.budget={worst(2) * 1.01}").code == 0

    @pytest.mark.parametrize("budget", ["exact", 1e9, None])
    def test_a_budget_that_suffices_is_not_mentioned(
        self, budget: object, tmp_path: Path, dpp2_run: Run, dpp2: Call
    ) -> None:
        chosen = sets(privacy__budget=worst(ROUNDS) if budget == "exact" else budget)
        printed = dpp2_run("--out", tmp_path / "run", *chosen)
        assert (printed["rounds"], printed["privacy"]["stopped"]) == (ROUNDS, None)
        assert "stopped" not in dpp2("run", "--out", tmp_path / "again", *chosen).err

    def test_the_agent_with_the_least_noise_decides(self, tmp_path: Path, dpp2_run: Run) -> None:
        lists = {"noise__u_e": [20.0, 2.0, 20.0], "noise__u_w": [20.0, 2.0, 20.0], "noise__decay": [0.9, 1.0, 0.9]}
        printed = dpp2_run("--out", tmp_path / "run", *sets(**lists, privacy__budget=0.3))
        least = min(largest_rounds(agent, 0.3, ROUNDS) for agent in mechanisms(**lists))  # type: ignore[type-var]
        assert printed["rounds"] == least == largest_rounds(mechanisms(**lists)[1], 0.3, ROUNDS)
        assert 0 < printed["rounds"] < ROUNDS
        assert printed["privacy"]["epsilon"] <= 0.3

    def test_is_for_all_runs_on_the_same_data_together(self, tmp_path: Path, dpp2_run: Run, refused: Refused) -> None:
        budget = worst(10)
        chosen = {"run__seed": "os", "privacy__budget": budget}
        first = dpp2_run("--out", tmp_path / "first", *sets(**chosen, run__rounds=6))
        second = dpp2_run("--out", tmp_path / "second", *sets(**chosen, run__rounds=20))
        third = refused(tmp_path / "third", *sets(**chosen, run__rounds=20))
        assert first["rounds"] == 6
        assert 0 < second["rounds"] < 10
        assert worst(6) + worst(second["rounds"]) <= budget < worst(6) + worst(second["rounds"] + 1)
        for stopped in (second["privacy"]["stopped"], third):
            assert "earlier runs on the same data have spent" in stopped
        assert max(total(tmp_path, agent) for agent in range(3)) <= budget

    def test_goes_on_after_a_resume(self, tmp_path: Path, dpp2_run: Run) -> None:
        chosen = sets(privacy__budget=worst(11), run__seed="os")
        assert dpp2_run("--out", tmp_path / "run", *chosen)["rounds"] == ROUNDS
        longer = dpp2_run("--resume", tmp_path / "run", "--set", "run.rounds=50")
        assert (longer["rounds"], longer["privacy"]["epsilon"]) == (11, worst(11))
        again = dpp2_run("--resume", tmp_path / "run", spent_up=True)
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

    def test_a_run_without_noise_leaves_nothing_to_spend(self, tmp_path: Path, dpp2_run: Run, refused: Refused) -> None:
        dpp2_run("--out", tmp_path / "bare", *sets(run__seed="os", noise__u_e=0))
        why = refused(tmp_path / "run", *sets(run__seed="os", privacy__budget=1e9))
        assert "earlier runs on the same data have spent ∞" in why


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
    def test_a_copy_is_the_same_data(
        self, order: tuple[int, ...], tmp_path: Path, dpp2_run: Run, refused: Refused
    ) -> None:
        first = csv_folder(tmp_path / "first", *CONTENTS)
        second = csv_folder(tmp_path / "second", *(CONTENTS[agent] for agent in order))
        chosen = {"run__seed": "os", "privacy__budget": self.budget(first)}
        assert dpp2_run("--out", tmp_path / "runs/1", *own(first, **chosen))["rounds"] == 6
        why = refused(tmp_path / "runs/2", *own(second, **chosen))
        assert "earlier runs on the same data have spent" in why

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

    def test_a_run_without_a_known_smoothness_is_not_forgotten(
        self, tmp_path: Path, dpp2_run: Run, refused: Refused
    ) -> None:
        """It had no ε; a bound that is declared for a later run does not give it one."""
        (tmp_path / "own.py").write_text(STEEPER.replace("self.smoothness = 3.0 - agent", "self.slope = 3.0 - agent"))
        (tmp_path / "own.py").write_text((tmp_path / "own.py").read_text().replace("self.smoothness", "self.slope"))
        unknown = dpp2_run("--out", tmp_path / "runs/1", *own(tmp_path / "own.py", run__seed="os"))
        assert unknown["privacy"]["epsilon"] is None
        assert rounds_charged(tmp_path / "runs") == [ROUNDS] * 3
        dpp2_run("--resume", tmp_path / "runs/1", "--set", "run.rounds=9")
        declared = own(tmp_path / "own.py", run__seed="os", privacy__smoothness=3.0, privacy__budget=1e9)
        assert refused(tmp_path / "runs/2", *declared).startswith("no budget can be kept: in run ")
