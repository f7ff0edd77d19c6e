"""What README.md and docs/python.md show of the Python API runs as it stands, and a strict type checker accepts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": 1, "docs/python.md": 8}  # and the least number of snippets that each has

# What docs/python.md says of its audit: reading messages as they are gives nothing, and the attacks undo tier one.
AUDITED = (
    r"(?m)^direct 195\.",
    r"(?m)^window 1\.\d+e-06$",
    r"(?m)^smoother 5\.\d+e-08$",
    r"(?m)^x_i hidden by tier one: did not hold$",
    r"(?m)^gradients hidden by tier one: did not hold$",
)


def snippets(page: str) -> list[str]:
    """The Python blocks of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(params=PAGES)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """All snippets of a page as one program, in a folder where nothing else is."""
    found = snippets(request.param)
    assert len(found) >= PAGES[request.param]
    path = tmp_path / "page.py"
    path.write_text("\n".join(found))
    return path


def test_the_snippets_of_a_page_run_one_after_the_other(program: Path) -> None:
    headless = {**os.environ, "MPLBACKEND": "agg"}
    command = [sys.executable, "-W", "error", str(program)]
    ended = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, env=headless)
    assert ended.returncode == 0, ended.stderr
    if "descent" in program.read_text():
        assert ended.stdout.endswith("True\n")  # over nodes as in one process
        assert all(re.search(said, ended.stdout) for said in AUDITED), ended.stdout


@pytest.mark.slow
def test_a_strict_type_checker_accepts_them(program: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file", "", program.name]
    paths = {**os.environ, "MYPYPATH": str(ROOT), "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache/page")}
    ended = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, env=paths)
    assert ended.returncode == 0, ended.stdout
