"""How commands speak: one JSON document or a few readable lines, and one sentence when the input was bad."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table

from dpp2.orchestrator.notes import grouped
from dpp2.store.files import json_text

Show = Callable[[int, int, str], None]  # done so far, of how many, a note

HEARTBEAT_SECONDS = 10.0
_STANDING_SECONDS = 5.0  # after which it is said how long something has been going on
_PREPARING = "preparing"


def printable(text: str) -> str:
    """Without control characters: a terminal would obey them.

    >>> printable("a\\x1b[2Jb")
    'a\ufffd[2Jb'
    """
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


class PlainConsole(Console):
    """Prints text as it is, and no control character in it."""

    def print(self, *objects: Any, **settings: Any) -> None:
        super().print(*(printable(one) if isinstance(one, str) else one for one in objects), **settings)


# No markup and no emoji: what is printed holds paths, and a directory may well be called "[b]" or ":smile:".
# Nor any control character: names and texts of others are shown, and none of them is to move the cursor.
console = PlainConsole(highlight=False, soft_wrap=True, markup=False, emoji=False)
errors = PlainConsole(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_json(document: Any) -> None:
    """The one document on stdout."""
    sys.stdout.write(json_text(document))


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, *, narrow: bool = False
) -> None:
    """Narrow: without lines, for tables that are as wide as a terminal."""
    shape: Any = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0)} if narrow else {}
    table = Table(*(Column(name, overflow="fold") for name in head), title=title, **shape)  # nothing is cut off
    for row in rows:
        table.add_row(*map(printable, row))
    console.print(table)


def print_notes(notes: Iterable[str]) -> None:
    """In as few lines as they need; what matters most comes last, where it is read."""
    for note in grouped(notes):
        errors.print(f"note: {note}")


@contextmanager
def progress_bar(what: str) -> Iterator[Show]:
    """A bar on a terminal; elsewhere a plain line every ten seconds, so that a log shows that something is going on."""
    with _bar(what) if errors.is_terminal else _heartbeat(what) as show:
        yield show


@contextmanager
def _bar(what: str) -> Iterator[Show]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(what, total=None, note=_PREPARING)
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)


@contextmanager
def _heartbeat(what: str) -> Iterator[Show]:
    """From a thread of its own: what takes long may not report for a while."""
    began, ended, first = time.monotonic(), Event(), list[tuple[float, int]]()
    state: list[tuple[str, float | None, float]] = [(_PREPARING, None, began)]  # seconds left, said when

    def show(done: int, total: int, note: str) -> None:
        now = time.monotonic()
        first.append((now, done)) if not first else None
        left = _left(*first[0], done, total)
        state[0] = f"{done:,} of {total:,}{f', {note}' if note else ''}", left, now

    def beat() -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            errors.print(f"{what}: {_standing(*state[0], began)}")

    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield show
    finally:
        ended.set()
        thread.join()


def _standing(doing: str, left: float | None, said: float, began: float) -> str:
    """A line of the heartbeat. Time that was left when something was last heard has gone on since."""
    now = time.monotonic()
    silent, total = now - said, f" ({now - began:.0f} s)"
    if left is not None and left > silent:
        seconds = left - silent
        return f"{doing}, about {f'{seconds:.0f} s' if seconds < 100 else f'{seconds / 60:.0f} min'} left{total}"
    return f"{doing}{f' for {silent:.0f} s' if silent >= _STANDING_SECONDS and doing != _PREPARING else ''}{total}"


def _left(began: float, before: int, done: int, total: int) -> float | None:
    """The time that the rest takes if it goes on like this; what was done before the beginning says nothing of it."""
    if not before < done < total:
        return None
    return (time.monotonic() - began) * (total - done) / (done - before)


def waiting(agents: list[int]) -> str:
    """Whom everybody waits for, in a few words."""
    return f"waiting for {', '.join(map(str, agents[:8]))}{' …' if len(agents) > 8 else ''}" if agents else ""
