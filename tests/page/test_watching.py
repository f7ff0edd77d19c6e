"""A page that watches runs: one that is over, one that is replayed, one under way; and what it never shows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dpp2.page.place import Place
from tests.conftest import Call
from tests.page.serving import ONE_THREAD, Stream, get, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # processes of their own, each of which loads everything

SMALL = ("--set", "network.agents=8", "--set", "network.topology=ring", "--set", "problem.samples=20")
LONG = (*SMALL, "--set", "run.rounds=400000", "--set", "noise.decay=1.0")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.conftest import call

    run = tmp_path_factory.mktemp("runs") / "<b>small"
    assert call("run", *SMALL, "--set", "run.rounds=60", "--out", run).code == 0
    return run


def complete(state: dict[str, Any]) -> bool:
    return all(state.get(part) for part in ("network", "progress", "overheard", "account"))


def test_a_run_that_is_over(finished: Path) -> None:
    with serving("watch", finished) as (url, _):
        assert url.startswith("http://127.0.0.1:")
        with Stream(url) as stream:
            state = stream.until(complete)
        assert state["progress"]["status"] == "finished"
        assert state["progress"]["points"][-1][0] == 60
        assert state["network"]["name"] == "<b>small"  # as it is: the page writes text, not markup
        assert len(state["network"]["places"]) == 8
        assert state["overheard"]["broken"] is True
        assert state["overheard"]["truths"]["59"]["x"][0]
        assert [note for note in state["account"]["outside"] if "run.seed is public" in note]
        assert get(url, "/", Host="evil.example")[0] == 421
        with Stream(url) as again:
            assert again.next()[0] == "state"


def test_what_was_missed_comes_after_the_last_event_id(finished: Path) -> None:
    with serving("watch", finished, "--speed", 200) as (url, _):
        with Stream(url) as stream:
            assert stream.next()[0] == "state"
            seen = stream.last
            stream.until(lambda state: state.get("progress", {}).get("status") == "finished")
        with Stream(url, seen) as back:
            assert back.next()[0] != "state"
        with Stream(url, "00000000-1") as stranger:
            assert stranger.next()[0] == "state"


def test_a_replay_goes_at_its_speed_and_attacks_what_was_heard_so_far(finished: Path) -> None:
    with serving("watch", finished, "--speed", 5) as (url, _):
        began, heard = time.monotonic(), set()
        with Stream(url) as stream:
            while True:
                kind, document = stream.next()
                if kind == "overheard":
                    heard.add(document["last"])
                if kind == "progress" and document["status"] == "finished":
                    break
        assert time.monotonic() - began > 10  # 60 rounds at 5 a second
        assert min(heard) < 50


@pytest.mark.parametrize("speed", ["0", "-3", "nan"])
def test_a_speed_that_is_none_is_refused(speed: str, finished: Path, dpp2: Call) -> None:
    ended = dpp2("watch", finished, "--speed", speed)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "--speed" in ended.err


def test_a_folder_without_a_run_is_refused(tmp_path: Path, dpp2: Call) -> None:
    ended = dpp2("watch", tmp_path)
    assert ended.code == 2
    assert "expected a run directory" in ended.err
    assert dpp2("watch", tmp_path, "--host", "0.0.0.0", "--wait").code == 2


def test_a_run_without_events_whose_metrics_are_damaged_is_refused(finished: Path, tmp_path: Path, dpp2: Call) -> None:
    run = tmp_path / "damaged"
    shutil.copytree(finished, run)
    (run / "events.jsonl").unlink()
    (run / "metrics.csv").write_text("round,gap\n0,nobody\n")
    ended = dpp2("watch", run, "--no-open")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "an intact metrics.csv" in ended.err


def test_without_telemetry_neither_x_nor_a_gap(tmp_path: Path, dpp2: Call) -> None:
    run = tmp_path / "untold"
    assert dpp2("run", *SMALL, "--set", "run.rounds=40", "--no-truth", "--out", run).code == 0
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert not [line for line in lines if line.get("points")]
    for extra in ((), ("--speed", 1000)):
        with serving("watch", run, *extra) as (url, _):
            with Stream(url) as stream:
                state = stream.until(lambda one: complete(one) and one["progress"]["status"] == "finished")
            assert state["progress"]["points"] == []
            assert state["overheard"]["truths"] == {}
            assert state["overheard"]["broken"] is None
            assert all(not attack["x"] and attack["x_now"] is None for attack in state["overheard"]["attacks"])


def start(*words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dpp2.orchestrator", "run", *map(str, words)]
    return subprocess.Popen(
        command, env={**os.environ, **ONE_THREAD}, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


def test_a_run_under_way_killed_and_resumed(tmp_path: Path) -> None:
    """The page comes before the run and stays; the run neither waits for it nor notices that it is killed."""
    run = tmp_path / "long"
    with serving("watch", run, "--wait") as (url, page), Stream(url) as stream:
        assert stream.next()[1]["progress"]["status"] == "waiting"
        process = start(*LONG, "--out", run)
        try:
            state = stream.until(lambda one: complete(one) and one["progress"]["status"] == "running")
            assert state["overheard"]["source"].startswith(
                ("checkpoints of the run", "observation.zarr")
            )  # by its size
            assert state["overheard"]["attacks"]
            assert state["account"]["rounds"][-1] == 400000
            process.send_signal(signal.SIGKILL)
            process.wait(20)
            process = start("--resume", run)
            again = stream.until(
                lambda one: [e for e in one.get("progress", {}).get("events", []) if e["what"] == "resumed"]
            )
            assert again["progress"]["round"] > 0
            page.kill()
            page.wait(20)
            time.sleep(0.5)
            assert process.poll() is None  # it has not noticed
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
            process.wait(20)
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert lines[-1]["how"] == "interrupted"


def test_a_run_over_nodes_is_measured_from_their_records_and_without_telemetry_its_pace_is_shown(
    tmp_path: Path,
) -> None:
    for name, extra in (("told", ()), ("untold", ("--no-truth",))):
        run = tmp_path / name
        process = start(*LONG, "--transport", "grpc", "--processes", 2, *extra, "--out", run)
        try:
            with serving("watch", run, "--wait") as (url, _), Stream(url) as stream:
                if extra:
                    state = stream.until(lambda one: len(one.get("progress", {}).get("pace", [])) > 3)
                    assert not state.get("measured")
                else:
                    state = stream.until(lambda one: one.get("measured"))
                    assert state["progress"]["points"] == []  # the orchestrator sees no x
                    assert len(state["measured"]["points"][-1]) == 4
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def test_a_run_that_takes_the_place_of_another_is_shown_alone(tmp_path: Path) -> None:
    """The same experiment once more, which has the same name, and then another one."""
    run, rounds = tmp_path / "run", ("--set", "run.rounds=60")
    assert start(*SMALL, *rounds, "--out", run).wait(300) == 0
    with serving("watch", run) as (url, _), Stream(url) as stream:
        stream.until(complete)
        for agents in (8, 6):
            another = ("--set", f"network.agents={agents}", "--force", "--out", run)
            assert start(*SMALL, *rounds, *another).wait(300) == 0
            while (told := stream.next())[0] != "state":
                pass
            assert [told[1][part] for part in ("network", "overheard", "account")] == [None] * 3
            state = stream.until(lambda one: complete(one) and one["progress"]["status"] == "finished")
            assert state["network"]["agents"] == agents
            assert len(state["overheard"]["truths"]["59"]["x"]) == agents


def test_a_run_that_goes_on_for_longer_has_an_account_of_all_its_rounds(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert start(*SMALL, "--set", "run.rounds=20", "--out", run).wait(300) == 0
    with serving("watch", run) as (url, _), Stream(url) as stream:
        assert stream.until(complete)["account"]["rounds"][-1] == 20
        assert start("--resume", run, "--set", "run.rounds=50").wait(300) == 0
        stream.until(lambda one: one.get("account", {}).get("rounds", [0])[-1] == 50)


def test_a_run_opens_a_page_of_its_own_which_holds_nothing_of_it(tmp_path: Path) -> None:
    """Whoever reads what a run prints comes to its end with the run; the page stays for a while, for who comes late."""
    command = [
        sys.executable,
        "-m",
        "dpp2.orchestrator",
        "run",
        *SMALL,
        "--watch",
        "--json",
        "--out",
        str(tmp_path / "run"),
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env={**os.environ, **ONE_THREAD}, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.wait(300) == 0
        ended = time.monotonic()
        out, err = process.communicate(timeout=20)
        assert time.monotonic() - ended < 10  # a page that held a pipe would keep it for 30 s
    assert json.loads(out)["rounds"] == 500
    url = next(word for word in err.split() if word.startswith("http://127.0.0.1:"))
    with Stream(url) as stream:  # it is loaded now, by whoever asks first
        assert stream.until(complete)["progress"]["status"] == "finished"


def resident(pid: int) -> int:
    """Kilobytes of memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_of_the_server_is_flat_over_ten_thousand_rounds(tmp_path: Path) -> None:
    run = tmp_path / "long"
    with serving("watch", run, "--wait") as (url, page), Stream(url) as stream:
        process = start(*LONG, "--out", run)
        try:
            first = stream.until(complete)["progress"]["round"]
            stream.until(lambda one: one.get("progress", {}).get("round", 0) > first + 1000)
            before, told = resident(page.pid), 0
            ends = time.monotonic() + 20
            while time.monotonic() < ends or told < first + 11_000:
                kind, document = stream.next()
                told = document["round"] if kind == "progress" else told
            grown = resident(page.pid) - before
        finally:
            process.kill()
            process.wait(20)
    print(f"server after {told} rounds: {before} kB and {grown} kB more")
    assert grown < 6000


def test_what_an_audit_has_said_of_a_run_is_told_first(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.audited("x_i") == ""
    said = ["The attacker, …", "The positions x_i were recovered.", "The gradients ∇f_i were not."]
    (tmp_path / "audit.json").write_text(json.dumps({"summary": said}))
    assert (place.audited("x_i"), place.audited("∇f_i")) == (said[1], said[2])
    for damaged in ("{", "[]", '{"summary": 3}', '{"summary": [1, {}]}', '{"summary": null}'):
        (tmp_path / "audit.json").write_text(damaged)
        assert place.audited("x_i") == ""


def test_a_run_is_resumed_by_whoever_ran_it(tmp_path: Path) -> None:
    run = tmp_path / "with space"
    run.mkdir()
    assert Place(run).resume == f"dpp2 run --resume '{run}'"
    (run / "cluster.toml").touch()
    assert Place(run).resume == "the same dpp2 orchestrate command"
