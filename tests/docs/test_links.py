"""Every link of the documentation leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, README, ROOT, anchors, fences, links, prose

GENERATED = {"keys.md", "commands.md", "python.md"}  # below docs/reference, made when the site is built


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    assert [link for link in links(page) if broken(page, link)] == []


def broken(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    if re.match(r"\w+:", path):
        return not path.startswith("https://")
    target = (page.parent / path).resolve() if path else page
    if target.parent == DOCS / "reference":
        return target.name not in GENERATED
    return not target.exists() or (bool(anchor) and anchor not in anchors(target))


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A head\n[gone](gone.md) [no such head](#other) [here](#a-head) `[code](x.md)`\n")
    assert [link for link in links(page) if broken(page, link)] == ["gone.md", "#other"]


def test_the_site_has_every_page_in_its_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if f"{page.relative_to(DOCS)}" not in menu]
    assert missing == []


def test_the_readme_is_short_names_the_paper_first_and_has_one_picture() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 120
    assert "Distributed Nonconvex Optimization with Double Privacy Protection" in "".join(text.split("\n## ")[0])
    assert text.count("![") == 1
    assert all(name in text for name in ("Zichong Ou", "Dandan Wang", "Zixuan Liu", "Jie Lu"))


def test_symbols_of_the_equations_are_in_the_glossary() -> None:
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    assert all(f"</a>{symbol}" in glossary for symbol in ("α", "β", "ρ", "η", "τ", "u_w", "r ", "δ ", "M_i", "ε"))


def test_turned_sentences_do_not_come_back() -> None:
    """Words that readers of another language stumbled over."""
    turned = re.compile(r"\b(alone came|has them not|there came back|that is none)\b")
    found = {page.name: turned.findall(prose(page.read_text(encoding="utf-8"))) for page in PAGES}
    assert {name: words for name, words in found.items() if words} == {}


def test_fences_are_closed_and_have_a_language() -> None:
    for page in PAGES:
        assert page.read_text(encoding="utf-8").count("\n```") % 2 == 0, page
        assert [fence.line for fence in fences(page) if not fence.language] == [], page
