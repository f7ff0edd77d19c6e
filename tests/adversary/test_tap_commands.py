"""`dpp2 tap relay|sniff|decode` as a user meets them."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dpp2 import Simulation
from dpp2.adversary.observation import Observation
from dpp2.adversary.tap.local import RelayTap
from dpp2.errors import BadInput
from dpp2.orchestrator.cli import app
from dpp2.orchestrator.cli import tap as _registers_the_commands
from dpp2.orchestrator.local import LocalCluster
from tests.adversary.tapped import InProcess, Live, assert_what_was_sent, one_each, run_tapped, small

assert _registers_the_commands
ROOT = Path(__file__).parent.parent.parent
DPP2 = [sys.executable, "-c", "import dpp2.orchestrator.cli.tap; from dpp2.orchestrator.cli import main; main()"]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Live, Path]:
    folder = tmp_path_factory.mktemp("run")
    nodes = asyncio.run(run_tapped(small(), folder, [[0, 1], [2], [3]], InProcess(folder / "tap")))
    return nodes, folder / "tap"


def decode(nodes: Live, capture: Path, out: Path, *more: str) -> None:
    files = ["--cluster", str(nodes.folder / "cluster.toml"), "--experiment", str(nodes.folder / "experiment.toml")]
    app(["tap", "decode", str(capture), *files, "--out", str(out), *more], standalone_mode=False)


def test_decode_writes_an_observation_and_says_what_it_is(
    captured: tuple[Live, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, capture = captured
    decode(nodes, capture, tmp_path / "out", "--json")
    said = json.loads(capsys.readouterr().out)
    assert said["rounds"] == {"first": 0, "last": 11}
    assert said["channels_unobserved"] == 2
    assert {Path(path).name for path in said["files"]} == {"observation.npz", "decode.json"}
    assert_what_was_sent(Observation.load(tmp_path / "out" / "observation.npz"), nodes)
    kept = json.loads((tmp_path / "out" / "decode.json").read_text())
    assert kept == {name: value for name, value in said.items() if name != "files"}


def test_decode_reads_as_a_few_lines(
    captured: tuple[Live, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, capture = captured
    decode(nodes, capture, tmp_path / "out")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "144 frames decoded: rounds 0 to 11, 6 channels; no gaps"
    assert lines[1] == "2 channels lie within one process and were not observed"
    assert lines[2].startswith("written: ")


def test_the_wrong_files_are_one_sentence(captured: tuple[Live, Path], tmp_path: Path) -> None:
    nodes, capture = captured
    with pytest.raises(BadInput, match="CAPTURE"):
        decode(nodes, tmp_path / "nowhere.pcap", tmp_path / "out")
    (tmp_path / "cluster.toml").write_text('[agents]\n0 = "a:1"\n')
    files = ["--cluster", str(tmp_path / "cluster.toml"), "--experiment", str(nodes.folder / "experiment.toml")]
    with pytest.raises(BadInput, match="addresses of all 4 agents"):
        app(["tap", "decode", str(capture), *files, "--out", str(tmp_path)], standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["relay", "--link", "3-7=nonsense"], "--link"),
        (["relay", "--link", "0-1=203.0.113.1:7000,127.0.0.1:1"], "--link"),  # not an address of this machine
        (["sniff", "--port", "0"], "--port"),
        (["sniff", "--port", "70000"], "--port"),
        (["sniff", "--port", "7000", "--seconds", "0"], "--seconds"),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_option(arguments: list[str], named: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=named):
        app(["tap", *arguments, "--out", str(tmp_path / "out")], standalone_mode=False)


def test_relay_runs_until_interrupted(tmp_path: Path) -> None:
    """As on machines apart: a command between two of them, given both addresses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = "{}:{}".format(*server.getsockname())
        arguments = ["tap", "relay", "--link", f"0-1=127.0.0.1:0,{target}", "--out", str(tmp_path), "--json"]
        with subprocess.Popen([*DPP2, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            said = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            host, port = said["listening"]["0-1"].split(":")
            with socket.create_connection((host, int(port))) as client, server.accept()[0] as accepted:
                client.sendall(b"hello")
                assert accepted.recv(5) == b"hello"
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0
    assert b"hello" in Path(said["record"]).read_bytes()


def test_a_local_cluster_of_processes_can_be_tapped(tmp_path: Path) -> None:
    """The tap that `dpp2 run` puts between its nodes, and what it makes of what it heard."""
    simulation = Simulation(small(run__rounds=10, run__transport="grpc"))
    tap = RelayTap(tmp_path / "tap")
    groups = one_each(4)
    cluster = LocalCluster(simulation.prepared, tmp_path / "nodes", groups, ledger=tmp_path / "ledger.json", tap=tap)
    asyncio.run(cluster.run(lambda drive: None, window=64, stop_requested=threading.Event().is_set))
    (tmp_path / "experiment.toml").write_text(simulation.experiment.to_toml())
    found = tap.finish(tmp_path).observation
    assert found is not None
    simulation.advance(simulation.remaining)
    truth = simulation.result().observation
    assert truth is not None
    assert all(found.phases[phase].tobytes() == truth[phase].tobytes() for phase in found.phases)
    assert Observation.load(tmp_path / "tap" / "observation.npz").shape == (10, 4, 3)


async def test_a_run_in_one_process_cannot_be_tapped(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="at least two processes"):
        await RelayTap(tmp_path).start({0: "a:1", 1: "a:1"}, [])


async def test_a_tap_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    with pytest.raises(BadInput, match="taken: File exists"):
        await RelayTap(tmp_path / "taken").start({0: "127.0.0.1:1", 1: "127.0.0.1:2"}, [(0, 1)])
