"""`dpp2 run --transport grpc`: real processes, real kills, and the bytes of an undisturbed embedded run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2.store.ledgers import LedgerFile, Total

Bytes = Callable[[Path], dict[str, bytes]]
Call = Callable[..., Any]
SECONDS = 40  # the longest wait for anything
COMPARED = ("observation.npz", "truth.npz", "solution.npz", "metrics.csv")
CODE = "from dpp2.orchestrator.cli import main; main()"
TABLES: dict[str, Any] = {
    "network.topology": "ring",
    "network.agents": 4,
    "problem.name": "least-squares",
    "problem.dimension": 3,
    "run.rounds": 20,
}


def options(**changes: Any) -> list[str]:
    tables = TABLES | {name.replace("__", "."): value for name, value in changes.items()}
    return [word for name, value in tables.items() for word in ("--set", f"{name}={value}")]


def records(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in COMPARED}


def spent(run: Path) -> list[Total]:
    """The ledger beside a run."""
    return LedgerFile(run.parent / "ledger.sqlite").totals()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def nodes_of(folder: Path) -> list[int]:
    """Node processes whose files are in this folder, whoever their parent is."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if (
                    b"dpp2.node" in words
                    and any(str(folder).encode() in word for word in words)
                    and alive(int(entry.name))
                ):
                    found.append(int(entry.name))
    return sorted(found)


def until(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    ends = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < ends, "waited too long"
        time.sleep(0.01)
    return value


def rounds_done(run: Path) -> int:
    """As many as some node has written down already (32 bytes a round, with one agent)."""
    sizes = [path.stat().st_size for path in run.glob("nodes/node-*/runs/*/records/y.f64")]
    return max(sizes, default=0) // 32


class Runs:
    """Starts `dpp2` as a process; whatever is left of one at the end is killed."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str], code: int = 0) -> str:
        said, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == code, said
        return said

    def __call__(self, *words: object, code: int = 0) -> str:
        return self.finish(self.start(*words), code)

    def clean_up(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for pid in nodes_of(self._folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def runs(tmp_path: Path, environment: dict[str, str]) -> Iterator[Runs]:
    started = Runs(tmp_path, environment)
    yield started
    started.clean_up()


@pytest.fixture
def embedded(dpp2: Call, quick_plot: None, tmp_path: Path) -> Callable[..., dict[str, bytes]]:
    """The records of the same run without a network."""

    def run(**changes: Any) -> dict[str, bytes]:
        ended = dpp2("run", *options(**changes), "--out", tmp_path / "apart" / "embedded")
        assert ended.code == 0, ended.err
        return records(tmp_path / "apart" / "embedded")

    return run


SHAPES: dict[str, list[object]] = {"two processes": ["--processes", 2], "strict": ["--strict", "--processes", 2]}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_bytes_as_embedded(
    shape: str, dpp2: Call, embedded: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    """The nodes are processes, the orchestrator is this one."""
    chosen = options(network__agents=3, run__rounds=12)
    ended = dpp2("run", *chosen, "--transport", "grpc", *SHAPES[shape], "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert nodes_of(tmp_path) == []
    assert records(tmp_path / "run") == embedded(network__agents=3, run__rounds=12)
    assert len([*(tmp_path / "run" / "nodes").glob("node-*")]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_one_process_each(strict: bool, runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path) -> None:
    more = ["--strict"] if strict else []
    runs("run", *options(), "--transport", "grpc", *more, "--out", tmp_path / "run")
    assert records(tmp_path / "run") == embedded()
    assert nodes_of(tmp_path) == []
    assert len([*(tmp_path / "run" / "nodes").glob("node-*")]) == 4


@pytest.mark.slow
def test_the_experiment_may_say_so(runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path) -> None:
    runs("run", *options(run__transport="grpc", network__agents=2, network__topology="path"), "--out", tmp_path / "run")
    assert records(tmp_path / "run") == embedded(network__agents=2, network__topology="path")


@pytest.mark.slow
def test_without_truth(runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path) -> None:
    chosen = options(network__agents=3)
    runs("run", *chosen, "--transport", "grpc", "--processes", 2, "--no-truth", "--out", tmp_path / "run")
    whole = embedded(network__agents=3)
    assert not (tmp_path / "run" / "truth.npz").exists()
    for name in ("observation.npz", "solution.npz"):
        assert (tmp_path / "run" / name).read_bytes() == whole[name]


@pytest.mark.slow
def test_os_keys(runs: Runs, tmp_path: Path) -> None:
    """Keys are the owner's alone; a resumed run that has ended writes the same bytes once more."""
    chosen = options(network__agents=3, run__seed="os")
    runs("run", *chosen, "--transport", "grpc", "--processes", 2, "--out", tmp_path / "run")
    keys = [*(tmp_path / "run").rglob("*.key")]
    assert len(keys) == 4
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}
    before = records(tmp_path / "run")
    runs("run", "--resume", tmp_path / "run", "--processes", 2)
    assert records(tmp_path / "run") == before


@pytest.mark.slow
def test_longer(runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path) -> None:
    chosen = options(network__agents=3, run__rounds=13)
    runs("run", *chosen, "--transport", "grpc", "--processes", 2, "--out", tmp_path / "run")
    runs("run", "--resume", tmp_path / "run", "--set", "run.rounds=27")  # keeps its two processes
    assert records(tmp_path / "run") == embedded(network__agents=3, run__rounds=27)


@pytest.mark.slow
def test_another_run_in_its_place(runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path) -> None:
    for seed in (1, 2):
        chosen = options(network__agents=3, run__seed=seed)
        runs("run", *chosen, "--transport", "grpc", "--processes", seed, "--force", "--out", tmp_path / "run")
    assert records(tmp_path / "run") == embedded(network__agents=3, run__seed=2)


# --- ends before the last round -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_budget_ends_the_run_where_it_ends_an_embedded_one(
    dpp2: Call, quick_plot: None, runs: Runs, tmp_path: Path
) -> None:
    """Twice on the same data: the second run gets what the first has left, and the ledgers agree."""
    run, apart = tmp_path / "run", tmp_path / "apart" / "embedded"
    for damping, wanted, done in ((0.0, 10, 10), (1.0, 20, 6)):  # ε is 3.858 and 1.780, where one more would cost 2.221
        tables = {"algorithm__damping": damping, "run__rounds": wanted}
        chosen = [*options(network__agents=3, privacy__budget=6, **tables), "--force"]
        said = runs("run", *chosen, "--transport", "grpc", "--processes", 2, "--out", run)
        assert dpp2("run", *chosen, "--out", apart).code == 0
        assert ("stopped by privacy.budget after 6 rounds" in said) == (done < wanted)
        assert len((run / "metrics.csv").read_text().splitlines()) == done + 2
        assert records(run) == records(apart)
        assert json.loads((run / "privacy.json").read_text()) == json.loads((apart / "privacy.json").read_text())
        assert spent(run) == spent(apart)
    assert {total.runs for total in spent(run)} == {2}


@pytest.mark.slow
def test_divergence_is_a_result(runs: Runs, tmp_path: Path) -> None:
    """Exit code 1 and a sentence; what was sent while numbers were finite is kept, and nobody prints a traceback."""
    chosen = options(
        problem__name="quadratic",
        problem__curvature=-50,
        network__agents=3,
        run__rounds=2000,
        run__largest_value=1.7e308,
    )
    said = runs("run", *chosen, "--transport", "grpc", "--processes", 2, "--out", tmp_path / "run", code=1)
    assert "DIVERGED" in said
    assert "Traceback" not in said
    assert "Warning" not in said
    assert nodes_of(tmp_path) == []
    with np.load(tmp_path / "run" / "observation.npz") as seen:
        rounds, y = len(seen["y"]), seen["y"]
    assert 100 < rounds < 2000
    assert np.isfinite(y).all()
    assert np.abs(y).max() > 1e200  # up to the last checkpoint
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == rounds + 2
    assert {total.runs for total in spent(tmp_path / "run")} == {1}


# --- interrupted and killed -----------------------------------------------------------------------------------

LONG = 800
LONGER = 1500
STEADY: dict[str, Any] = {"noise__decay": 1.0}  # float64 carries it in every round, so ledgers have a number


def kill_one(run: Path, rng: random.Random) -> bool:
    """Some node, wherever it is: starting, catching up, within a round or between two."""
    with suppress(ProcessLookupError, IndexError):
        os.kill(rng.choice(nodes_of(run)), signal.SIGKILL)
        return True
    return False


def pause(run: Path, rng: random.Random, process: subprocess.Popen[str]) -> None:
    """Before the next kill: often too short to recover from the last, otherwise until some rounds have been run."""
    done = rounds_done(run)
    if rng.random() < 0.5:
        until(lambda: rounds_done(run) > done or process.poll() is not None)
    time.sleep(rng.uniform(0.0, 0.4))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("seed", "tls"), [(1, False), (2, False), (3, False), (4, True)], ids=str)
def test_twenty_kills(
    seed: int, tls: bool, runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    """The same bytes, and in the ledger one run, charged once."""
    rng, run, killed = random.Random(seed), tmp_path / "run", 0
    security = ["--tls"] if tls else []
    process = runs.start("run", *options(run__rounds=LONGER, **STEADY), "--transport", "grpc", *security, "--out", run)
    until(lambda: rounds_done(run) > 10)
    while killed < 20:
        assert process.poll() is None, "the run was over before all kills"
        killed += kill_one(run, rng)
        pause(run, rng, process)
    runs.finish(process)
    assert records(run) == embedded(run__rounds=LONGER, **STEADY)
    assert spent(run) == spent(tmp_path / "apart" / "embedded")
    assert nodes_of(tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_orchestrator_is_among_the_killed(
    runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    """Nodes die, the orchestrator dies among them, three times over; what is resumed ends in the same bytes."""
    rng, run = random.Random(5), tmp_path / "run"
    process = runs.start("run", *options(run__rounds=LONGER, **STEADY), "--transport", "grpc", "--out", run)
    until(lambda: rounds_done(run) > 10)
    for _ in range(3):
        for _ in range(3):
            kill_one(run, rng)
            pause(run, rng, process)
        assert process.poll() is None, "the run was over before all kills"
        process.kill()
        process.wait(SECONDS)
        until(lambda: not nodes_of(run), seconds=5)
        process = runs.start("run", "--resume", run)
        until(lambda: nodes_of(run))
    runs.finish(process)
    assert records(run) == embedded(run__rounds=LONGER, **STEADY)
    assert spent(run) == spent(tmp_path / "apart" / "embedded")


@pytest.mark.slow
def test_all_nodes_killed_at_once(runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = runs.start("run", *options(run__rounds=LONG), "--transport", "grpc", "--out", run)
    until(lambda: rounds_done(run) > 50)
    for pid in nodes_of(run):
        os.kill(pid, signal.SIGKILL)
    runs.finish(process)
    assert records(run) == embedded(run__rounds=LONG)


@pytest.mark.slow
def test_the_process_that_nodes_are_forked_from_is_killed(
    runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    """All nodes die with it, and all are started again."""
    run = tmp_path / "run"
    process = runs.start("run", *options(run__rounds=LONG), "--transport", "grpc", "--out", run)
    until(lambda: rounds_done(run) > 50)
    (nursery,) = {parent_of(pid) for pid in nodes_of(run)}
    assert nursery != process.pid
    os.kill(nursery, signal.SIGKILL)
    runs.finish(process)
    assert records(run) == embedded(run__rounds=LONG)


@pytest.mark.slow
def test_interrupted_and_resumed(runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = runs.start("run", *options(run__rounds=LONG), "--transport", "grpc", "--out", run)
    until(lambda: rounds_done(run) > 10)
    process.send_signal(signal.SIGINT)
    assert "--resume" in runs.finish(process, code=130)
    assert nodes_of(tmp_path) == []
    said = runs("run", "--resume", run, "--set", "run.rounds=3", code=2)
    assert "run.rounds = 3: expected at least" in said
    runs("run", "--resume", run)
    assert records(run) == embedded(run__rounds=LONG)


@pytest.mark.slow
def test_the_orchestrator_killed(runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path) -> None:
    """Its nodes end with it, however it ends, and the run can be resumed."""
    run = tmp_path / "run"
    process = runs.start("run", *options(run__rounds=LONG), "--transport", "grpc", "--out", run)
    until(lambda: rounds_done(run) > 10)
    assert len(nodes_of(run)) == 4
    process.kill()
    process.wait(SECONDS)
    until(lambda: not nodes_of(run), seconds=5)
    runs("run", "--resume", run)
    assert records(run) == embedded(run__rounds=LONG)
    assert nodes_of(tmp_path) == []


# --- options that need others -----------------------------------------------------------------------------------


GRPC_ONLY: list[list[Any]] = [["--processes", 2], ["--strict"], ["--tls"], ["--tap", "relay"]]


@pytest.mark.parametrize("option", GRPC_ONLY, ids=lambda option: option[0])
def test_what_an_embedded_run_would_ignore_is_refused(option: list[Any], runs: Runs, tmp_path: Path) -> None:
    process = runs.start("run", *options(), *option, "--out", tmp_path / "run")
    assert "--transport grpc beside it" in runs.finish(process, code=2)
    assert not (tmp_path / "run").exists()


def test_a_tap_on_one_process_is_refused_before_anything_is_made(runs: Runs, tmp_path: Path) -> None:
    tapped = ["--transport", "grpc", "--processes", 1, "--tap", "relay"]
    process = runs.start("run", *options(), *tapped, "--out", tmp_path / "run")
    assert "nothing reaches the wire" in runs.finish(process, code=2)
    assert not (tmp_path / "run").exists()


def test_a_tapped_run_is_heard_to_the_byte(
    runs: Runs, embedded: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    runs("run", *options(), "--transport", "grpc", "--processes", 2, "--tap", "relay", "--out", run)
    with np.load(run / "observation.npz") as sent, np.load(run / "tap" / "observation.npz") as heard:
        for phase in ("y", "z"):
            assert heard[phase].tobytes() == sent[phase].tobytes()
    assert records(run) == embedded()
