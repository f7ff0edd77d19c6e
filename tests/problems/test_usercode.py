"""The user's Python file: it works as the formula says, and whatever is wrong with it is one sentence."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpp2.errors import BadInput
from dpp2.problems import ProblemSection
from dpp2.problems.sources import FromOutside
from tests.conftest import Call

Build = Callable[..., ProblemSection]
GOOD = """
from __future__ import annotations
from dataclasses import dataclass
import numpy as np

@dataclass
class Bowl:
    centre: float
    dimension: int = 3
    def value(self, x):
        return 0.5 * np.sum((x - self.centre) ** 2)
    def gradient(self, x):
        return x - self.centre

def objective(agent, agents):
    return Bowl(agent / agents)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(GOOD)
    return path


def test_happy_path(build: Build, source: Path) -> None:
    problem = build(4, name="file", path=str(source))
    assert problem.table() == {"name": "file", "seed": 1, "path": str(source), "function": "objective"}
    objective = problem.objective([3, 1], 4)
    value, grad = objective(np.ones((2, 3)))
    np.testing.assert_allclose(value, [3 * 0.25**2 / 2, 3 * 0.75**2 / 2])
    np.testing.assert_allclose(grad, [[0.25] * 3, [0.75] * 3])
    assert objective.dimension == 3
    assert np.isnan(objective.smoothness).all()  # not given
    assert isinstance(objective, FromOutside)
    assert {source.digest for source in objective.sources} == {hashlib.sha256(GOOD.encode()).digest()}
    assert [path.name for path in source.parent.iterdir()] == ["own.py"]  # no cache left beside it


def test_another_function_and_lists_for_gradients(build: Build, source: Path) -> None:
    source.write_text(
        "class Line:\n"
        "    dimension, smoothness = 2, 0\n"
        "    def value(self, x): return 1e6 + x[0] - 2 * x[1]\n"
        "    def gradient(self, x): return [1, -2]\n"
        "def mine(agent, agents): return Line()\n"
    )
    objective = build(2, name="file", path=str(source), function="mine").objective([0, 1], 2)
    np.testing.assert_array_equal(objective.smoothness, [0, 0])
    np.testing.assert_array_equal(objective(np.zeros((2, 2)))[1], [[1, -2], [1, -2]])


@pytest.mark.parametrize("dimension", [1, 32, 500])
def test_a_wrong_coordinate_is_found_in_any_dimension(build: Build, source: Path, dimension: int) -> None:
    text = GOOD.replace("dimension: int = 3", f"dimension: int = {dimension}")
    source.write_text(text)
    build(2, name="file", path=str(source)).objective([0, 1], 2)
    source.write_text(text.replace("return x - self.centre", "g = x - self.centre; g[-1] *= 1.1; return g"))
    with pytest.raises(BadInput, match=r"central differences of the value to 0\.0001; agent 0's is off by"):
        build(2, name="file", path=str(source)).objective([0, 1], 2)


def test_the_state_cannot_be_changed_by_the_users_code(build: Build, source: Path) -> None:
    source.write_text(GOOD.replace("return x - self.centre", "x -= self.centre; return x"))
    with pytest.raises(BadInput, match="read-only"):
        build(2, name="file", path=str(source)).objective([0, 1], 2)


def test_a_failure_during_the_run_is_one_sentence_too(build: Build, source: Path) -> None:
    source.write_text(
        GOOD.replace("return x - self.centre", "assert abs(x[0]) < 99, 'too far'; return x - self.centre")
    )
    objective = build(2, name="file", path=str(source)).objective([0, 1], 2)
    with pytest.raises(BadInput, match=r"gradient of agent 1 \(AssertionError: too far\)"):
        objective(np.array([[1.0, 1, 1], [100.0, 1, 1]]))


MALFORMED = {
    "syntax": ("def objective(:", "a Python file that can be loaded (SyntaxError: invalid syntax"),
    "null bytes": ("\0", "a Python file that can be loaded (SyntaxError"),
    "raises": ("raise RuntimeError('no\\nluck.')", "a Python file that can be loaded (RuntimeError: no luck)"),
    "exits": ("import sys; sys.exit(3)", "a Python file that can be loaded (SystemExit: 3)"),
    "own exit": (
        "class Stop(BaseException): pass\ndef objective(i, n): raise Stop('here')",
        "an objective for agent 0 (Stop: here)",
    ),
    "generator exit": ("def objective(i, n): raise GeneratorExit", "an objective for agent 0 (GeneratorExit)"),
    "no sentence": (
        "class Mute(Exception):\n    def __str__(self): raise ValueError\ndef objective(i, n): raise Mute",
        "an objective for agent 0 (Mute)",
    ),
    "dimension raises": (
        GOOD.replace("    dimension: int = 3\n", "    @property\n    def dimension(self): return 1 / 0\n"),
        "a dimension of agent 0 (ZeroDivisionError",
    ),
    "import": ("import no_such_module_", "a Python file that can be loaded (ModuleNotFoundError"),
    "empty": ("", "a Python file with a function objective(agent, agents)"),
    "no function": ("objective = 3", "a Python file with a function objective(agent, agents)"),
    "arguments": ("def objective(): pass", "an objective for agent 0 (TypeError: objective() takes 0"),
    "none": ("def objective(i, n): pass", "an objective with a method value(x) for agent 0, not None"),
    "no gradient": (GOOD.replace("def gradient", "def grad"), "an objective with a method gradient(x) for agent 0"),
    "no dimension": (GOOD.replace("dimension: int", "size: int"), "a whole dimension ≥ 1 for agent 0, not None"),
    "dimension 0": (GOOD.replace("int = 3", "int = 0"), "a whole dimension ≥ 1 for agent 0, not 0"),
    "dimension 2.5": (GOOD.replace("int = 3", "int = 2.5"), "a whole dimension ≥ 1 for agent 0, not 2.5"),
    "dimension true": (GOOD.replace("int = 3", "int = True"), "a whole dimension ≥ 1 for agent 0, not a bool"),
    "smoothness": (
        GOOD.replace("int = 3", "int = 3; smoothness: float = -1.0"),
        "a smoothness ≥ 0, or none, for agent 0",
    ),
    "smooth text": (
        GOOD.replace("int = 3", "int = 3; smoothness: str = 'M'"),
        "a smoothness ≥ 0, or none, for agent 0",
    ),
    "dimensions differ": (
        GOOD.replace("Bowl(agent / agents)", "Bowl(0.0, 3 + agent)"),
        "dimension 3 for every agent, as for agent 0, not 4 for agent 1",
    ),
    "value is an array": (GOOD.replace("np.sum", "np.abs"), "a number as the value of agent 0, not a ndarray"),
    "value is text": (GOOD.replace("return 0.5", "return 'a' #"), "a number as the value of agent 0, not a str"),
    "value is none": (GOOD.replace("return 0.5", "0.5"), "a number as the value of agent 0, not None"),
    "value raises": (GOOD.replace("return 0.5", "1 / 0 #"), "a value of agent 0 (ZeroDivisionError: division by zero)"),
    "value is nan": (GOOD.replace("return 0.5", "return np.nan"), "a finite value and gradient at a standard normal"),
    "gradient shape": (
        GOOD.replace("return x - self.centre", "return x[:2]"),
        "an array of 3 numbers as the gradient of agent 0, not shape (2,)",
    ),
    "gradient is a number": (
        GOOD.replace("return x - self.centre", "return 1.0"),
        "an array of 3 numbers as the gradient of agent 0, not shape ()",
    ),
    "gradient is text": (
        GOOD.replace("return x - self.centre", "return ['a', 'b', 'c']"),
        "an array of 3 numbers as the gradient of agent 0 (ValueError",
    ),
    "gradient is inf": (
        GOOD.replace("return x - self.centre", "return x * np.inf"),
        "a finite value and gradient at a standard normal point for agent 0",
    ),
    "gradient has the wrong sign": (
        GOOD.replace("return x - self.centre", "return (x - self.centre) * (-1 if self.centre else 1)"),
        "a gradient that agrees with central differences of the value to 0.0001; agent 1's is off by 2 (relative)",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_code_is_one_sentence(build: Build, source: Path, case: str) -> None:
    text, expected = MALFORMED[case]
    source.write_text(text)
    with pytest.raises(BadInput) as refusal:
        build(2, name="file", path=str(source)).objective([0, 1], 2)
    assert str(refusal.value).startswith("problem.path = ")
    assert "\n" not in str(refusal.value)
    assert refusal.value.accepted.startswith(expected)


@pytest.mark.parametrize(("name", "reason"), [("gone.py", "No such file or directory"), ("dir.py", "Is a directory")])
def test_unreadable_code(build: Build, tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "dir.py").mkdir()
    problem = build(2, name="file", path=str(tmp_path / name))
    with pytest.raises(BadInput) as refusal:
        problem.objective([0], 2)
    assert refusal.value.accepted == f"a readable file ({reason})"


def test_a_file_that_failed_leaves_no_module_behind(build: Build, source: Path) -> None:
    source.write_text("1 / 0")
    before = set(sys.modules)
    with pytest.raises(BadInput):
        build(2, name="file", path=str(source)).objective([0], 2)
    assert set(sys.modules) == before


def test_a_report_that_fails_is_refused_before_the_first_round(source: Path, tmp_path: Path, dpp2: Call) -> None:
    source.write_text(GOOD + "def report(x):\n    return {'a': 1 / 0}\n")
    words = ["problem.name=file", f"problem.path={source}", "network.agents=4", "network.topology=ring"]
    ended = dpp2("run", *(word for one in words for word in ("--set", one)), "--out", tmp_path / "run")
    assert ended.code == 2
    assert "numbers from report(x) (ZeroDivisionError: division by zero)" in ended.err
    assert not (tmp_path / "run").exists()


def test_ctrl_c_in_the_users_code_stays_what_it_is(build: Build, source: Path) -> None:
    source.write_text("def objective(i, n): raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        build(2, name="file", path=str(source)).objective([0, 1], 2)
