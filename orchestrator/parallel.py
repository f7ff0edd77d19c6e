"""Many independent runs on all cores, in the order they were asked for, with a note as each one ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

Job = TypeVar("Job")
Done = TypeVar("Done")


def fan_out(
    work: Callable[[Job], Done],
    jobs: Sequence[Job],
    *,
    processes: int | None = None,
    finished: Callable[[int, int], None] = lambda done, total: None,
) -> list[Done]:
    """work(job) for every job. `work` must be importable, since processes are spawned and not forked."""
    count = min(processes or os.cpu_count() or 1, len(jobs))
    if count == 1:
        results = []
        for job in jobs:
            results.append(work(job))
            finished(len(results), len(jobs))
        return results
    with ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_one_thread_each) as pool:
        return gather(pool, work, jobs, finished)


def gather(
    pool: Executor, work: Callable[[Job], Done], jobs: Sequence[Job], finished: Callable[[int, int], None]
) -> list[Done]:
    """The same over any executor of the standard interface."""
    futures = [pool.submit(work, job) for job in jobs]
    for done, _ in enumerate(as_completed(futures), start=1):
        finished(done, len(jobs))
    return [future.result() for future in futures]


def _one_thread_each() -> None:
    # Read by BLAS when it is loaded, which in a spawned process is after this.
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
