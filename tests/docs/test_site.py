"""The documentation site: complete, strict, and without anything from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import ViewportSize

from dpp2.algorithms import ALGORITHMS
from dpp2.problems import PROBLEMS
from dpp2.schema import keys_of
from dpp2.topology import TOPOLOGIES
from tests.docs.pages import ROOT
from tests.page.browsing import chromium
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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_site_fetches_nothing(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    fetched = {found["a"] or found["b"] for page in pages for found in FETCHED.finditer(page.read_text("utf-8"))}
    assert [address for address in fetched if re.match(r"(https?:)?//", address)] == []
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//", styles) == []
    assert "<math" in (site / "five-equations.html").read_text("utf-8")


PHONE: ViewportSize = {"width": 390, "height": 844}
MEASURED = """() => ({
    page: document.documentElement.scrollWidth,
    formulas: [...document.querySelectorAll(".formula")].map(one => [one.scrollWidth, getComputedStyle(one).overflowX]),
    pictures: [...document.querySelectorAll(".md-content p > img")].map(
        one => [one.getBoundingClientRect().width, getComputedStyle(one.parentElement).overflowX]),
})"""


@pytest.mark.browser
@pytest.mark.timeout(600)
def test_the_site_can_be_read_on_a_phone(site: Path) -> None:
    """Nothing but the box of a formula or a picture scrolls sideways, and words in pictures keep their size."""
    with chromium() as browser:
        page = browser.new_page(viewport=PHONE)
        found = {}
        for path in site.rglob("*.html"):
            page.goto(path.as_uri())
            found[path.name] = page.evaluate(MEASURED)
    assert {name: one["page"] for name, one in found.items() if one["page"] > PHONE["width"]} == {}
    boxes = [box for one in found.values() for box in (*one["formulas"], *one["pictures"])]
    assert {scrolls for _, scrolls in boxes} == {"auto"}
    assert min(width for one in found.values() for width, _ in one["pictures"]) > 600
    assert max(width for width, _ in found["five-equations.html"]["formulas"]) <= PHONE["width"]
