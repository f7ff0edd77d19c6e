"""What every room's tests share: marks, the command line inside this process or as a real one, run directories."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.answers import strict
from tests.needed import not_here

RECORDS = ("observation.npz", "truth.npz", "solution.npz", "metrics.csv", "convergence.png")

# How long an example takes is a matter of what else the machine does; pytest-timeout bounds a whole test.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Call = Callable[..., Ended]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(what, there): whether the machine has it; CI must, others may skip")
    # A shell's background job ignores Ctrl-C, and so would every test and every process that a test starts.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        what, there = mark.args
        if not there:
            not_here(f"needs {what}")


@pytest.fixture(autouse=True)
def ctrl_c_is_put_back() -> Iterator[None]:
    """Who leaves a handler behind takes Ctrl-C from whatever comes next in the process."""
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def call(*args: object) -> Ended:
    from dpp2.orchestrator.cli import main  # takes its time, and most tests need none of it

    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["dpp2", *map(str, args)]
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stopped:
            main()
    finally:
        sys.argv = before
    code = stopped.value.code
    return Ended(code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def dpp2() -> Call:
    """The command line inside this process."""
    return call


@pytest.fixture(scope="session")
def small() -> list[str]:
    """Options of a run that takes milliseconds, with everything switched on: noise, η, several coordinates."""
    sets = {
        "network.topology": "star",
        "network.agents": 5,
        "problem.name": "least-squares",
        "problem.dimension": 3,
        "run.rounds": 8,
    }
    return [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture
def quick_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than a small run; where the picture is not the point, skip it."""
    monkeypatch.setattr("dpp2.orchestrator.plots.convergence", lambda result, path: path.write_bytes(b"a picture"))
    monkeypatch.setattr("dpp2.orchestrator.plots.epsilon", lambda account, rounds, path: path.write_bytes(b"a picture"))


@pytest.fixture(scope="session")
def records() -> Callable[[Path], dict[str, bytes]]:
    """The bytes of everything a run leaves behind for others to read."""
    return lambda run: {name: (run / name).read_bytes() for name in RECORDS if (run / name).exists()}


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """For real processes: plain output, one thread."""
    drop = ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TERM": "xterm"}


@pytest.fixture
def ask(dpp2: Call) -> Callable[..., dict[str, Any]]:
    """`dpp2 privacy … --json`, answered."""

    def asked(*words: object) -> dict[str, Any]:
        ended = dpp2("privacy", *words, "--json")
        assert (ended.code, ended.err) == (0, "")
        return strict(ended.out)

    return asked
