"""The documentation as the tests read it: pages, fences, commands, links, and the numbers that are written down."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = (README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
TUTORIAL = tuple(
    DOCS / "tutorial" / f"{name}.md"
    for name in ("first-run", "first-audit", "own-problem", "first-cluster", "privacy-you-can-keep")
)
# Why a command of a page is not run: ```sh needs=docker. It is still parsed.
NEEDS = ("docker", "machines", "minutes", "browser")

_FENCE = re.compile(r"^```(?P<head>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<to>[^)\s]+)\)")
_NUMBER = re.compile(r"(?<![\w.])[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Fence:
    """A fenced block of a page; `needs` is what it says it needs, and `file` the name under which it is to be saved."""

    page: Path
    line: int
    language: str
    needs: str
    file: str
    text: str


@dataclass(frozen=True)
class Command:
    """A line for the shell, what the comment beside it says, and the exit code that is to be expected."""

    place: str
    line: str
    comment: str
    needs: str

    @property
    def code(self) -> int:
        said = re.search(r"exit code (\d+)", self.comment)
        return int(said.group(1)) if said else 0


def fences(page: Path) -> Iterator[Fence]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        language, *rest = found["head"].split() or [""]
        said = dict(word.split("=", 1) for word in rest)
        line = text.count("\n", 0, found.start()) + 1
        yield Fence(page, line, language, said.get("needs", ""), said.get("file", ""), found["text"])


def commands(page: Path) -> Iterator[Command]:
    """The lines that a page tells its reader to type."""
    for fence in fences(page):
        if fence.language == "sh":
            yield from in_fence(fence)


def in_fence(fence: Fence) -> Iterator[Command]:
    place = f"{fence.page.name}:{fence.line}"
    for line in fence.text.replace("\\\n", " ").splitlines():
        command, _, comment = line.partition(" #")
        if command.strip() and not command.startswith("#"):
            yield Command(place, " ".join(command.split()), comment.strip(), fence.needs)


def inline(page: Path) -> list[str]:
    """Calls of dpp2 that sentences name."""
    return re.findall(r"`(dpp2 [^`\n]+)`", _FENCE.sub("", page.read_text(encoding="utf-8")))


def links(page: Path) -> list[str]:
    """Where the page's links lead, those in code left out."""
    text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))
    return [found["to"] for found in _LINK.finditer(text)]


def anchors(page: Path) -> set[str]:
    """The places of a page that a link can name: headings, as GitHub and MkDocs name them, and ids."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {_slug(head) for head in heads} | set(re.findall(r'id="([^"]+)"', text))


def _slug(head: str) -> str:
    kept = re.sub(r"[^\w\s-]", "", head.strip().lower().replace("`", ""))
    return re.sub(r"\s", "-", kept)


def numbers(text: str) -> set[float]:
    """The numbers that a text has, as values: 1,000 and 1e3 are the same."""
    found = (one.group().replace(",", "").replace("−", "-") for one in _NUMBER.finditer(text))
    return {float(one) for one in found if re.search(r"\d", one)}


def prose(text: str) -> str:
    """A text without code, link targets, pictures and headings."""
    for pattern, left in ((_FENCE, ""), (re.compile(r"`[^`\n]*`"), ""), (re.compile(r"\]\([^)]*\)"), "]")):
        text = pattern.sub(left, text)
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


def workplace(folder: Path) -> Path:
    """A folder like a fresh clone after set-up, as far as commands of the pages look at it."""
    for name in ("experiments", "deploy", "tools"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    _set_up(folder / ".venv")
    return folder


def _set_up(venv: Path) -> None:
    """This environment, with its stamps newer than what `make` compares them with: it finds everything done."""
    venv.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (venv / name).symlink_to(Path(sys.prefix) / name)
    for stamp in {".ready", ".tools", *(path.name for path in Path(sys.prefix).glob(".*") if path.is_file())}:
        (venv / stamp).touch()


def execute(line: str, folder: Path, seconds: float = 1500) -> subprocess.CompletedProcess[str]:
    """Run a line as a reader would, with `dpp2` on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
