"""A new command is one file; a new attack and a new study are one file and one entry each. Worked examples, run as the
command line runs them, in a copy of the rooms that they are added to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALL = [
    *("--set", "network.topology=ring", "--set", "network.agents=5", "--set", "problem.name=least-squares"),
    *("--set", "problem.dimension=3", "--set", "run.rounds=40"),
]

COMMAND = '''
"""`dpp2 hello`."""

from dpp2.orchestrator.cli.app import app, examples
from dpp2.orchestrator.output import console


@app.command(epilog=examples("dpp2 hello Ada"))
def hello(name: str) -> None:
    """Greet somebody."""
    console.print(f"hello {name}")
'''

ATTACK = '''
"""Last message: takes y of the round before for x."""

import numpy as np

from dpp2.adversary.attacks.base import Attack, Estimate, lacks_messages, only
from dpp2.adversary.views import View


class LastMessage(Attack):
    name = "last-message"
    summary = "Takes the message of the round before for x."

    def needs(self, view: View) -> str | None:
        return lacks_messages(view)

    def run(self, view: View) -> Estimate:
        y = view.observation.phases["y"]
        return Estimate(self.name, x=only(view, np.concatenate([np.full_like(y[:1], np.nan), y[:-1]])))
'''

STUDY = '''
"""How far one run comes."""

from pathlib import Path

from dpp2 import Experiment, run
from dpp2.store.files import write_text
from dpp2.studies.reproduce.study import Files, Order, Study


class OneRun(Study[float]):
    rounds = 5

    def run(self, order: Order) -> float:
        return float(run(Experiment.load(overrides={"run.rounds": order.rounds})).metrics.gap[-1])

    def write(self, made: float, out: Path) -> Files:
        write_text(out / "gap.txt", f"{made}")
        return {"gap": out / "gap.txt"}

    def document(self, made: float, files: Files) -> object:
        return {"gap": made}


ONE_RUN = OneRun()
'''


class House:
    """Copies of rooms, found before the originals."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, room: str, files: dict[str, str], entries: dict[str, tuple[str, str]] | None = None) -> None:
        """New files, and one line that is put before another one in a file that is there."""
        if not (self.folder / "dpp2").exists():  # links are followed: every room is copied
            shutil.copytree(ROOT / "dpp2", self.folder / "dpp2", ignore=shutil.ignore_patterns("__pycache__"))
        for name, text in files.items():
            (self.folder / "dpp2" / room / name).write_text(text)
        for name, (before, line) in (entries or {}).items():
            path = self.folder / "dpp2" / room / name
            assert path.read_text().count(before) == 1
            path.write_text(path.read_text().replace(before, f"{line}\n{before}"))

    def dpp2(self, *words: object) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "dpp2.orchestrator", *map(str, words)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_command_is_one_file(house: House) -> None:
    house.add("orchestrator", {"cli/hello.py": COMMAND})
    assert house.dpp2("hello", "Ada") == "hello Ada\n"
    assert "dpp2 hello Ada" in house.dpp2("hello", "--help")
    assert "Greet somebody." in house.dpp2("--help")


def test_an_attack_is_one_file_and_one_entry(house: House) -> None:
    """Audits, their page, and the matrix of protections know it."""
    entry = {"attacks/__init__.py": ("    Data(),\n", "    LastMessage(),")}
    house.add("adversary", {"attacks/last_message.py": ATTACK}, entry)
    init = house.folder / "dpp2/adversary/attacks/__init__.py"
    init.write_text(f"from dpp2.adversary.attacks.last_message import LastMessage\n{init.read_text()}")
    house.dpp2("run", *SMALL, "--out", "run")
    audited = json.loads(house.dpp2("audit", "run", "--attack", "last-message", "--no-game", "--json"))
    assert [(one["name"], one["gradient_error"]) for one in audited["attacks"]] == [("last-message", None)]
    assert audited["attacks"][0]["x_error"] > 0
    assert "last-message" in (house.folder / "run/audit-global-last-message-no-game/report.html").read_text()
    compared = json.loads(house.dpp2("matrix", *SMALL, "--attack", "last-message", "--json"))
    assert {cell["x_attack"] for cell in compared["cells"]} == {"last-message", None}


def test_a_study_is_one_file_and_one_entry(house: House) -> None:
    entry = {
        "reproduce/__init__.py": (
            '        "overview": "dpp2.studies.reproduce.overview:OVERVIEW",\n',
            '        "one-run": "dpp2.studies.reproduce.one_run:ONE_RUN",',
        )
    }
    house.add("studies", {"reproduce/one_run.py": STUDY}, entry)
    assert json.loads(house.dpp2("reproduce", "one-run", "--json"))["gap"] > 0
    assert house.dpp2("reproduce", "one-run", "--out", "here") == "gap in here/gap.txt\n"
    assert "one-run" in house.dpp2("reproduce", "--help")
