"""What counts as the same data: values, not bytes; all versions of a named set; nothing that was charged before."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment
from dpp2.node.server import run_folder
from dpp2.orchestrator.merge import MergedRun
from dpp2.privacy import Epsilon
from dpp2.store.ledgers import LedgerFile, Total
from tests.conftest import Call
from tests.node.live import live, one_each
from tests.store.ledger.charges import rows, sets

OWN = {"problem.name": "file", "network.topology": "ring", "network.agents": 3, "run.rounds": 8}
CODE = """
import numpy as np
class Bowl:
    dimension, smoothness = 2, 1.0
    def value(self, x): return float(x @ x) / 2
    def gradient(self, x): return x
def objective(agent, agents): return Bowl()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Data of three agents as CSV."""
    data = tmp_path / "data"
    data.mkdir()
    rng = np.random.default_rng(3)
    for agent in range(3):
        table = np.column_stack([rng.normal(size=(5, 2)), np.sign(rng.normal(size=5))])
        (data / f"agent-{agent}.csv").write_text("".join(",".join(map(repr, row)) + "\n" for row in table.tolist()))
    return data


def spend(dpp2: Call, tmp_path: Path, path: Path, **more: Any) -> Any:
    """One more run on these data, with secrets of its own."""
    chosen = {"problem__name": "file", "problem__path": path, "problem__dimension": None, "run__seed": "os", **more}
    ended = dpp2("run", "--json", "--force", "--out", tmp_path / "run", *sets(**chosen))
    assert ended.code == 0, ended.err
    return ended


def totals(tmp_path: Path) -> list[Total]:
    return LedgerFile(tmp_path / "ledger.sqlite").totals()


def runs(tmp_path: Path) -> list[int]:
    """How many runs count for each agent and data set."""
    return [total.runs for total in totals(tmp_path)]


def test_an_empty_line_gives_no_fresh_budget(folder: Path, tmp_path: Path, dpp2: Call) -> None:
    spend(dpp2, tmp_path, folder)
    with (folder / "agent-1.csv").open("a") as file:
        file.write("\n")
    spend(dpp2, tmp_path, folder)
    assert runs(tmp_path) == [2, 2, 2]


def test_another_format_gives_no_fresh_budget(folder: Path, tmp_path: Path, dpp2: Call) -> None:
    spend(dpp2, tmp_path, folder)
    for path in sorted(folder.iterdir()):
        table = np.loadtxt(path, delimiter=",")
        np.savez(path.with_suffix(".npz"), features=table[:, :-1], labels=table[:, -1])
        path.unlink()
    spend(dpp2, tmp_path, folder)
    assert runs(tmp_path) == [2, 2, 2]


def test_other_data_have_a_budget_of_their_own(folder: Path, tmp_path: Path, dpp2: Call) -> None:
    spend(dpp2, tmp_path, folder)
    with (folder / "agent-1.csv").open("a") as file:
        file.write("1,2,1\n")
    spend(dpp2, tmp_path, folder)
    assert sorted(runs(tmp_path)) == [1, 1, 2, 2]


def test_all_versions_of_a_named_set_share_one_budget(folder: Path, tmp_path: Path, dpp2: Call) -> None:
    spend(dpp2, tmp_path, folder)  # before it had a name
    spend(dpp2, tmp_path, folder, problem__dataset="patients")
    with (folder / "agent-1.csv").open("a") as file:
        file.write("1,2,1\n")
    spend(dpp2, tmp_path, folder, problem__dataset="patients")
    assert runs(tmp_path) == [3, 3, 3]
    assert [total.names for total in totals(tmp_path)] == [("patients",)] * 3
    own = [sum(row.epsilon or 0.0 for row in rows(tmp_path) if row.agent == agent) for agent in range(3)]
    spent = [total.spent.value for total in totals(tmp_path) if isinstance(total.spent, Epsilon)]
    assert spent == pytest.approx(own)


def test_a_name_joins_budgets_and_never_opens_one(folder: Path, tmp_path: Path, dpp2: Call) -> None:
    for name in ("first", "second", None):
        spend(dpp2, tmp_path, folder, problem__dataset=name)
    assert runs(tmp_path) == [3, 3, 3]


def test_the_same_seeded_run_on_two_versions_counts_twice(folder: Path, tmp_path: Path, dpp2: Call) -> None:
    """Its id follows from the experiment alone, and its noise from the data, too."""
    spend(dpp2, tmp_path, folder, run__seed=1, problem__dataset="patients")
    with (folder / "agent-1.csv").open("a") as file:
        file.write("1,2,1\n")
    spend(dpp2, tmp_path, folder, run__seed=1, problem__dataset="patients")
    assert len({row.run for row in rows(tmp_path)}) == 1
    assert runs(tmp_path) == [1, 2, 1]


def test_a_budget_ends_over_all_versions(folder: Path, tmp_path: Path, dpp2: Call) -> None:
    spent = json.loads(spend(dpp2, tmp_path, folder, problem__dataset="patients").out)["privacy"]["epsilon"]
    with (folder / "agent-1.csv").open("a") as file:
        file.write("0.001,0.001,1\n")
    again = spend(dpp2, tmp_path, folder, problem__dataset="patients", privacy__budget=1.5 * spent)
    document = json.loads(again.out)
    assert 0 < document["rounds"] < 8
    assert "earlier runs on the same data have spent" in document["privacy"]["stopped"]


def test_a_comment_in_a_program_gives_no_fresh_budget(tmp_path: Path, dpp2: Call) -> None:
    code = tmp_path / "bowl.py"
    for text in (CODE, CODE + "# nothing new\n", CODE.replace("/ 2", "/ 2.0")):
        code.write_text(text)
        spend(dpp2, tmp_path, code)
    assert sorted(runs(tmp_path)) == [1, 1, 1, 2, 2, 2]


def test_a_name_is_the_owners_own_and_not_part_of_the_experiment(folder: Path) -> None:
    named, bare = (
        Experiment.load(overrides=OWN | {"problem.path": str(folder)} | more).resolve()
        for more in ({"problem.dataset": "patients"}, {})
    )
    assert named.digest == bare.digest
    assert "patients" not in str(named.problem.public_form())


async def test_data_that_are_used_are_charged_and_not_what_lies_there_later(folder: Path, tmp_path: Path) -> None:
    experiment = Experiment.load(overrides=OWN | {"problem.path": str(folder)})
    async with live(experiment, tmp_path / "nodes", one_each(3)) as nodes:
        expected = [ledger.data_digest for ledger in nodes.simulation.budget.fresh_ledgers()]
        for agent in range(3):
            (folder / f"agent-{agent}.csv").write_text("1,1,1\n")
        await nodes.prepare()
        await nodes.finish()
    found = [row.data for home in nodes.homes for row in rows(home)]
    assert found == expected
    final = MergedRun.open([run_folder(home, nodes.run_id) for home in nodes.homes], 3, nodes.run_id).state()["x"]
    nodes.simulation.advance(nodes.simulation.remaining)
    assert final.tobytes() == nodes.simulation.result().x.tobytes()  # with the noise of the data that are used


# --- ledgers of format 1 --------------------------------------------------------------------------------------


def back_to_format_1(tmp_path: Path, folder: Path) -> None:
    """The file as it was before: entries under the bytes of files, and nothing besides."""
    names = {}
    for agent in range(3):
        content = (folder / f"agent-{agent}.csv").read_bytes()
        names[agent] = hashlib.sha256(hashlib.sha256(content).digest()).hexdigest()
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        for agent, name in names.items():
            connection.execute("UPDATE entries SET data = ? WHERE agent = ?", (name, str(agent)))
        connection.execute("ALTER TABLE entries DROP COLUMN format")
        connection.execute("DROP TABLE same")
        connection.execute("PRAGMA user_version = 0")
    connection.close()


def test_what_was_charged_in_format_1_still_counts(folder: Path, tmp_path: Path, dpp2: Call) -> None:
    spend(dpp2, tmp_path, folder)
    back_to_format_1(tmp_path, folder)
    assert "format 1" not in spend(dpp2, tmp_path, folder).err
    assert runs(tmp_path) == [2, 2, 2]
    with (folder / "agent-1.csv").open("a") as file:  # from now on bytes do not matter
        file.write("\n")
    spend(dpp2, tmp_path, folder)
    assert runs(tmp_path) == [3, 3, 3]


def test_a_file_that_has_changed_since_format_1_is_told_of_and_can_be_joined(
    folder: Path, tmp_path: Path, dpp2: Call, caplog: pytest.LogCaptureFixture
) -> None:
    spend(dpp2, tmp_path, folder)
    back_to_format_1(tmp_path, folder)
    before = rows(tmp_path)[1].data
    with (folder / "agent-1.csv").open("a") as file:
        file.write("\n")
    spend(dpp2, tmp_path, folder, problem__dataset="patients")
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("1 ledger entries of format 1 belong to no data seen since, and the data of agent 1 are new")
    ended = dpp2("privacy", "ledger", tmp_path, "--join", before, "--dataset", "patients", "--json")
    assert [total["runs"] for total in json.loads(ended.out)] == [2, 2, 2]
    spend(dpp2, tmp_path, folder)
    assert runs(tmp_path) == [3, 3, 3]
    assert len(caplog.records) == 1


def test_a_ledger_of_a_later_format_is_refused(tmp_path: Path, dpp2: Call) -> None:
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    ended = dpp2("privacy", "ledger", tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "a ledger of format 1 or 2, not of 3" in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--join", "0" * 64), "DATA and --dataset NAME together"),
        (("--join", "0" * 64, "--dataset", "patients"), "the identity of data that"),
    ],
)
def test_what_cannot_be_joined(words: tuple[str, ...], said: str, folder: Path, tmp_path: Path, dpp2: Call) -> None:
    spend(dpp2, tmp_path, folder)
    ended = dpp2("privacy", "ledger", tmp_path, *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in " ".join(ended.err.split())


def test_only_its_owner_can_read_a_ledger(folder: Path, tmp_path: Path, dpp2: Call) -> None:
    spend(dpp2, tmp_path, folder)
    assert (tmp_path / "ledger.sqlite").stat().st_mode & 0o777 == 0o600
