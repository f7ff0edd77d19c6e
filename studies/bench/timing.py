"""How benchmarks take time: everything that is compared takes turns, and the median counts."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import median

REPETITIONS = 5


def interleaved(measured: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Median seconds of each, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(REPETITIONS):
        for name, measure in measured.items():
            gc.collect()  # memory that the last one left must not decide whether the next one faults in fresh pages
            times[name].append(measure())
    return {name: median(values) for name, values in times.items()}


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cpu_timed(work: Callable[[], object]) -> float:
    """CPU seconds of this process: what others do on the machine counts less."""
    began = time.process_time()
    work()
    return time.process_time() - began
