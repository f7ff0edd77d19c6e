"""Nodes that are forked from one warm process: they end, and are ended, as processes of their own do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dpp2 import Experiment
from dpp2.orchestrator.processes import FORKS, Nursery, announced, by_itself, ended

pytestmark = pytest.mark.skipif(not FORKS, reason="nodes are forked on Linux alone")

SETTINGS = {"network.topology": "ring", "network.agents": 3, "problem.name": "least-squares", "run.rounds": 5}
TELLS = """
import os
import numpy as np

with open({told!r}, "a") as told:
    told.write(f"{{os.getpid()}} {{np.random.random()}}\\n")
"""
OBJECTIVE = """
class Half:
    dimension = 2
    def value(self, x): return float(x @ x) / 2
    def gradient(self, x): return x

def objective(agent, agents): return Half()
"""
METHOD = """
from dpp2 import algorithm

@algorithm(carries_x="m")
def descent(s, k, own, *, alpha=0.1):
    Pm = yield s.x
    return {"x": s.x - Pm - alpha * own.gradient(s.x)}
"""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def gone(*pids: int) -> bool:
    ends = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < ends:
        time.sleep(0.01)
    return not any(map(alive, pids))


def words(folder: Path, agent: int, **more: Any) -> list[str]:
    named = {"experiment": folder / "experiment.toml", "cluster": folder / "cluster.toml", **more}
    given = [word for name, value in named.items() for word in (f"--{name}", str(value))]
    home = ("--home", str(folder / f"node-{agent}"), "--agents", str(agent), "--listen", "127.0.0.1:0")
    return [*given, *home, "--plaintext"]


def pid_of(folder: Path, agent: int) -> int:
    """By what a process list shows."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            shown = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"dpp2.node" in shown and os.fsencode(folder / f"node-{agent}") in shown and alive(int(entry.name)):
                return int(entry.name)
    raise AssertionError(f"no process list shows node {agent}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "experiment.toml").write_text(Experiment.load(overrides=SETTINGS).resolve().to_toml())
    return tmp_path


@pytest.fixture
async def nursery(folder: Path) -> AsyncIterator[Nursery]:
    opened = Nursery(folder / "experiment.toml", room=len(" ".join(words(folder, 100))))
    yield opened
    await opened.close()


async def test_a_node_is_a_child_of_the_nursery_under_its_own_name_and_in_its_own_session(
    nursery: Nursery, folder: Path
) -> None:
    nodes = [await announced(nursery.start, words(folder, agent)) for agent in (0, 1)]
    pids = [pid_of(folder, agent) for agent in (0, 1)]
    assert len({json.loads(said)["listening"] for _, said in nodes}) == 2
    assert parent(pids[0]) == parent(pids[1])
    assert parent(parent(pids[0])) == os.getpid()
    assert [os.getsid(pid) for pid in pids] == pids  # Ctrl-C at a terminal is none of theirs


async def test_exit_codes_are_those_of_a_process_of_its_own(
    nursery: Nursery, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for wrong in (
        words(folder, 7),
        [*words(folder, 0), "--patience", "0"],
        words(folder, 0, experiment="nowhere.toml"),
    ):
        refusals = []
        for start in (nursery.start, by_itself):
            process, said = await announced(start, wrong)
            refusals.append((await process.wait(), said, capfd.readouterr().err))
        assert refusals[0] == refusals[1]
        assert refusals[0][0] == 2


@pytest.mark.parametrize(("how", "code"), [("kill", -signal.SIGKILL), ("terminate", 0)])
async def test_a_node_is_ended_by_the_nursery(nursery: Nursery, folder: Path, how: str, code: int) -> None:
    process, said = await announced(nursery.start, words(folder, 0))
    pid = pid_of(folder, 0)
    assert said
    assert process.returncode is None
    getattr(process, how)()
    assert await process.wait() == code == process.returncode
    assert gone(pid)
    getattr(process, how)()  # it has ended: nobody else gets the signal


async def test_nodes_die_with_the_nursery_and_the_next_one_gets_a_new_one(nursery: Nursery, folder: Path) -> None:
    before, _ = await announced(nursery.start, words(folder, 0))
    pid = pid_of(folder, 0)
    first = parent(pid)
    os.kill(first, signal.SIGKILL)
    assert await before.wait() == -signal.SIGKILL
    assert gone(pid)
    after, said = await announced(nursery.start, words(folder, 0))
    assert said
    assert parent(pid_of(folder, 0)) != first
    after.terminate()
    await ended(after)


async def test_a_nursery_that_cannot_start_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(folder))
    (folder / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    nursery = Nursery(None, room=10)
    process, said = await announced(nursery.start, words(folder, 0))
    assert (await process.wait(), said) == (3, b"")
    await nursery.close()


async def test_everything_dies_with_whoever_started_it(folder: Path) -> None:
    code = f"""
import asyncio, time
from pathlib import Path
from dpp2.orchestrator.processes import Nursery, announced

async def main():
    await announced(Nursery(None, room=1000).start, {words(folder, 0)!r})
    print("listening", flush=True)
    time.sleep(60)

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "listening\n"
        pid = pid_of(folder, 0)
        pids = [pid, parent(pid)]
        starter.kill()
    assert gone(*pids)


@pytest.mark.parametrize(("section", "code"), [("problem", OBJECTIVE), ("algorithm", METHOD)])
def test_an_owners_python_runs_in_nodes_alone_and_draws_its_own_numbers(
    section: str, code: str, environment: dict[str, str], tmp_path: Path
) -> None:
    own, told = tmp_path / "own.py", tmp_path / "loaded.txt"
    own.write_text(TELLS.format(told=str(told)) + code)
    settings = {**SETTINGS, "problem.name": "quadratic", f"{section}.name": "file", f"{section}.path": own}
    sets = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "dpp2.orchestrator", "run", *sets, "--transport", "grpc"]
    run = subprocess.run(
        [*command, "--processes", "3", "--out", str(tmp_path / "run")], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    loaded = [line.split() for line in told.read_text().splitlines()]
    assert len({pid for pid, _ in loaded}) == 4  # the command and three nodes, not the nursery
    assert len({drawn for _, drawn in loaded}) == len(loaded)


def test_files_of_the_current_folder_are_not_run(tmp_path: Path) -> None:
    """A script of the user's that is called like a library stands in nobody's way, and no node executes it."""
    (tmp_path / "grpc.py").write_text("raise SystemExit('the file of the current folder was run')")
    small = ("network.agents=2", "network.topology=path", "problem.name=quadratic", "run.rounds=3")
    sets = [word for one in small for word in ("--set", one)]
    command = [sys.executable, "-P", "-m", "dpp2.orchestrator", "run", *sets, "--transport", "grpc", "--out", "run"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
