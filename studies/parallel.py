"""Many independent runs behind the interface of `concurrent.futures`: in this process, in several, or on a cluster.

    processes:1          one after the other, here
    processes:N          N processes of this machine (the default: one per core)
    dask:ADDRESS         a Dask cluster whose scheduler answers at ADDRESS, such as dask:127.0.0.1:8786 (extra [dask])
A run is a function of its experiment alone, so all three give the same numbers, in the order they were asked for. A
Dask worker that dies has its runs repeated by the others. Whoever reaches a Dask scheduler can run code on its workers:
it belongs on the loopback interface or behind TLS.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from threading import Thread, current_thread, main_thread
from typing import Any, TypeVar

from dpp2 import BadInput
from dpp2.orchestrator.runner import RunFailed

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Counted = Callable[[int, int], None]  # (runs done, of how many)

ACCEPTED = "processes:N with N ≥ 1, or dask:ADDRESS with a scheduler's address such as 127.0.0.1:8786"
_CONNECTING = 10  # seconds that a scheduler may take to answer


def fan_out(
    work: Callable[[Item], Answer],
    jobs: Sequence[Item],
    *,
    executor: str | None = None,
    finished: Counted = lambda done, total: None,
) -> list[Answer]:
    """work(job) for every job. `work` must be importable, since processes are spawned and not forked."""
    with opened(executor) as pool:
        return gather(pool, work, jobs, finished)


def gather(
    pool: Executor,
    work: Callable[[Item], Answer],
    jobs: Sequence[Item],
    finished: Counted,
    arrived: Callable[[Item, Answer], None] = lambda job, answer: None,
) -> list[Answer]:
    """The same on an executor that is open already. Whoever keeps answers is told of each as it arrives.

    `finished` and `arrived` are called from the executor's threads.
    """
    count, refused, futures = itertools.count(1), list[Exception](), []

    def noted(job: Item, future: Future[Answer]) -> None:
        if future.cancelled() or future.exception() is not None:  # after Ctrl-C: nothing was done
            return
        try:
            arrived(job, future.result())
        except Exception as error:  # a thread of the executor would drop it
            refused.append(error)
        finished(next(count), len(jobs))

    for job in jobs:
        future = pool.submit(work, job)
        future.add_done_callback(partial(noted, job))
        futures.append(future)
    answers = [future.result() for future in futures]
    if refused:
        raise refused[0]
    return answers


def opened(executor: str | None) -> AbstractContextManager[Executor]:
    """The executor that these words stand for (see the module); none: one process per core."""
    kind, _, rest = (executor or f"processes:{os.cpu_count() or 1}").partition(":")
    if kind == "dask" and rest:
        return _dask(rest)
    if kind != "processes" or not rest.isdecimal() or int(rest) < 1:
        raise BadInput("--executor", executor, ACCEPTED)
    return Here() if rest == "1" else _processes(int(rest))


class Here(Executor):
    """Runs what is submitted at once, in the caller's own thread."""

    def submit(self, fn: Callable[..., Answer], /, *args: Any, **kwargs: Any) -> Future[Answer]:
        future: Future[Answer] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # whatever it is, it is the caller's to raise, as with every executor
            future.set_exception(error)
        return future


@contextmanager
def _processes(count: int) -> Iterator[Executor]:
    before = set(active_children())
    pool = _Pool(count, mp_context=get_context("spawn"), initializer=_one_thread_each)
    try:
        yield pool
    except BrokenProcessPool:
        raise RunFailed("a process that was running experiments died (out of memory?)") from None
    except KeyboardInterrupt:  # nobody waits for a run that is under way
        for worker in set(active_children()) - before:
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        raise BadInput("--executor", f"dask:{address}", "processes:N, or the extra [dask] installed") from None
    try:
        client = Client(address, timeout=_CONNECTING, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise BadInput("--executor", f"dask:{address}", f"a Dask scheduler that answers there ({error})") from None
    with client:
        pool: Executor = client.get_executor(pure=False)  # type: ignore[no-untyped-call]
        try:
            yield pool
        except KilledWorker as error:
            raise RunFailed(f"Dask gave up: {error}") from None
        finally:
            pool.shutdown(wait=False)


class _Pool(ProcessPoolExecutor):
    """Processes that Ctrl-C does not reach: the parent decides what becomes of them.

    A terminal sends it to all of them. A worker that it ended while it held the lock of the queue would leave the
    others, and whoever waits for them, waiting for ever. Processes begin in `submit` and inherit what is blocked there.
    """

    def submit(self, fn: Callable[..., Answer], /, *args: Any, **kwargs: Any) -> Future[Answer]:
        with _held_back():
            return super().submit(fn, *args, **kwargs)


@contextmanager
def _held_back() -> Iterator[None]:
    """Ctrl-C comes afterwards, so no process is left half begun; processes that begin meanwhile never get it."""
    came = list[int]()
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # Another thread, such as one of BLAS, may still be told, and then it is the main thread that is interrupted.
    main = current_thread() is main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        if came:
            signal.raise_signal(signal.SIGINT)


def _one_thread_each() -> None:
    """What a process does before its first run."""
    # Read by BLAS when it is loaded, which in a spawned process is after this.
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed leaves nobody behind."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
