"""Commands in the documentation work: all are parsed, and all but those that say what they need are run."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
from typer.exceptions import TyperException

from dpp2.node.__main__ import _options
from tests.docs.pages import (
    DOCS,
    NEEDS,
    PAGES,
    README,
    ROOT,
    TUTORIAL,
    Command,
    commands,
    execute,
    fences,
    inline,
    numbers,
)
from tests.docs.pages import workplace as clone
from tools.reference import command_tree

COMMANDS = command_tree()
ALL = [command for page in PAGES for command in commands(page)]
OWN_TEST = {README, DOCS / "python.md"}
HOW_TO = [page for page in PAGES if page not in {*OWN_TEST, *TUTORIAL} and any(not c.needs for c in commands(page))]
# At most so many commands are not run by these tests. Whoever adds such a command raises a number here, and says why.
# A page goes on until somebody ends it; and the last of those that take minutes writes 2 GB.
NOT_RUN = {"docker": 27, "machines": 20, "minutes": 10, "browser": 4}


def test_few_commands_are_not_run_and_each_says_why() -> None:
    counted = Counter(command.needs for command in ALL)
    assert set(counted) <= {"", *NEEDS}
    assert {kind: counted[kind] for kind in NOT_RUN if counted[kind] > NOT_RUN[kind]} == {}
    assert counted[""] >= 40


@pytest.mark.parametrize("command", ALL, ids=lambda command: f"{command.place} {command.line[:40]}")
def test_every_dpp2_command_of_the_pages_is_understood(command: Command) -> None:
    for words in dpp2_calls(command.line):
        understood(words)


def dpp2_calls(line: str) -> list[list[str]]:
    """The calls of dpp2 in a line of shell, without redirections; a line with `…` shows only what differs."""
    if "…" in line or line.startswith(("docker", "kubectl", "10.0.0.1$ docker")):
        return []
    calls: list[list[str]] = []
    for part in re.split(r"&&|\||;|&", re.sub(r"\d?>\s?\S+|^[\d.]+\$ ", "", line)):
        words = shlex.split(part) if part.lstrip().startswith("dpp2 ") else []
        calls += [words[1:]] if words else []
    return calls


def understood(words: list[str]) -> None:
    if words[0] == "node":
        _options(words[1:])
        return
    command, name = COMMANDS, "dpp2"
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name, *words = words
        assert name in command.commands, f"there is no command {name}"
        command = command.commands[name]
    if words not in (["--help"], ["--version"]):
        command.make_context(name, list(words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_sentences_name_exist(page: Path) -> None:
    for line in inline(page):
        command = COMMANDS
        for word in line.split()[1:]:
            if not hasattr(command, "commands") or not re.fullmatch(r"[a-z0-9]+", word):
                break
            assert word in command.commands, f"{page.name}: {line}"
            command = command.commands[word]


def test_a_command_that_does_not_exist_is_found() -> None:
    with pytest.raises(AssertionError, match="no command"):
        understood(["fly", "--high"])
    with pytest.raises(TyperException):
        understood(["run", "--high"])


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_tutorial_works_from_its_first_page_to_its_last(tmp_path: Path) -> None:
    """One folder for all pages, as a reader has it; a number in a comment is one that the command prints."""
    folder = clone(tmp_path)
    for page in TUTORIAL:
        go_through(page, folder)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_work_in_a_fresh_clone(page: Path, tmp_path: Path) -> None:
    go_through(page, clone(tmp_path))


def go_through(page: Path, folder: Path) -> None:
    """Save the files that the page shows, then run its commands in their order."""
    for fence in fences(page):
        if fence.file:
            (folder / fence.file).write_text(fence.text, encoding="utf-8")
    for command in commands(page):
        if not command.needs:
            check(command, folder)


def check(command: Command, folder: Path) -> str:
    """Run one command; it ends with the code it should, and prints the numbers that stand beside it."""
    ended = execute(command.line, folder)
    said = f"{command.place}: {command.line}\n{ended.stdout}"
    assert ended.returncode == command.code, said
    missing = numbers(command.comment.replace(f"exit code {command.code}", "")) - numbers(ended.stdout)
    assert not missing, f"not printed: {sorted(missing)}\n{said}"
    return ended.stdout


def test_a_number_that_no_command_prints_is_found(tmp_path: Path) -> None:
    printed = Command("page.md:1", "echo gap 4.479e+02, 1,000 rounds", "gap 447.9, 1000 rounds", "")
    assert "1,000" in check(printed, tmp_path)
    with pytest.raises(AssertionError, match=r"not printed: \[448\.0\]"):
        check(Command("page.md:2", printed.line, "gap 448", ""), tmp_path)
    with pytest.raises(AssertionError):
        check(Command("page.md:3", "false", "", ""), tmp_path)
    check(Command("page.md:4", "exit 2", "refused (exit code 2)", ""), tmp_path)
