"""A tool that is missing is said on a contributor's machine and fails in CI, which must have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("ci", "code", "said"), [("1", 1, "Failed: needs tshark"), ("", 0, "1 skipped")])
def test_a_missing_tool_fails_in_ci_only(ci: str, code: int, said: str, tmp_path: Path) -> None:
    asked = ["tests/adversary/test_tap_sniff.py", "-k", "tshark", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs"]
    environment = {**os.environ, "CI": ci, "PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *asked], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert (ended.returncode, said in ended.stdout) == (code, True), ended.stdout + ended.stderr
