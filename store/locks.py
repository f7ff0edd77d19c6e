"""Run directories are used by one command at a time: whoever writes has one alone, readers share it.

The lock is the kernel's, on the directory itself: no file is left behind, and a process that is killed holds nothing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from dpp2.errors import BadInput
from dpp2.store.rundir import RunDirectory

RUNS = Path("runs")  # where runs are kept that nobody named a directory for

_BUSY = "that no other command is using: one is at work there now, wait for it or take another directory"


@contextmanager
def locked(path: Path, field: str, *, shared: bool = False, what: str = "run") -> Iterator[None]:
    """Have a directory alone, or share it with other readers; refused at once if somebody has it already."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(field, str(path), f"a {what} {_BUSY}") from None
        except OSError:
            pass  # a file system without locks: what was possible before still is
        yield
    finally:
        os.close(descriptor)


@contextmanager
def new_run(out: Path | None, *, stem: str = "run", force: bool = False) -> Iterator[RunDirectory]:
    """A directory for a new run, locked: `out`, or runs/stem-1, -2, … where none is named.

    Whoever fails before anything is written leaves what was there before: none, or an empty one.
    """
    found = out is not None and out.is_dir()
    path = free_directory(RUNS, stem) if out is None else _made(out)
    with locked(path, "--out"):
        directory = RunDirectory.create(path, force=force)
        try:
            yield directory
        except BaseException:  # Ctrl-C as well
            directory.discard(found=found)
            raise


@contextmanager
def folder_alone(out: Path) -> Iterator[None]:
    """A folder for what one command makes, locked; one that was made for it goes again if nothing came into it."""
    found = out.is_dir()
    with locked(_made(out), "--out", what="directory"):
        try:
            yield
        finally:
            if not found:
                with suppress(OSError):
                    out.rmdir()


@contextmanager
def opened_run(path: Path, field: str = "RUN", *, shared: bool = False) -> Iterator[RunDirectory]:
    """A run that is there, locked."""
    directory = RunDirectory.open(path)
    with locked(path, field, shared=shared):
        yield directory


def free_directory(parent: Path, stem: str) -> Path:
    """Make parent/stem-1, or the next number that is not taken. Of two that ask at once each gets its own."""
    with _makeable(parent):
        parent.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            with suppress(FileExistsError):
                path = parent / f"{stem}-{number}"
                path.mkdir()
                return path
    raise AssertionError("numbers do not end")


def _made(out: Path) -> Path:
    if out.exists() and not out.is_dir():
        raise BadInput("--out", str(out), "a directory, not a file")
    with _makeable(out):
        out.mkdir(parents=True, exist_ok=True)
    return out


@contextmanager
def _makeable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput("--out", str(path), f"a directory that can be made ({error.strerror})") from None
