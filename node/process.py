"""How a process that hosts nodes is set up: before NumPy and gRPC are loaded, and once it is ready to run rounds."""

from __future__ import annotations

import errno
import gc
import io
import json
import logging
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from dpp2.node.limits import DESCRIPTOR_SECONDS

log = logging.getLogger("dpp2.node")
T = TypeVar("T")

SETTINGS = {
    "OMP_NUM_THREADS": "1",  # matrices are small here, and neighbours want the other cores
    "OPENBLAS_NUM_THREADS": "1",
    "GRPC_VERBOSITY": "NONE",  # it tells of every connection that ends, in lines of C++; what fails, we say ourselves
    "PYDANTIC_DISABLE_PLUGINS": "__all__",  # it would read the metadata of all installed packages in search of some
    # gRPC's newer engine hands reads and writes to threads of its own. The older one does them in the thread that waits
    # for them: a third more messages per second on two cores, because nobody has to be woken up in between.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    "MALLOC_ARENA_MAX": "1",  # as `_share_memory` says; for processes that are started with these settings
}
_ARENA_MAX = -8  # glibc's name for it in `mallopt`

_DESCRIPTORS, _DESCRIPTORS_EACH = 48, 2  # open files of a process: for itself, and for each process it talks to


def set_up() -> None:
    """Whatever the user has set stays. What is being loaded is no garbage: nobody needs to look for any meanwhile."""
    gc.disable()
    if "MALLOC_ARENA_MAX" not in os.environ:
        _share_memory()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def _share_memory() -> None:
    """Let all threads of this process take memory from one place.

    glibc gives each of a dozen threads a place of its own, and what is free in one is not used by others: a flood of
    calls then costs four times as much memory, for good. The rounds of a node wait for one thread at a time anyway.
    """
    import ctypes

    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def ready_for_rounds() -> None:
    """Tell the collector of cycles that what is loaded stays, and that messages leave few cycles behind.

    With Python's defaults it would look at everything after some hundred messages: a tenth of the time of a round.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


class Announcement:
    """Where a node says which port it listens on: a descriptor that nobody else writes to.

    What an owner's objective prints would otherwise stand before it, or fill a pipe that nobody reads any more. So from
    here on whatever is printed goes where the log goes, from Python or not.
    """

    def __init__(self, descriptor: int | None) -> None:
        """`descriptor` was handed over by whoever started this process; None: what was standard output."""
        self._descriptor = os.dup(1) if descriptor is None else descriptor
        os.set_inheritable(self._descriptor, False)
        os.dup2(2, 1)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)

    def make(self, port: int) -> None:
        os.write(self._descriptor, json.dumps({"listening": port}).encode() + b"\n")
        os.close(self._descriptor)


def check_descriptors(field: str, processes: int) -> None:
    """Refuse, before anything is started, to work with more processes than there can be open files for."""
    from dpp2.errors import BadInput

    needed = _DESCRIPTORS + _DESCRIPTORS_EACH * processes
    if (most := raise_descriptors(needed)) < needed:
        raise BadInput(field, processes, f"fewer processes, or {needed} open files (`ulimit -n` admits {most})")


def raise_descriptors(needed: int) -> int:
    """Let this process, and those it starts, open `needed` files, if the system permits; returns how many it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= needed:
        return needed
    granted = needed if hard == unlimited else min(needed, hard)
    if granted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    return max(granted, soft)


def most_connections(agents: int) -> int:
    """That a node lets in at once, in a network of so many agents. As many files again can be opened besides."""
    wanted = 4 * agents + 64
    return min(wanted, raise_descriptors(_DESCRIPTORS + 2 * wanted) // 2)


def with_descriptors(action: Callable[[], T]) -> T:
    """Do what opens a file. If there are too many open ones, it is tried again for a while: some may be strangers'."""
    until, told = time.monotonic() + DESCRIPTOR_SECONDS, False
    while True:
        try:
            return action()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or time.monotonic() > until:
                raise
            if not told:
                log.warning("%s: tried again for %g s", error.strerror, DESCRIPTOR_SECONDS)
            told = True
        time.sleep(0.1)
