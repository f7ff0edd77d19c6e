"""A run directory is used by one command at a time, and runs that start together have distinct names."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dpp2 import BadInput, Experiment
from dpp2.orchestrator import runner
from dpp2.orchestrator.publish import publish
from dpp2.store.locks import free_directory, locked, new_run, opened_run
from dpp2.store.rundir import RunDirectory

Call = Callable[..., Any]
TABLES = {"network.topology": "ring", "network.agents": 4, "problem.dimension": 2, "run.rounds": 6}


@pytest.fixture
def run(tmp_path: Path, quick_plot: None) -> Path:
    runner.start(Experiment.load(overrides=TABLES), tmp_path / "run", stem="", force=False, progress=silent)
    return tmp_path / "run"


def silent(done: int, total: int, note: str) -> None:
    pass


def contents(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


class TestALiveRun:
    """Whatever would write into it is refused, and its files stay as they are."""

    def test_is_not_replaced(self, dpp2: Call, run: Path, small: list[str]) -> None:
        before = contents(run)
        with opened_run(run):
            ended = dpp2("run", "--out", run, "--force", *small)
        assert (ended.code, contents(run)) == (2, before)
        assert ended.err.startswith("dpp2: --out = ")
        assert "no other command is using" in ended.err

    def test_is_not_resumed(self, dpp2: Call, run: Path) -> None:
        before = contents(run)
        with opened_run(run):
            ended = dpp2("run", "--resume", run, "--set", "run.rounds=9")
        assert (ended.code, contents(run)) == (2, before)
        assert ended.err.startswith("dpp2: --resume = ")

    def test_is_not_audited(self, dpp2: Call, run: Path) -> None:
        with opened_run(run):
            ended = dpp2("audit", run, "--no-game", "--attack", "three-round")
        assert ended.code == 2
        assert not list(run.glob("audit*"))

    def test_is_not_published(self, run: Path) -> None:
        with opened_run(run), pytest.raises(BadInput, match="no other command is using"):
            publish(run)

    def test_is_locked_while_its_rounds_go_on(self, tmp_path: Path, quick_plot: None) -> None:
        refused = []

        def meanwhile(done: int, total: int, note: str) -> None:
            if not done:
                return
            with pytest.raises(BadInput) as refusal:
                runner.resume(tmp_path / "run", [], silent)
            refused.append(refusal.value.field)

        runner.start(Experiment.load(overrides=TABLES), tmp_path / "run", stem="", force=False, progress=meanwhile)
        assert set(refused) == {"--resume"}
        runner.resume(tmp_path / "run", ["run.rounds=8"], silent)  # and free when they have ended


def test_readers_share_and_writers_do_not(tmp_path: Path) -> None:
    def share() -> AbstractContextManager[None]:
        return locked(tmp_path, "RUN", shared=True)

    with share(), share(), pytest.raises(BadInput), locked(tmp_path, "RUN"):
        pass
    with locked(tmp_path, "RUN"):
        pass


def test_a_lock_leaves_no_file(tmp_path: Path) -> None:
    with locked(tmp_path, "RUN"):
        assert not list(tmp_path.iterdir())


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        locked(tmp_path, "RUN").__enter__()
        os._exit(0)  # nothing is cleaned up, as after SIGKILL
    os.waitpid(child, 0)
    with locked(tmp_path, "RUN"):
        pass


class TestNames:
    def test_skip_files_and_folders(self, tmp_path: Path) -> None:
        (tmp_path / "a-1").mkdir()
        (tmp_path / "a-2").write_text("")
        (tmp_path / "a-3").symlink_to("nowhere")
        assert free_directory(tmp_path, "a") == tmp_path / "a-4"

    def test_of_many_at_once_are_distinct(self, tmp_path: Path) -> None:
        with ThreadPoolExecutor(16) as pool:
            made = list(pool.map(lambda _: free_directory(tmp_path / "runs", "paper"), range(64)))
        assert len(set(made)) == 64
        assert {path.name for path in made} == {f"paper-{number}" for number in range(1, 65)}

    def test_two_runs_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with new_run(None, stem="paper") as first, new_run(None, stem="paper") as second:
            assert (first, second) == (RunDirectory(Path("runs/paper-1")), RunDirectory(Path("runs/paper-2")))
