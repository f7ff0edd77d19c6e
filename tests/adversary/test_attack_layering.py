"""Attacks cannot see the truth: their modules import neither the scorer, nor a run's state, and open no files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOM = Path(__file__).parents[2] / "adversary"
ATTACKS = sorted((ROOM / "attacks").glob("*.py"))
# The whole of what an attack may import; of dpp2 only array types, what algorithms declare to everybody, the public
# form of the logistic problem, and the arithmetic of the grid that noise lies on.
ALLOWED = (
    "__future__",
    "abc",
    "collections.abc",
    "dataclasses",
    "functools",
    "typing",
    "numpy",
    "scipy.optimize",
    "dpp2.adversary.attacks",
    "dpp2.adversary.views",
    "dpp2.adversary.knowledge",
    "dpp2.adversary.observation",
    "dpp2.privacy.correlated",  # who shares noise with whom, and what follows from that: public
    "dpp2.arrays",
    "dpp2.algorithms.declared",
    "dpp2.grid.grid",
    "dpp2.grid.to_grid",
    "dpp2.inversion.Law",
    "dpp2.problems.logistic.odds",
    "dpp2.problems.logistic.regularised",
)
OPENERS = {"open", "load", "loadtxt", "fromfile", "memmap", "genfromtxt", "eval", "exec", "__import__", "read_bytes"}


def imported(source: str) -> Iterator[str]:
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, "absolute imports only, so that they can be read"
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def called(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func
            yield function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def forbidden(source: str) -> list[str]:
    outside = [name for name in imported(source) if not any(f"{name}.".startswith(f"{ok}.") for ok in ALLOWED)]
    return outside + [name for name in called(source) if name in OPENERS]


@pytest.mark.parametrize("path", ATTACKS, ids=lambda path: path.name)
def test_an_attack_imports_nothing_that_could_see_the_truth(path: Path) -> None:
    assert forbidden(path.read_text(encoding="utf-8")) == []


def test_all_attacks_are_read() -> None:
    assert {"three_round.py", "window.py", "smoother.py", "data.py"} <= {path.name for path in ATTACKS}


def test_only_the_scorer_names_the_truths_file() -> None:
    """Outside the scorer nobody opens the truth: whether it is there may be asked, its arrays are read in one place."""
    readers = [
        path.name
        for path in ROOM.rglob("*.py")
        if re.search(r"(last_rounds|open_records|KeptRecords|read_npz|np\.load)\([^)]*(TRUTH|truth)", path.read_text())
    ]
    assert readers == ["scoring.py"]


@pytest.mark.parametrize(
    "source",
    [
        "from dpp2.adversary.scoring import Truth",
        "from dpp2.adversary import scoring",
        "def f():\n    from dpp2 import Experiment",
        "from dpp2.prepared import Secrets",
        "from dpp2.problems.logistic import Logistic",
        "import dpp2",
        "import pathlib",
        "import numpy as np\nnp.load('truth.npz')",
        "open('truth.npz')",
        "from dpp2.node.codec import decode",
    ],
)
def test_the_rule_catches(source: str) -> None:
    assert forbidden(source)
