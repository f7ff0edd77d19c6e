"""The documentation site: complete, strict, and without anything from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import ViewportSize

from dpp2.adversary.style import STYLE
from dpp2.algorithms import ALGORITHMS
from dpp2.problems import PROBLEMS
from dpp2.schema import keys_of
from dpp2.topology import TOPOLOGIES
from tests.docs.pages import README, ROOT
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
    pictures: [...document.querySelectorAll(".md-content p > a > img:only-child")].map(
        one => [one.getBoundingClientRect().right, one.getAttribute("src") === one.parentElement.getAttribute("href")]),
    tables: [...document.querySelectorAll(".md-typeset table:not([class])")].map(one => {
        const row = one.querySelector("tbody tr"), cells = [...row.children];
        return [row.getBoundingClientRect().width, Math.max(...cells.map(cell => cell.scrollWidth - cell.clientWidth))];
    }),
})"""


@pytest.mark.browser
@pytest.mark.timeout(600)
def test_the_site_can_be_read_on_a_phone(site: Path) -> None:
    """Nothing but the box of a formula scrolls sideways; pictures fit, and a tap shows them at their own size."""
    with chromium() as browser:
        page = browser.new_page(viewport=PHONE)
        found = {}
        for path in site.rglob("*.html"):
            page.goto(path.as_uri())
            found[path.name] = page.evaluate(MEASURED)
    assert {name: one["page"] for name, one in found.items() if one["page"] > PHONE["width"]} == {}
    assert {scrolls for one in found.values() for _, scrolls in one["formulas"]} == {"auto"}
    assert max(width for width, _ in found["five-equations.html"]["formulas"]) <= PHONE["width"]
    pictures = [picture for one in found.values() for picture in one["pictures"]]
    assert len(pictures) >= 5
    assert all(right <= PHONE["width"] and opens for right, opens in pictures)
    tables = [table for one in found.values() for table in one["tables"]]
    assert min(width for width, _ in tables) > 0.8 * PHONE["width"]
    assert max(beyond for _, beyond in tables) <= 1  # pixels are rounded


@pytest.mark.browser
@pytest.mark.timeout(600)
def test_a_row_that_stands_upright_has_every_head_beside_its_cell(site: Path) -> None:
    """The first one, too; a head that takes two lines makes its row higher."""
    with chromium() as browser:
        page = browser.new_page(viewport=PHONE)
        page.goto((site / "comparison.html").as_uri())
        page.wait_for_selector(".md-typeset__table")
        first = page.locator(".md-typeset table tbody tr").first.locator("td").first
        assert (
            first.evaluate("one => getComputedStyle(one, '::before').content")
            == "\"DPP²'s gap over the best other method's\""
        )
        assert first.evaluate("one => parseFloat(getComputedStyle(one, '::before').height) <= one.clientHeight")


def test_colours_and_letters_of_the_site_are_those_of_every_page() -> None:
    style = (ROOT / "docs/site.css").read_text(encoding="utf-8")
    assert set(re.findall(r"#[0-9a-f]{6}", style)) <= set(re.findall(r"#[0-9a-f]{6}", STYLE))
    assert re.search(r"--sans: (.*);", STYLE)[1] in style  # type: ignore[index]


def test_the_site_begins_with_what_the_readme_says_was_found() -> None:
    readme = README.read_text(encoding="utf-8")
    start = readme.index("| | what it is")
    table = readme[start : readme.index("\n\n", start)].replace("](docs/", "](")  # the site begins in docs/
    assert table in (ROOT / "docs/index.md").read_text(encoding="utf-8")


def test_links_are_words() -> None:
    """Not the names of files, which mean nothing on the site."""
    pages = (ROOT / "docs").rglob("*.md")
    assert {page.name for page in pages if re.search(r"\[[\w-]+\.md\]\(", page.read_text(encoding="utf-8"))} == set()
