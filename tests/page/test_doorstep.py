"""The process that waits where the page will be gives way to the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dpp2.page import doorstep

AUTOGROUP = Path("/proc/self/autogroup")


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this system does not share out its cores between sessions")
def test_its_whole_session_gives_way() -> None:
    """Between two sessions nice means nothing: the page is one of its own, and would get as much as the run."""
    code = f"import runpy; runpy.run_path({doorstep.__file__!r})['give_way'](); print(open({str(AUTOGROUP)!r}).read())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, start_new_session=True)
    assert said.stdout.split()[-1] == "5", said


def test_where_there_are_no_such_groups_it_is_nice_all_the_same(tmp_path: Path) -> None:
    where = str(tmp_path / "no" / "such" / "file")
    code = f"import os, runpy; runpy.run_path({doorstep.__file__!r})['give_way']({where!r}); print(os.nice(0))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, start_new_session=True)
    assert int(said.stdout) >= 5, said
