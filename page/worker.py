"""What takes long is done in a process of its own: attacks, accounts, the runs of the playground.

One worker, niced, with one thread for linear algebra: it must not take from a run what the run needs. It gives back
JSON, so that the server has nothing to compute; one that dies is started again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import get_context
from typing import Any

_NICE = 5  # what keeps it from costing a run much is how seldom it works: one that is nicer never gets its turn
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Worker:
    """Does one thing after the other."""

    def __init__(self, nice: int = _NICE) -> None:
        self._nice = nice
        self.seconds = 0.0  # that the last work has computed for
        self._pool = self._started()

    def _started(self) -> ProcessPoolExecutor:
        for name in _THREADS:
            os.environ.setdefault(name, "1")
        return ProcessPoolExecutor(1, get_context("spawn"), _begin, (self._nice, os.getpid()))

    def prepare(self, module: str) -> None:
        """Begin to load what the first work needs, while the server loads what it needs itself."""
        self._pool.submit(import_module, module)

    async def do(self, work: str, *given: object) -> Any:
        """`work` is a function by its name, such as "dpp2.page.tasks:network": the server loads nothing for it."""
        loop, pool = asyncio.get_running_loop(), self._pool
        try:
            found, self.seconds = await loop.run_in_executor(pool, _call, work, given)
            return found
        except BrokenProcessPool:
            pool.shutdown(wait=False)
            if pool is self._pool:
                self._pool = self._started()
            raise

    def restart(self) -> None:
        """Give up what is being done."""
        self.stop()
        self._pool = self._started()

    def stop(self) -> None:
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        for process in processes:
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)  # at once: a pool left to itself may complain at the end


def _call(work: str, given: tuple[object, ...]) -> tuple[Any, float]:
    began = time.process_time()
    module, _, name = work.partition(":")
    try:
        return getattr(import_module(module), name)(*given), time.process_time() - began
    except StopIteration as error:  # a future cannot carry it: whoever waits would wait for ever
        raise RuntimeError(f"{work} raised StopIteration") from error


def _begin(nice: int, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when it is over
    os.nice(max(nice - os.nice(0), 0))  # a server that is nice itself has a worker no nicer: at 19 it would starve
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """A server that was killed leaves nobody behind."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
