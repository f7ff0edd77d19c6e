"""How commands are found, loaded, helped with and ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dpp2.orchestrator import output
from dpp2.orchestrator.cli import app
from dpp2.orchestrator.commands import COMMANDS, load
from dpp2.orchestrator.output import progress_bar

Call = Callable[..., Any]
ROOT = Path(__file__).parents[2]
QUIET = """import os, sys
sys.argv = ["dpp2", "--help"]
from dpp2.orchestrator.__main__ import main
try:
    main()
except SystemExit:
    print({shown})
"""
PRESSED = """import os, signal, sys
module = sys.argv[1]
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
sys.argv = ["dpp2", "run", "no.toml"]
from dpp2.orchestrator.__main__ import main
main()
"""
DPP2 = (sys.executable, "-m", "dpp2")


def called(*words: str, environment: dict[str, str], **more: Any) -> subprocess.CompletedProcess[str]:
    env = environment | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([*DPP2, *words], env=env, capture_output=True, text=True, check=False, **more)


class TestHelp:
    @pytest.mark.parametrize("word", ["-h", "--help"])
    def test_lists_the_commands_in_the_order_people_need_them(self, dpp2: Call, word: str) -> None:
        ended = dpp2(word)
        shown = re.findall(r"^│ (\w+) ", ended.out, re.MULTILINE)
        assert ended.code == 0
        assert shown == [command.name for command in COMMANDS]

    def test_has_every_command_that_there_is(self) -> None:
        load()
        group: Any = typer.main.get_command(app)
        assert set(group.commands) == {command.name for command in COMMANDS}

    @pytest.mark.parametrize("name", [command.name for command in COMMANDS if command.name != "node"])
    def test_every_command_is_loaded_by_its_name(self, dpp2: Call, name: str) -> None:
        assert f"Usage: dpp2 {name} " in dpp2(name, "-h").out

    def test_loads_no_mathematics(self, environment: dict[str, str]) -> None:
        """That is where the time went; 0.4 s are the goal."""
        heavy = ("numpy", "pydantic", "scipy", "matplotlib", "dpp2.experiment")
        code = QUIET.format(shown=f"[name for name in {heavy} if name in sys.modules]")
        ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=ROOT)
        assert ended.stdout.splitlines()[-1] == "[]"

    def test_options_take_values_that_are_named_alike(self, dpp2: Call) -> None:
        load()
        for command in ("run", "reproduce", "audit"):
            assert "<" not in dpp2(command, "--help").out.partition("Options")[2]

    def test_nothing_is_help_and_bad_input(self, dpp2: Call) -> None:
        ended = dpp2()
        assert ended.code == 2
        assert "Usage: dpp2" in ended.out


class TestModule:
    def test_python_m_dpp2_is_dpp2(self, environment: dict[str, str], tmp_path: Path) -> None:
        ended = called("--version", environment=environment, cwd=tmp_path)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert re.fullmatch(r"dpp2 \d+\.\d+\.\d+\n", ended.stdout)

    @pytest.mark.parametrize(
        "module", ["dpp2.orchestrator.commands", "dpp2.orchestrator.cli", "dpp2.orchestrator.cli.run", "numpy"]
    )
    def test_ctrl_c_while_it_loads_shows_no_traceback(self, module: str, environment: dict[str, str]) -> None:
        """Pressed at the very moment at which this module is looked for."""
        ended = subprocess.run(
            [sys.executable, "-c", PRESSED, module], env=environment, capture_output=True, text=True, cwd=ROOT
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")

    def test_blas_has_one_thread_unless_somebody_says_otherwise(self, environment: dict[str, str]) -> None:
        code = QUIET.format(shown="os.environ['OMP_NUM_THREADS']")
        bare = {name: value for name, value in environment.items() if not name.endswith("_NUM_THREADS")}
        for given, expected in ((bare, "1"), (bare | {"OMP_NUM_THREADS": "3"}, "3")):
            ended = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, cwd=ROOT)
            assert ended.stdout.splitlines()[-1] == expected


class TestDebug:
    @pytest.mark.parametrize("words", [("--debug", "run", "no.toml"), ("run", "no.toml", "--debug")])
    def test_shows_where_a_sentence_comes_from(self, dpp2: Call, words: tuple[str, ...]) -> None:
        ended = dpp2(*words)
        assert ended.code == 2
        assert ended.err.startswith("Traceback (most recent call last)")
        assert ended.err.splitlines()[-1].startswith("dpp2: FILE = 'no.toml'")

    def test_an_error_of_ours_is_a_sentence_without_it(self, dpp2: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: object) -> None:
            raise ZeroDivisionError("all of it")

        monkeypatch.setattr("dpp2.shipped.shipped_experiments", broken)
        monkeypatch.setattr("dpp2.orchestrator.catalogue.shipped_experiments", broken)
        ended = dpp2("list")
        assert ended.code == 1
        assert ended.err == (
            "dpp2: unexpected ZeroDivisionError: all of it; this is an error in dpp2, and --debug shows where\n"
        )


class TestCompletion:
    def complete(self, environment: dict[str, str], line: str, tmp_path: Path) -> list[str]:
        count = len(line.split(" ")) - 1
        env = environment | {"_DPP2_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(count)}
        return called(environment=env, cwd=tmp_path).stdout.split()

    def test_of_commands(self, environment: dict[str, str], tmp_path: Path) -> None:
        assert self.complete(environment, "dpp2 re", tmp_path) == ["reproduce"]

    def test_of_shipped_experiments(self, environment: dict[str, str], tmp_path: Path) -> None:
        assert self.complete(environment, "dpp2 run da", tmp_path) == ["damped"]

    def test_of_options(self, environment: dict[str, str], tmp_path: Path) -> None:
        assert "--attacker" in self.complete(environment, "dpp2 audit --att", tmp_path)


class TestHeartbeat:
    def test_is_a_plain_line_where_there_is_no_terminal(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(output, "HEARTBEAT_SECONDS", 0.01)
        with progress_bar("rounds") as show:
            before = self.next_line(capsys)
            show(1200, 20000, "gap 1.0e-03")
            self.next_line(capsys)  # it may have been on its way already
            after = self.next_line(capsys)
        assert re.fullmatch(r"rounds: preparing \(\d+ s\)", before)
        assert re.fullmatch(r"rounds: 1,200 of 20,000, gap 1.0e-03 \(\d+ s\)", after)

    def test_says_how_much_time_is_left(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """By what was done since it began: half of the runs are kept from before."""
        monkeypatch.setattr(output, "HEARTBEAT_SECONDS", 0.01)
        with progress_bar("compare") as show:
            show(500, 1000, "searching")
            time.sleep(0.2)
            show(501, 1000, "searching")
            self.next_line(capsys)
            line = self.next_line(capsys)
        left = re.search(r"501 of 1,000, searching, about (\d+) (s|min) left", line)
        assert left
        assert float(left[1]) * {"s": 1, "min": 60}[left[2]] > 90

    def test_an_estimate_that_has_run_out_is_not_repeated(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(output, "HEARTBEAT_SECONDS", 0.01)
        monkeypatch.setattr(output, "_STANDING_SECONDS", 0.0)
        with progress_bar("audit") as show:
            show(0, 17, "smoother")
            time.sleep(0.05)
            show(16, 17, "report")
            time.sleep(0.2)
            self.next_line(capsys)
            line = self.next_line(capsys)
        assert re.fullmatch(r"audit: 16 of 17, report for \d+ s \(\d+ s\)", line)

    def test_says_for_how_long_a_step_has_been_going_on(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(output, "HEARTBEAT_SECONDS", 0.01)
        monkeypatch.setattr(output, "_STANDING_SECONDS", 0.0)
        with progress_bar("rounds") as show:
            show(0, 20, "drawing the graph")
            self.next_line(capsys)
            line = self.next_line(capsys)
        assert re.fullmatch(r"rounds: 0 of 20, drawing the graph for \d+ s \(\d+ s\)", line)

    def next_line(self, capsys: pytest.CaptureFixture[str]) -> str:
        said = ""
        while not said.endswith("\n"):
            time.sleep(0.01)
            said += capsys.readouterr().err
        return said.splitlines()[-1]

    def test_says_nothing_of_what_is_soon_over(self, capsys: pytest.CaptureFixture[str]) -> None:
        with progress_bar("rounds") as show:
            show(1, 2, "")
        assert capsys.readouterr().err == ""


def test_a_run_says_what_took_long_beside_its_rounds(
    dpp2: Any, small: list[str], quick_plot: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dpp2.orchestrator.cli.run._LONG_SECONDS", 1000.0)
    assert "outside the rounds" not in dpp2("run", *small, "--out", tmp_path / "soon").out
    monkeypatch.setattr("dpp2.orchestrator.cli.run._LONG_SECONDS", 0.0)
    said = dpp2("run", *small, "--out", tmp_path / "long").out
    assert re.search(r"^outside the rounds \d+\.\d s: drawing the graph .* \d+\.\d s, .*ledgers \d+\.\d s$", said, re.M)


BOWL = """class Bowl:
    dimension = 1
    def value(self, x): return float(x @ x) / 2
    def gradient(self, x): return x
def objective(agent, agents): return Bowl()
"""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("noise.u_e=0", r"∞ \(the paper's Theorem 3 does not apply: it needs u_e, u_w and the decay above 0\)"),
        ("noise.u_e=1e-6", r"\S+, with δ_dp = 1: no promise \(the paper's Theorem 3 says \S+\)"),
        (
            "problem.path=bowl.py",
            r"unsupported, because no bound .* \(the paper's Theorem 3 does not apply either\)",
        ),
    ],
)
def test_a_run_says_what_its_epsilon_is_worth(
    changes: str, said: str, dpp2: Any, quick_plot: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bowl.py").write_text(BOWL)
    own = ["problem.name=file"] if "path" in changes else []
    small = ["network.topology=ring", "network.agents=4", "run.rounds=8", *own, changes]
    lines = dpp2("run", *(word for change in small for word in ("--set", change))).out.splitlines()
    (spent,) = (line for line in lines if line.startswith("ε spent by the worst-off agent"))
    assert re.fullmatch(f"ε spent by the worst-off agent: {said}", spent)


def test_a_run_says_what_it_does_before_its_first_round_and_after_its_last(tmp_path: Path, quick_plot: None) -> None:
    from dpp2 import Experiment
    from dpp2.orchestrator import runner

    told: list[str] = []
    experiment = Experiment.load(overrides={"network.topology": "ring", "network.agents": 4, "run.rounds": 3})
    finished = runner.start(
        experiment, tmp_path / "run", stem="", force=False, progress=lambda *seen: told.append(seen[2])
    )
    assert told[:2] == ["drawing the graph and checking its weights", "drawing the objectives of 4 agents"]
    assert told[2] == "consulting the ledgers"
    assert told[-2:] == ["writing results", "settling the ledgers"]
    assert [*finished.steps] == [*told[:3], *told[-2:]]
    assert all(seconds > 0 for seconds in finished.steps.values())
    assert os.path.exists(tmp_path / "run/metrics.csv")
