"""Runs that are interrupted, killed or resumed: charges are never too small, and right in the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dpp2.orchestrator import runner
from dpp2.orchestrator.runner import Interrupted
from dpp2.store import files
from dpp2.store.rundir import read_metrics
from tests.store.ledger.charges import (
    ROUNDS,
    Killed,
    experiment,
    kill_at,
    rounds_charged,
    rows,
    sets,
    silent,
    stop_at,
    total,
    worst,
)


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
        write = files.write_whole
        for deadly in range(1, 1 + 2 * 3 + 6):
            folder, left = tmp_path / str(deadly), iter(range(deadly, -1, -1))

            def counted(*args: Any, left: Iterator[int] = left) -> None:
                if next(left) == 0:
                    raise Killed
                write(*args)

            with monkeypatch.context() as patched:
                patched.setattr(files, "write_whole", counted)
                with suppress(Killed):
                    self.begin(folder / "run", run__rounds=3)
            parts = [int(part.stem.split("-")[2]) for part in folder.rglob("records-*.npz")]
            assert all(charged >= max(parts, default=0) for charged in rounds_charged(folder))
            runner.resume(folder / "run", [], silent)
            assert rounds_charged(folder) == [3] * 3


PREPARED = """
import os, signal, time
from dpp2.budget import RunBudget
from dpp2.orchestrator import plots
from dpp2.orchestrator.transports import embedded
from dpp2.store import rundir
plots.convergence = plots.epsilon = lambda *args: None
embedded._CHECKPOINT_SECONDS, embedded._LOOK_SECONDS = -1.0, 0.0
{}
from dpp2.orchestrator.cli import main
main()
"""
# Look at the ledger, then take one's time before charging it: without a lock both would be granted the same rest.
SLOW = """
allow = RunBudget.allow
def slow(self, ledgers):
    if self.allowance.rounds:  # the second time: it has been told how far it goes without any ledger
        time.sleep(0.5)
    allow(self, ledgers)
RunBudget.allow = slow
"""
DIES = """
save = rundir.RunDirectory.save
def saved(self, snapshot):
    save(self, snapshot)
    if snapshot.k == 3:
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
