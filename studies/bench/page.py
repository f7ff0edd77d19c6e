"""`dpp2 bench page`: what `--watch` costs a run; all ways take turns.

Nobody looks; somebody reads all that the page is told, as a browser on another machine does; Chromium looks, which
draws on the cores of the run and takes its own share of them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from threading import Event, Thread
from urllib.request import urlopen

from dpp2.studies.bench.benchmark import Bench, Benchmark, Note
from dpp2.studies.tables import TextTable

# Long ones: the start of a browser takes one and a half seconds of a core, whatever it shows.
RUNS: Mapping[str, Sequence[str]] = {
    "the paper's network, embedded, 60,000 rounds": ("--set", "run.rounds=60000"),
    "10 nodes in a ring, 3,000 rounds": (
        "--transport", "grpc", "--set", "network.agents=10", "--set", "network.topology=ring",
        "--set", "run.rounds=3000",
    ),
}  # fmt: skip
WAYS = ("not watched", "nobody looks", "read to the end", "a browser looks")
_TURNS = 5
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/")


@dataclass(frozen=True)
class Took:
    rate: float  # rounds a second
    cpu: float  # seconds of the run and of its nodes, not of the page


@dataclass(frozen=True)
class Row:
    """One way, beside the run without a page of the same turn: medians of the ratios, and their quartiles."""

    run: str
    way: str
    rounds_per_second: float
    cpu_seconds: float
    rate_ratio: float | None
    rate_quartiles: tuple[float, float] | None
    cpu_ratio: float | None
    cpu_quartiles: tuple[float, float] | None


class PageBenchmark(Benchmark[list[Row]]):
    def measure(self, asked: Bench) -> list[Row]:
        return measure(asked.note)

    def table(self, measured: list[Row]) -> TextTable:
        head = ("run", "way", "rounds/s", "of not watched", "CPU of the run", "of not watched")
        rows = [
            (row.run, row.way, f"{row.rounds_per_second:,.0f}", _said(row.rate_ratio, row.rate_quartiles),
             f"{row.cpu_seconds:.2f} s", _said(row.cpu_ratio, row.cpu_quartiles))
            for row in measured
        ]  # fmt: skip
        return TextTable(head, rows, f"{_TURNS} turns; medians and quartiles (goal: 0.95 of the rounds/s)")


def _said(ratio: float | None, spread: tuple[float, float] | None) -> str:
    return f"{ratio:.3f} ({spread[0]:.3f}–{spread[1]:.3f})" if ratio is not None and spread is not None else ""


def measure(note: Note = lambda _: None, turns: int = _TURNS, runs: Mapping[str, Sequence[str]] = RUNS) -> list[Row]:
    ways = WAYS if _browser() else WAYS[:-1]
    made = []
    for name, options in runs.items():
        took: dict[str, list[Took]] = {way: [] for way in ways}
        for turn in range(turns):
            for way in ways if turn % 2 else ways[::-1]:  # what one leaves behind must not always meet the same one
                note(f"{name}: {way}, turn {turn + 1} of {turns}")
                took[way].append(_run(options, way))
        made += [_row(name, way, took[way], took[ways[0]]) for way in ways]
    return made


def _row(run: str, way: str, took: Sequence[Took], without: Sequence[Took]) -> Row:
    rate, cpu = median(one.rate for one in took), median(one.cpu for one in took)
    if took is without:
        return Row(run, way, rate, cpu, None, None, None, None)
    rates = [one.rate / other.rate for one, other in zip(took, without, strict=True)]
    cpus = [one.cpu / other.cpu for one, other in zip(took, without, strict=True)]
    return Row(run, way, rate, cpu, median(rates), _quartiles(rates), median(cpus), _quartiles(cpus))


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def _run(options: Sequence[str], way: str) -> Took:
    """One run from its start to its end; whoever looks comes before its first round."""
    with tempfile.TemporaryDirectory(prefix="dpp2-bench-") as folder:
        said, told = Path(folder, "said"), Path(folder, "told")
        command = [sys.executable, "-m", "dpp2.orchestrator", "run", *options, "--out", f"{folder}/run", "--json"]
        with said.open("a") as out, told.open("a") as err:
            process = subprocess.Popen([*command, *(["--watch"] if way != WAYS[0] else [])], stdout=out, stderr=err)
            with _company(way, told, process):
                _, code, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        if process.returncode:
            raise RuntimeError(told.read_text()[-500:])
        return Took(json.loads(said.read_text())["rounds_per_second"], used.ru_utime + used.ru_stime)


def _address(told: Path, process: subprocess.Popen[bytes], seconds: float = 60.0) -> str:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and process.poll() is None:
        if found := _ADDRESS.search(told.read_text()):
            return found.group()
        time.sleep(0.02)
    raise RuntimeError(f"the run has printed no address: {told.read_text()[-500:]}")


def _company(way: str, told: Path, process: subprocess.Popen[bytes]) -> AbstractContextManager[None]:
    match WAYS.index(way):
        case 2:
            return _reading(_address(told, process))
        case 3:
            return _looking(_address(told, process))
        case _:
            return nullcontext()


@contextmanager
def _reading(url: str) -> Iterator[None]:
    """All that a browser is told, and nothing is drawn. A heartbeat comes soon after the run has ended."""
    over = Event()

    def read() -> None:
        with urlopen(f"{url}events", timeout=60) as stream:
            while stream.readline() and not over.is_set():
                pass

    reader = Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()


@contextmanager
def _looking(url: str) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="dpp2-bench-", ignore_cleanup_errors=True) as profile:
        nowhere = subprocess.DEVNULL
        command = [_browser(), *_QUIET, f"--user-data-dir={profile}", url]
        browser = subprocess.Popen(command, stdout=nowhere, stderr=nowhere, start_new_session=True)
        try:
            yield
        finally:
            browser.terminate()
            browser.wait(20)


def _browser() -> str:
    return next((found for name in _BROWSERS if (found := shutil.which(name))), "")


PAGE = PageBenchmark()
