"""How a ledger's SQLite file is opened where many processes want it at once, and strangers take the descriptors."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import time
from contextlib import ExitStack, suppress
from pathlib import Path

_DESCRIPTOR_SECONDS = 10.0  # that a ledger waits to be opened while there are too many open files
_TURN_SECONDS = 60  # that a transaction waits for others
_LOOK_SECONDS = 0.005, 0.015  # between two looks whether it is its turn


def transaction(path: Path) -> sqlite3.Connection:
    """A connection with a transaction begun."""
    _wait_for_descriptors()
    with suppress(OSError):  # SQLite says what is wrong
        os.close(os.open(path, os.O_CREAT | os.O_RDONLY, 0o600))
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    with ExitStack() as on_error:
        on_error.callback(connection.close)
        _begin(connection)
        connection.execute(f"PRAGMA busy_timeout = {_TURN_SECONDS * 1000}")  # to commit beside a reader
        on_error.pop_all()
    return connection


def _begin(connection: sqlite3.Connection) -> None:
    """Wait for our turn. SQLite itself would soon look ten times a second only: fifty nodes that begin at once then
    leave the ledger alone for most of the time.
    """
    until = time.monotonic() + _TURN_SECONDS
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:  # of any kind
                raise
        time.sleep(random.uniform(*_LOOK_SECONDS))


def _wait_for_descriptors() -> None:
    """For a while: some may be strangers' connections. SQLite by itself does not say why it cannot open a file."""
    until = time.monotonic() + _DESCRIPTOR_SECONDS
    while descriptors_are_used_up() and time.monotonic() < until:
        time.sleep(0.1)


def descriptors_are_used_up() -> bool:
    """SQLite needs three: the file, beside it what undoes a transaction, and their folder."""
    try:
        with ExitStack() as opened:
            for _ in range(3):
                opened.callback(os.close, os.dup(2))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False
