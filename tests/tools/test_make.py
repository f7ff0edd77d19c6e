"""`make clean` and `make purge` in a copy of a checkout: the first spares what holds the spending, the second asks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"
SPENT = (
    "runs/ledger.sqlite",
    "runs/demo/checkpoint/secrets.json",
    "runs/demo/nodes/node-0/runs/ab/journal.bin",
    "runs/nodes/agent-0/ledger.sqlite",
    "runs/nodes/orchestrator/orchestrator.json",
    "secrets/agent-0.key",
    "secrets/certs/ca.key",
    ".env",
)
MADE_AGAIN = (
    ".venv/.ready",
    ".venv/.tools",
    "build/lib",
    "dpp2.egg-info/PKG-INFO",
    ".mypy_cache/x",
    ".ruff_cache/x",
    ".pytest_cache/x",
)
SOURCES = ("Makefile", "dpp2/keys.py")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (*SPENT, *MADE_AGAIN, *SOURCES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    shutil.copy(MAKEFILE, tmp_path)
    return tmp_path


def make(checkout: Path, target: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    command = ["make", "-C", str(checkout), target]
    return subprocess.run(command, input=answer, capture_output=True, text=True, timeout=30, check=False)


def left(checkout: Path) -> set[str]:
    return {str(path.relative_to(checkout)) for path in checkout.rglob("*") if path.is_file()}


def test_clean_removes_what_can_be_made_again_and_spares_what_was_spent(checkout: Path) -> None:
    assert make(checkout, "clean").returncode == 0
    assert left(checkout) == {*SPENT, *SOURCES}


@pytest.mark.parametrize("answer", ["", "\n", "no\n", "y\n", "YES\n", "yes please\n"])
def test_purge_removes_nothing_without_a_yes(answer: str, checkout: Path) -> None:
    ended = make(checkout, "purge", answer)
    assert ended.returncode != 0
    assert "ledgers (what has been spent)" in ended.stdout
    assert "Nothing was removed." in ended.stdout
    assert left(checkout) == {*SPENT, *MADE_AGAIN, *SOURCES}


def test_purge_removes_everything_after_a_yes(checkout: Path) -> None:
    ended = make(checkout, "purge", "yes\n")
    assert ended.returncode == 0, ended.stderr
    assert left(checkout) == set(SOURCES)
