"""How commands speak: one JSON document or a few readable lines, and one sentence when the input was bad."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from store.files import json_text

# No markup and no emoji: what is printed holds paths, and a directory may well be called "[b]" or ":smile:".
console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_json(document: Any) -> None:
    """The one document on stdout."""
    sys.stdout.write(json_text(document))


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal, nothing in a pipe. Call it with (done so far, of how many, a note)."""
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
