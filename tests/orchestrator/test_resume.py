"""A run that was stopped, killed or extended ends with the same bytes as one that went through undisturbed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import BadInput, Experiment, Simulation
from dpp2.orchestrator import runner
from dpp2.orchestrator.runner import Interrupted
from dpp2.orchestrator.transports import embedded
from dpp2.prepared import PreparedRun, Secrets
from dpp2.store import files
from dpp2.store.files import read_npz
from dpp2.store.ledgers import LedgerFile
from dpp2.store.rundir import RunDirectory
from tests.answers import BOWL

Call = Callable[..., Any]
Arm = Callable[[int | None], None]
Bytes = Callable[[Path], dict[str, bytes]]
ROUNDS = 8
TABLES = {
    "network.topology": "star",
    "network.agents": 5,
    "problem.name": "least-squares",
    "problem.dimension": 3,
    "run.rounds": ROUNDS,
}


class Killed(BaseException):
    """Nothing catches this, like SIGKILL."""


@pytest.fixture(autouse=True)
def _checkpoint_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(embedded, "_LOOK_SECONDS", 0.0)


def silent(done: int, total: int, note: str) -> None:
    pass


def experiment(**changes: Any) -> Experiment:
    return Experiment.load(overrides=TABLES | {name.replace("__", "."): value for name, value in changes.items()})


def begin(path: Path, chosen: Experiment, progress: runner.Progress = silent) -> None:
    runner.start(chosen, path, stem="", force=False, progress=progress)


def resume(path: Path, *overrides: str, progress: runner.Progress = silent) -> None:
    runner.resume(path, list(overrides), progress)


@pytest.fixture
def killed_at_write(monkeypatch: pytest.MonkeyPatch) -> Arm:
    """Let the process die at its n-th write from here on (None: never): each file is there whole or not at all."""
    write = files.write_whole
    writes: Iterator[int] = count()
    deadly: int | None = None

    def counted(*args: Any) -> None:
        if next(writes) == deadly:
            raise Killed
        write(*args)

    def arm(number: int | None) -> None:
        nonlocal deadly, writes
        deadly, writes = number, count()

    monkeypatch.setattr(files, "write_whole", counted)
    return arm


@pytest.fixture(params=[True, False], ids=["checkpoints", "no checkpoints"])
def writes_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], int]:
    """How many files so many rounds write: the experiment, two per checkpoint, and seven at the end."""
    if request.param:
        return lambda rounds: 1 + 2 * rounds + 7
    monkeypatch.setattr(embedded, "_CHECKPOINT_SECONDS", np.inf)
    return lambda rounds: 1 + 7


@pytest.mark.usefixtures("quick_plot")
class TestKilled:
    """Killed before every single write of a run, one after the other."""

    def test_from_the_start(
        self, tmp_path: Path, records: Bytes, killed_at_write: Arm, writes_of: Callable[[int], int]
    ) -> None:
        begin(tmp_path / "whole", experiment())
        for number in count():
            path = tmp_path / str(number)
            killed_at_write(number)
            try:
                begin(path, experiment())
            except Killed:
                killed_at_write(None)
                if number:  # killed before the experiment was written down: there is nothing to resume
                    resume(path)
                    assert records(path) == records(tmp_path / "whole"), f"killed at write {number}"
            else:
                assert number == writes_of(ROUNDS)
                return

    def test_twice_while_it_is_extended(
        self, tmp_path: Path, records: Bytes, killed_at_write: Arm, writes_of: Callable[[int], int]
    ) -> None:
        begin(tmp_path / "whole", experiment(run__rounds=ROUNDS + 4))
        for number in count():
            path = tmp_path / str(number)
            killed_at_write(None)
            begin(path, experiment())
            try:
                killed_at_write(number)
                resume(path, f"run.rounds={ROUNDS + 4}")
            except Killed:
                killed_at_write(number // 2 + 1)
                with suppress(Killed):  # it may be through before
                    resume(path, f"run.rounds={ROUNDS + 4}")
                killed_at_write(None)
                resume(path, f"run.rounds={ROUNDS + 4}")
                assert records(path) == records(tmp_path / "whole"), f"killed at write {number}"
            else:
                assert number == writes_of(4)
                return

    def test_while_drawing(self, tmp_path: Path, records: Bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        begin(tmp_path / "whole", experiment())
        with monkeypatch.context() as patched:
            patched.setattr("dpp2.orchestrator.plots.convergence", kill)
            with pytest.raises(Killed):
                begin(tmp_path / "cut", experiment())
        resume(tmp_path / "cut")
        assert records(tmp_path / "cut") == records(tmp_path / "whole")


def kill(*args: object) -> None:
    raise Killed


@pytest.mark.usefixtures("quick_plot")
class TestStopped:
    def test_ctrl_c_then_resume(self, tmp_path: Path, records: Bytes) -> None:
        begin(tmp_path / "whole", experiment())
        path = tmp_path / "with space"
        with pytest.raises(Interrupted, match=r"after 3 rounds; `dpp2 run --resume '.*with space'` goes on") as stopped:
            begin(path, experiment(), progress=press_ctrl_c_at(3))
        assert (stopped.value.path, stopped.value.k) == (path, 3)
        assert not (path / "metrics.csv").exists()
        with pytest.raises(Interrupted):
            resume(path, progress=press_ctrl_c_at(6))
        resume(path)
        assert records(path) == records(tmp_path / "whole")
        assert [file.name for file in (path / "checkpoint").iterdir()] == ["state.npz"]

    @pytest.mark.parametrize(
        ("damage", "sentence"),
        [
            (lambda part: os.truncate(part, 100), r"records-000000001-000000002\.npz cannot be used"),
            (Path.unlink, "the records of rounds 1 to 2 are gone"),
        ],
    )
    def test_records_lost_meanwhile(self, damage: Callable[[Path], None], sentence: str, tmp_path: Path) -> None:
        with pytest.raises(Interrupted):
            begin(tmp_path / "run", experiment(), progress=press_ctrl_c_at(3))
        damage(tmp_path / "run/checkpoint/records-000000001-000000002.npz")
        with pytest.raises(BadInput, match=sentence):
            resume(tmp_path / "run")

    @pytest.mark.parametrize("found", [False, True])
    def test_ctrl_c_before_anything_is_written_leaves_nothing(self, found: bool, tmp_path: Path) -> None:
        """But for a directory that was there before."""
        path = tmp_path / "run"
        if found:
            path.mkdir()
        with pytest.raises(KeyboardInterrupt):
            begin(path, experiment(), progress=press_ctrl_c_at(0, "consulting the ledgers"))
        assert (path.is_dir(), list(path.glob("*"))) == (found, [])
        begin(path, experiment())

    def test_killed_before_anything_is_written(self, tmp_path: Path) -> None:
        """Nobody cleans up then; the directory is as good as empty."""
        RunDirectory.create(tmp_path / "run", force=False)
        begin(tmp_path / "run", experiment())

    def test_ctrl_c_in_the_last_round_finishes(self, tmp_path: Path) -> None:
        begin(tmp_path / "run", experiment(), progress=press_ctrl_c_at(ROUNDS))
        assert (tmp_path / "run/metrics.csv").exists()

    def test_the_handler_is_put_back(self, tmp_path: Path) -> None:
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(Interrupted):
            begin(tmp_path / "run", experiment(), progress=press_ctrl_c_at(2))
        assert signal.getsignal(signal.SIGINT) is before

    def test_a_finished_run_says_that_it_was(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        told = "no round was left to run, so this is the run as it was: --set run.rounds=K makes the run longer\n"
        first = dpp2("run", "--out", tmp_path / "run", *small)
        again = dpp2("run", "--resume", tmp_path / "run")
        longer = dpp2("run", "--resume", tmp_path / "run", "--set", "run.rounds=9")
        assert (again.code, told in first.out, again.out.startswith(told)) == (0, False, True)
        assert (longer.code, told in longer.out) == (0, False)

    def test_exit_code(self, tmp_path: Path, dpp2: Call, small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Simulation, "advance", press_ctrl_c_before(Simulation.advance))
        ended = dpp2("run", "--json", "--out", tmp_path / "run", *small)
        assert (ended.code, ended.out) == (130, "")
        assert ended.err == f"dpp2: stopped after 1 rounds; `dpp2 run --resume {tmp_path / 'run'}` goes on from there\n"


def press_ctrl_c_at(k: int, what: str = "") -> runner.Progress:
    """Once: after the last round a run announces more than that round."""
    left = [signal.SIGINT]
    return lambda done, total, doing: signal.raise_signal(left.pop()) if done == k and what in doing and left else None


def press_ctrl_c_before(advance: Callable[[Simulation, int], None]) -> Callable[[Simulation, int], None]:
    def pressed(simulation: Simulation, rounds: int) -> None:
        signal.raise_signal(signal.SIGINT)
        advance(simulation, rounds)

    return pressed


@pytest.mark.usefixtures("quick_plot")
class TestExtended:
    @pytest.mark.parametrize("more", [{}, {"run__telemetry": "none"}, {"algorithm__eta": [0.5] * 20}])
    def test_equals_one_long_run(self, more: dict[str, Any], tmp_path: Path, records: Bytes) -> None:
        begin(tmp_path / "long", experiment(run__rounds=20, **more))
        begin(tmp_path / "run", experiment(**more))
        resume(tmp_path / "run", "run.rounds=13")
        resume(tmp_path / "run", " run.rounds = 20")
        assert records(tmp_path / "run") == records(tmp_path / "long")
        assert Experiment.load(tmp_path / "run/experiment.toml").run.rounds == 20

    def test_nothing_to_do_changes_nothing(self, tmp_path: Path, records: Bytes) -> None:
        begin(tmp_path / "run", experiment())
        before = records(tmp_path / "run")
        resume(tmp_path / "run")
        assert records(tmp_path / "run") == before

    def test_seconds_add_up(self, tmp_path: Path, dpp2: Call, small: list[str]) -> None:
        first = json.loads(dpp2("run", "--json", "--out", tmp_path / "run", *small).out)
        longer = json.loads(dpp2("run", "--json", "--resume", tmp_path / "run", "--set", "run.rounds=50").out)
        assert longer["seconds"] > first["seconds"]
        assert longer["rounds"] == 50

    def test_eta_given_for_fewer_rounds(self, tmp_path: Path) -> None:
        begin(tmp_path / "run", experiment(algorithm__eta=[0.5] * ROUNDS))
        with pytest.raises(BadInput, match=r"^algorithm.eta = .*at least run.rounds = 9 entries, not 8"):
            resume(tmp_path / "run", "run.rounds=9")

    def test_a_diverged_run_is_over(self, tmp_path: Path) -> None:
        begin(tmp_path / "run", experiment(problem__name="quadratic", problem__curvature=1e100))
        with pytest.raises(BadInput, match="this one diverged"):
            resume(tmp_path / "run", "run.rounds=20")

    def test_other_data_are_another_run(self, tmp_path: Path) -> None:
        """Noise rests on the data: a run that went on with others would be two runs, one after the other."""
        bowl = tmp_path / "bowl.py"
        bowl.write_text(BOWL)
        own = {"problem.name": "file", "problem.path": str(bowl), "network.agents": 3, "run.rounds": ROUNDS}
        begin(tmp_path / "run", Experiment.load(overrides=own))
        before = (tmp_path / "run/experiment.toml").read_bytes()
        bowl.write_text(f"{BOWL}# changed")
        with pytest.raises(BadInput, match="the data that were run"):
            resume(tmp_path / "run", "run.rounds=20")
        assert (tmp_path / "run/experiment.toml").read_bytes() == before
        bowl.write_text(BOWL)
        resume(tmp_path / "run", "run.rounds=20")

    def test_a_changed_graph_is_another_experiment(self, tmp_path: Path) -> None:
        edges = tmp_path / "edges.txt"
        edges.write_text("0 1\n1 2\n2 0\n")
        tables = {"network.topology": "file", "network.path": str(edges), "run.rounds": 4}
        begin(tmp_path / "run", Experiment.load(overrides=tables))
        edges.write_text("0 1\n1 2\n")
        with pytest.raises(BadInput, match="has changed"):
            resume(tmp_path / "run", "run.rounds=5")


@pytest.mark.usefixtures("quick_plot")
class TestUnseeded:
    def test_goes_on_with_the_same_secrets(self, tmp_path: Path) -> None:
        """As one run in one go from the secrets that were kept."""
        path, chosen = tmp_path / "run", experiment(run__seed="os")
        with pytest.raises(Interrupted):
            begin(path, chosen, progress=press_ctrl_c_at(3))
        kept = json.loads((path / "checkpoint/secrets.json").read_text())
        resume(path)
        assert json.loads((path / "checkpoint/secrets.json").read_text()) == kept
        secrets = Secrets(bytes.fromhex(kept["agent"]), bytes.fromhex(kept["eta"]), kept["run_id"])
        whole = Simulation(PreparedRun.of(chosen, secrets))
        whole.advance(ROUNDS)
        truth = read_npz(path / "truth.npz")
        for name, array in (whole.result().truth or {}).items():
            np.testing.assert_array_equal(truth[name], array)

    def test_killed_before_its_secrets_were_kept(self, tmp_path: Path, killed_at_write: Arm) -> None:
        """Nothing was sent yet, so it may start over with fresh ones."""
        killed_at_write(1)
        with pytest.raises(Killed):
            begin(tmp_path / "run", experiment(run__seed="os"))
        killed_at_write(None)
        assert not (tmp_path / "run/checkpoint/secrets.json").exists()
        resume(tmp_path / "run")
        assert (tmp_path / "run/checkpoint/secrets.json").exists()

    def test_without_its_secrets_it_stays_where_it_is(self, tmp_path: Path) -> None:
        """Fresh noise on top of the state of other noise would be a run that never was."""
        begin(tmp_path / "run", experiment(run__seed="os"))
        (tmp_path / "run/checkpoint/secrets.json").unlink()
        with pytest.raises(BadInput, match=r"checkpoint/secrets\.json cannot be used"):
            resume(tmp_path / "run", "run.rounds=9")


LONG = ("--set", "run.rounds=6000")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, dpp2: Call, small: list[str]) -> Path:
    """A long run that nobody disturbs."""
    path = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert dpp2("run", "--out", path, *small, *LONG).code == 0
    return path


@pytest.mark.slow
class TestRealProcess:
    """Real processes, real signals, at moments that nobody chose with care."""

    COMMAND = (
        sys.executable,
        "-c",
        "from dpp2.orchestrator.transports import embedded; embedded._CHECKPOINT_SECONDS = 0.1; "
        "from dpp2.orchestrator.cli import main; main()",
        "run",
    )

    def test_sigint(
        self, whole: Path, tmp_path: Path, small: list[str], records: Bytes, environment: dict[str, str]
    ) -> None:
        path = tmp_path / "run"
        code, out, err = self.stopped(signal.SIGINT, 0.2, path, environment, "--out", str(path), *small, *LONG)
        assert (code, out) == (130, "")
        assert err.startswith("dpp2: stopped after ")
        assert err.count("\n") == 1
        assert not (path / "solution.npz").exists()
        subprocess.run([*self.COMMAND, "--resume", str(path)], env=environment, check=True, capture_output=True)
        assert records(path) == records(whole)

    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_sigkill_again_and_again(
        self, seed: int, whole: Path, tmp_path: Path, small: list[str], records: Bytes, environment: dict[str, str]
    ) -> None:
        moments, path = random.Random(seed), tmp_path / "run"
        arguments = ["--out", str(path), *small, *LONG]
        for _ in range(3):
            self.stopped(signal.SIGKILL, moments.uniform(0.05, 1.2), path, environment, *arguments)
            arguments = ["--resume", str(path)]
        subprocess.run([*self.COMMAND, *arguments], env=environment, check=True, capture_output=True)
        assert records(path) == records(whole)
        assert not list(path.rglob(".*.part"))

    def stopped(
        self, number: int, seconds: float, path: Path, environment: dict[str, str], *arguments: str
    ) -> tuple[int, str, str]:
        """Start, wait until the run directory is used, then a while, then send the signal."""
        began = time.time_ns()
        with subprocess.Popen(
            [*self.COMMAND, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        ) as process:
            written = path / "experiment.toml"
            while process.poll() is None and not (written.exists() and written.stat().st_mtime_ns > began):
                time.sleep(0.01)
            time.sleep(seconds)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err


def test_a_ledger_that_cannot_be_settled_is_said_and_the_run_is_whole(
    tmp_path: Path, dpp2: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: LedgerFile, budget: object) -> None:
        raise BadInput("ledger", str(self.path), "a ledger that can be used (database or disk is full)")

    settings = [word for name, value in TABLES.items() for word in ("--set", f"{name}={value}")]
    with monkeypatch.context() as patch:
        patch.setattr(LedgerFile, "settle", full)
        ended = dpp2("run", *settings, "--out", tmp_path / "run")
    assert ended.code == 1
    said = ("is finished and written to", "database or disk is full", "the charge made before", "run --resume")
    assert [words for words in said if words not in ended.err] == []
    assert (tmp_path / "run/result.json").is_file()
    assert dpp2("run", "--resume", tmp_path / "run").code == 0


def test_what_ended_a_run_is_said_although_its_ledger_cannot_be_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise BadInput("ledger", "", "a ledger that can be used (database or disk is full)")

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device", "observation.npz")

    monkeypatch.setattr(LedgerFile, "settle", full)
    monkeypatch.setattr(runner, "write_results", broken)
    with pytest.raises(OSError, match="No space left on device"):
        begin(tmp_path / "run", experiment())
