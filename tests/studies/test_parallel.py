"""Fan-out: one process, several, and a Dask cluster that loses a worker give the same numbers in the same order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from dpp2 import BadInput, Experiment, run
from dpp2.arrays import Array
from dpp2.orchestrator.runner import RunFailed
from dpp2.studies.compare import page
from dpp2.studies.compare.comparison import compare
from dpp2.studies.compare.contenders import methods
from dpp2.studies.compare.plan import Plan
from dpp2.studies.compare.search import Effort
from dpp2.studies.compare.tasks import DataSet
from dpp2.studies.parallel import fan_out, gather, opened
from tests.studies.test_compare import OWN

ROOT = Path(__file__).parents[2]


def gaps(seed: int) -> Array:
    """A run that takes a fraction of a second."""
    settings = {"network.agents": 8, "network.topology": "ring", "run.rounds": 60, "run.telemetry": "none"}
    return run(Experiment.load(overrides={**settings, "run.seed": seed}), record=False).metrics.gap


def slow_gaps(job: tuple[int, str]) -> Array:
    """The same, after leaving a note of which process has begun it."""
    seed, notes = job
    Path(notes, f"{os.getpid()}-{seed}").touch()
    time.sleep(0.3)
    return gaps(seed)


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(seed: int) -> None:
    raise BadInput("seed", seed, "another one")


def test_two_processes_give_what_one_gives_in_order() -> None:
    one, two = (fan_out(gaps, range(1, 5), executor=f"processes:{n}") for n in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not np.array_equal(one[0], one[1])


def test_every_finished_run_is_told() -> None:
    told: list[tuple[int, int]] = []
    fan_out(gaps, [1, 2, 3], executor="processes:1", finished=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("executor", ["processes:1", "processes:2"])
def test_what_a_run_raises_reaches_the_caller(executor: str) -> None:
    with pytest.raises(BadInput, match="another one"):
        fan_out(refuse, [7], executor=executor)


def test_a_process_that_dies_is_a_failure_in_one_sentence() -> None:
    with pytest.raises(RunFailed, match="died"):
        fan_out(die, [1], executor="processes:2")


@pytest.mark.parametrize("words", ["threads:2", "processes:0", "processes:-1", "processes:two", "dask:", "2", ""])
def test_other_executors_are_refused(words: str) -> None:
    if not words:  # an empty word is none: one process per core
        with opened(words) as pool:
            assert pool.submit(gaps, 1).result().shape == (61,)
        return
    with pytest.raises(BadInput, match="processes:N"), opened(words):
        pass


def test_a_scheduler_that_does_not_answer_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpp2.studies.parallel._CONNECTING", 1)
    with pytest.raises(BadInput, match="a Dask scheduler that answers"), opened(f"dask:127.0.0.1:{_free_port()}"):
        pass


def test_an_answer_that_cannot_be_kept_is_an_error() -> None:
    def full(job: int, answer: Array) -> None:
        raise OSError(f"no space for {job}")

    with opened("processes:1") as pool, pytest.raises(OSError, match="no space for 1"):
        gather(pool, gaps, [1, 2], lambda done, total: None, full)


@pytest.mark.slow
def test_a_dask_cluster_that_loses_a_worker_gives_the_same(tmp_path: Path) -> None:
    jobs = [(seed, str(tmp_path)) for seed in range(1, 13)]
    with _cluster(tmp_path) as (address, workers):
        killed: list[int] = []

        def kill_one(done: int, total: int) -> None:
            if done == 3 and not killed:
                killed.append(workers[0].pid)
                workers[0].kill()

        found = fan_out(slow_gaps, jobs, executor=f"dask:{address}", finished=kill_one)
        assert workers[0].wait(10) == -signal.SIGKILL
    assert [np.array_equal(a, gaps(seed)) for a, (seed, _) in zip(found, jobs, strict=True)] == [True] * len(jobs)
    worked = {int(path.name.split("-")[0]) for path in tmp_path.glob("*-*") if path.name.split("-")[0].isdigit()}
    assert worked == {worker.pid for worker in workers}


@pytest.mark.slow
def test_a_comparison_on_dask_is_the_same_and_is_kept_where_it_was_asked_for(tmp_path: Path) -> None:
    data = DataSet.of("small", "small", Experiment.load(overrides={"network.topology": "ring", "network.agents": 5}))
    effort = Effort(first=4, waves=1, around=4, finalists=1, trials=1, more_waves=1)
    (tmp_path / "mine.py").write_text(OWN)
    compared = tuple(methods(["dmsp", "dpp3", str(tmp_path / "mine.py")]))
    plan = Plan((data,), compared, (10.0,), starts=("zero",), effort=effort, seeds=2)
    with _cluster(tmp_path) as (address, _):
        found = [
            compare(plan, kept=tmp_path / f"kept{n}", executor=kind)
            for n, kind in enumerate((f"dask:{address}", "processes:2", "processes:1"))
        ]
    assert len({page.csv_text(one) for one in found}) == 1
    assert {"dmsp", "dpp3", "descent"} <= {one.label for one in found[0].results}
    assert len({len(list((tmp_path / f"kept{n}").iterdir())) for n in range(3)}) == 1


@contextmanager
def _cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A real scheduler and two real workers on the loopback interface, each a process that this test owns."""
    address = f"127.0.0.1:{_free_port()}"
    host, port = address.split(":")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", host, "--port", port, "--no-dashboard"]
    started = [subprocess.Popen(dask, env=environment, **quiet)]  # type: ignore[call-overload]
    try:
        _wait_for(host, int(port))
        worker = [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            f"tcp://{address}",
            "--no-nanny",
            "--no-dashboard",
        ]
        options = ["--nthreads", "1", "--memory-limit", "0", "--host", host]
        started += [subprocess.Popen([*worker, *options], env=environment, **quiet) for _ in range(2)]  # type: ignore[call-overload]
        _wait_for_workers(address, 2)
        yield address, started[1:]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait(10)


def _wait_for(host: str, port: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail("the scheduler did not come up")


def _wait_for_workers(address: str, count: int) -> None:
    from distributed import Client

    with Client(address, timeout=30, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        client.wait_for_workers(count, timeout=30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_AT_WORK = """
import os, sys, time
from dpp2.studies.parallel import fan_out
from pathlib import Path

def work(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(60)

if __name__ == "__main__":
    told = []
    try:
        fan_out(work, [sys.argv[1]] * 4, executor="processes:2", finished=lambda done, total: told.append(done))
    except KeyboardInterrupt:
        print(f"stopped, {len(told)} done", flush=True)
"""


@pytest.mark.parametrize(("begun", "sent"), [(0, signal.SIGINT), (2, signal.SIGINT), (2, signal.SIGKILL)])
def test_whoever_is_stopped_leaves_no_process_behind(begun: int, sent: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C comes to every process of a terminal, a kill to the first alone."""
    (tmp_path / "at_work.py").write_text(_AT_WORK)
    (notes := tmp_path / "notes").mkdir()
    words = [sys.executable, str(tmp_path / "at_work.py"), str(notes)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        until = time.monotonic() + 60
        while len(_members(process.pid)) < 4 or len(list(notes.iterdir())) < begun:  # it, the tracker and two workers
            assert time.monotonic() < until
            time.sleep(0.02)
        os.killpg(process.pid, sent) if sent == signal.SIGINT else process.kill()
        said, complained = process.communicate(timeout=30)
    if sent == signal.SIGINT:
        assert (said, complained) == (b"stopped, 0 done\n", b"")
    until = time.monotonic() + 10
    while _members(process.pid):
        assert time.monotonic() < until
        time.sleep(0.02)


def _members(group: int) -> list[int]:
    """Processes of a group that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            state, _, belongs = stat.read_text().rpartition(")")[2].split()[:3]
            found += [int(stat.parent.name)] * (int(belongs) == group and state != "Z")
    return found
