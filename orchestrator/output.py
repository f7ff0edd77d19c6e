"""How commands speak: one JSON document or a few readable lines, and one sentence when the input was bad."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from store.files import json_text

Show = Callable[[int, int, str], None]  # done so far, of how many, a note

# No markup and no emoji: what is printed holds paths, and a directory may well be called "[b]" or ":smile:".
console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_json(document: Any) -> None:
    """The one document on stdout."""
    sys.stdout.write(json_text(document))


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, *, narrow: bool = False
) -> None:
    """Narrow: without lines, for tables that are as wide as a terminal."""
    shape: Any = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0)} if narrow else {}
    table = Table(*head, title=title, **shape)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        errors.print(f"note: {note}")


@contextmanager
def progress_bar(what: str) -> Iterator[Show]:
    """A bar on a terminal, nothing in a pipe."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(what, total=None, note="")
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)


def waiting(agents: list[int]) -> str:
    """Whom everybody waits for, in a few words."""
    return f"waiting for {', '.join(map(str, agents[:8]))}{' …' if len(agents) > 8 else ''}" if agents else ""
