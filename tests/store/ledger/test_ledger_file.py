"""The ledger as a file: results that are published, damage, and where it is."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dpp2 import BadInput, Simulation
from dpp2.orchestrator import runner
from dpp2.orchestrator.runner import Interrupted
from dpp2.privacy import epsilon
from dpp2.store.ledgers import LedgerFile
from tests.store.ledger.charges import (
    ROUNDS,
    Call,
    Killed,
    Run,
    experiment,
    mechanisms,
    number,
    rounds_charged,
    rows,
    sets,
    silent,
    stop_at,
    total,
    worst,
)


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

        monkeypatch.setattr("dpp2.store.ledgers.sqlite3.connect", refuse)
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
        monkeypatch.setattr("dpp2.store.ledgers._entry", die)
        with pytest.raises(Killed):
            LedgerFile(tmp_path / "ledger.sqlite").reserve(simulation.budget)
        assert rows(tmp_path) == before


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


class TestOpenFiles:
    """A node's port is open to strangers, who take descriptors and let them go again."""

    @pytest.fixture
    def taken(self) -> Iterator[list[int]]:
        """All descriptors that this process may have, but for the first of the list, which are opened last."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, hard))
        taken: list[int] = []
        with suppress(OSError):
            while True:
                taken.append(os.dup(2))
        yield taken
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    @pytest.mark.parametrize("left", [0, 1])
    def test_too_many_are_one_sentence(
        self, tmp_path: Path, taken: list[int], left: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dpp2.store.turns._DESCRIPTOR_SECONDS", 0.1)
        for _ in range(left):
            os.close(taken.pop())
        with pytest.raises(BadInput, match=r"a ledger that can be used \(too many open files\)"):
            LedgerFile(tmp_path / "ledger.sqlite").totals()

    def test_they_are_waited_for(self, tmp_path: Path, taken: list[int]) -> None:
        def give_back() -> None:
            time.sleep(0.3)
            while taken:
                os.close(taken.pop())

        giving = threading.Thread(target=give_back)
        giving.start()
        assert LedgerFile(tmp_path / "ledger.sqlite").totals() == []
        giving.join()


class TestTurns:
    """Fifty nodes that begin at once are charged one after the other."""

    @pytest.fixture
    def held(self, tmp_path: Path) -> Iterator[sqlite3.Connection]:
        """Somebody else's transaction."""
        connection = sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None, check_same_thread=False)
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.close()

    def test_a_turn_is_waited_for(self, tmp_path: Path, held: sqlite3.Connection) -> None:
        letting_go = threading.Timer(0.3, held.rollback)
        letting_go.start()
        assert LedgerFile(tmp_path / "ledger.sqlite").totals() == []
        letting_go.join()

    def test_a_turn_that_never_comes_is_one_sentence(
        self, tmp_path: Path, held: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dpp2.store.turns._TURN_SECONDS", 0)
        with pytest.raises(BadInput, match=r"a ledger that can be used \(database is locked\)"):
            LedgerFile(tmp_path / "ledger.sqlite").totals()

    def test_a_reader_beside_it_is_waited_for(self, tmp_path: Path, dpp2_run: Run) -> None:
        """Such as `sqlite3 ledger.sqlite`: what is charged is written when it has read."""
        dpp2_run(*sets(), "--out", tmp_path / "first")
        reader = sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None, check_same_thread=False)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        letting_go = threading.Timer(0.3, reader.rollback)
        letting_go.start()
        dpp2_run(*sets(run__seed=2), "--out", tmp_path / "second")
        letting_go.join()
        reader.close()
        assert len(rows(tmp_path)) == 6
