"""The documentation site: complete, strict, and without anything from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dpp2.algorithms import ALGORITHMS
from dpp2.problems import PROBLEMS
from dpp2.schema import keys_of
from dpp2.topology import TOPOLOGIES
from tests.docs.pages import ROOT
from tools import reference

# What a browser fetches by itself. Links that a reader may follow are something else.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?P<a>[^"'\s>]+)|<link[^>]*\shref=["']?(?P<b>[^"'\s>]+)"""
)


def test_the_reference_has_every_key_of_every_kind() -> None:
    page = reference.keys_page()
    for kinds in (ALGORITHMS, PROBLEMS, TOPOLOGIES):
        for name in kinds.names:
            assert f"`{name}`" in page
            assert [key for key in keys_of(kinds[name]) if f"| `{key}` |" not in page] == []


def test_the_reference_has_every_command_and_option() -> None:
    page = reference.commands_page()
    for called in ("dpp2 run", "dpp2 audit", "dpp2 privacy plan", "dpp2 tap relay", "dpp2 orchestrate"):
        assert re.search(rf"^##+ {called}$", page, re.MULTILINE)
    assert "`--set SECTION.KEY=VALUE`" in page


def test_the_reference_has_the_python_api_with_its_words() -> None:
    page = reference.python_page()
    assert "## Experiment" in page
    assert "### Experiment.load" in page
    assert "## run" in page


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    fetched = {found["a"] or found["b"] for page in pages for found in FETCHED.finditer(page.read_text("utf-8"))}
    assert [address for address in fetched if re.match(r"(https?:)?//", address)] == []
    styles = "".join(path.read_text("utf-8") for path in tmp_path.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//", styles) == []
    assert "<math" in (tmp_path / "five-equations.html").read_text("utf-8")
