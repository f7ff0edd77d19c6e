"""What containers need of the other commands: taps that end when everybody has gone, keys that lie outside the home."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpp2 import Experiment, keys
from dpp2.node.cluster import Cluster
from dpp2.node.keyring import write_key
from dpp2.node.server import Node, NodeConfig
from dpp2.orchestrator.drive import Drive

Call = Callable[..., Any]
QUIET = 1.5


@pytest.fixture
def echo() -> Iterator[int]:
    """A port where everything comes back."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    while data := connection.recv(100):
                        connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_relay_ends_when_everybody_has_gone_and_not_before(
    echo: int, tmp_path: Path, environment: dict[str, str]
) -> None:
    words = [
        "tap",
        "relay",
        "--link",
        f"0-1=127.0.0.1:0,127.0.0.1:{echo}",
        "--out",
        str(tmp_path),
        "--quiet",
        str(QUIET),
    ]
    line = [sys.executable, "-m", "dpp2.orchestrator", *words, "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment) as relay:
        assert relay.stdout is not None
        said = json.JSONDecoder().raw_decode("".join(iter(relay.stdout.readline, "}\n")) + "}")[0]
        address = said["listening"]["0-1"].split(":")
        time.sleep(QUIET + 1)
        assert relay.poll() is None, "nobody has been there yet"
        with socket.create_connection((address[0], int(address[1])), timeout=10) as talking:
            talking.sendall(b"still here")
            assert talking.recv(100) == b"still here"
            time.sleep(QUIET + 1)
            assert relay.poll() is None, "somebody is still there"
        assert relay.wait(20) == 0


def test_a_relay_to_which_nobody_comes_ends(tmp_path: Path, environment: dict[str, str]) -> None:
    words = ("tap", "relay", "--link", "0-1=127.0.0.1:0,127.0.0.1:1", "--out", str(tmp_path), "--patience", "0.5")
    line = [sys.executable, "-m", "dpp2.orchestrator", *words]
    assert subprocess.run(line, capture_output=True, env=environment, timeout=20).returncode == 0


@pytest.mark.parametrize("option", ["--quiet", "--patience"])
@pytest.mark.parametrize("command", [("relay", "--link", "0-1=127.0.0.1:0,127.0.0.1:1"), ("sniff", "--port", "7000")])
def test_a_silence_that_cannot_be_waited_for_is_refused(
    command: tuple[str, ...], option: str, dpp2: Call, tmp_path: Path
) -> None:
    ended = dpp2("tap", *command, "--out", tmp_path, option, 0)
    assert ended.code == 2
    assert f"{option} = 0.0: expected a number > 0" in ended.err


async def test_keys_are_read_where_they_lie_and_none_are_drawn_into_the_home(tmp_path: Path) -> None:
    changes = {"run.seed": "os", "run.rounds": 3, "network.topology": "complete", "network.agents": 2}
    experiment = Experiment.load(overrides=changes | {"problem.name": "quadratic", "problem.dimension": 2}).resolve()
    apart, home, cluster = tmp_path / "keys", tmp_path / "home", tmp_path / "cluster.toml"
    for name in ("eta", "agent-0", "agent-1"):
        write_key(apart / f"{name}.key", keys.fresh_key())
    node = Node(NodeConfig(experiment, (0, 1), cluster, home, None, keys=apart, eta_key=apart / "eta.key"))
    port = await node.start("127.0.0.1:0")
    cluster.write_text(Cluster(dict.fromkeys((0, 1), f"127.0.0.1:{port}"), {}).to_toml())
    async with asyncio.timeout(20):
        drive = Drive(Cluster.load(cluster), "ab", experiment.digest, window=9)
        await drive.run(lambda heard: None)
    await node.stop()
    assert drive.round == 3
    assert (home / "runs" / "ab").is_dir()
    assert not list(home.rglob("*.key"))
