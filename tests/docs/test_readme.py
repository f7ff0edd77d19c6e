"""The README's commands in order, as a reader types them; and its numbers: a command of their section prints them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, README, commands, execute, fences, numbers, prose
from tests.docs.pages import workplace as clone
from tests.docs.test_commands import check

# Not measured: the oldest Python, and the licence.
NOT_MEASURED = {3.11, 2.0}
COMPARED = "Against other methods"  # its command takes half an hour and writes a page, whose numbers it repeats


def sections() -> dict[str, str]:
    """The README's sections by their headings."""
    first, *others = README.read_text(encoding="utf-8").split("\n## ")
    return {"": first, **{one.partition("\n")[0]: one.partition("\n")[2] for one in others}}


def test_a_number_in_the_readme_stands_beside_a_command() -> None:
    """Sections without a command have no numbers: words like three are names, digits are measurements."""
    loose = {head: numbers(prose(text)) - NOT_MEASURED for head, text in sections().items() if "```sh" not in text}
    assert {head: found for head, found in loose.items() if found} == {}


def answer() -> set[float]:
    """Numbers of docs/comparison.md, which `dpp2 compare` has written: its opening, and how it went again."""
    _, first, more, *rest = (DOCS / "comparison.md").read_text(encoding="utf-8").split("\n\n")
    assert first.startswith("**Is DPP² best at the same ε?")
    assert more.startswith("- A cell is ")
    again = next(line for part in rest for line in part.splitlines() if line.startswith("- A comparison on "))
    return numbers(f"{first}\n{more}\n{again}")


def test_the_readme_says_of_the_comparison_what_its_page_says() -> None:
    said = numbers(prose(sections()[COMPARED]))
    assert len(said) > 2
    assert said <= answer()


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_commands_of_the_readme_print_its_numbers(tmp_path: Path) -> None:
    folder, page = clone(tmp_path), tmp_path / "section.md"
    wrong: dict[str, set[float]] = {}
    for head, text in sections().items():
        page.write_text(text, encoding="utf-8")
        printed = "\n".join(check(command, folder) for command in commands(page) if not command.needs)
        missing = numbers(prose(text)) - NOT_MEASURED - numbers(printed) - (answer() if head == COMPARED else set())
        if missing:
            wrong[head] = missing
    assert wrong == {}
    for fence in fences(README):
        if fence.language == "python":
            (folder / "snippet.py").write_text(fence.text, encoding="utf-8")
            assert execute("python snippet.py", folder).returncode == 0
