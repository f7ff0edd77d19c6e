"""What a node tells others: no numbers from private data, no names of files, no words of an owner's code."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from dpp2 import BadInput, Experiment
from dpp2.node.errors import Diverged, NodeFailed, PeerFault, Refusals, plain, told
from dpp2.orchestrator.local import for_nodes
from tests.node.live import SMALL, Live, live, one_each, small

SECRET = "4217.25"
OWN = f"""
import numpy as np

class Objective:
    dimension, smoothness, calls = 3, 1.0, 0
    def value(self, x):
        return float(x @ x) / 2
    def gradient(self, x):
        Objective.calls += 1
        if Objective.calls > 40:  # after some rounds
            raise ValueError("the income of patient 7 is {SECRET}")
        return x

def objective(agent, agents):
    return Objective()
"""


async def refused(nodes: Live, node: int) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await nodes.prepare(node)
    assert refusal.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    return str(refusal.value.details())


async def test_a_bound_that_the_data_break_is_refused_without_a_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The private M_i stays in the node's own log."""
    async with live(small(problem__name="least-squares"), tmp_path, one_each(4)) as nodes:
        await nodes.nodes[1].stop()
        common = for_nodes(nodes.simulation.prepared, tmp_path)
        own = replace(common, privacy=common.privacy.updated(smoothness=1e-9))
        nodes.digest = own.digest
        (tmp_path / "experiment.toml").write_text(own.to_toml())
        await nodes.start_one(1)
        sentence = await refused(nodes, 1)
    private = re.search(r"agent 1 has M = ([\d.]+)", caplog.text)
    assert private is not None
    assert private[1] not in sentence
    assert not re.search(r"\d", sentence)
    assert "privacy.smoothness is not accepted at this node" in sentence


async def test_what_an_owners_objective_raises_stays_in_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "objective.py").write_text(OWN)
    own = {"problem.name": "file", "problem.path": str(tmp_path / "own" / "objective.py")}
    tables = {name: value for name, value in SMALL.items() if name != "problem.dimension"} | own
    async with live(Experiment.load(overrides=tables), tmp_path / "nodes", [[0, 1, 2, 3]]) as nodes:
        await nodes.prepare()
        await nodes.release(12)
        report = await nodes.watched(0)
    assert SECRET in caplog.text
    assert report.failure == "problem.path is not accepted at this node; its log says why"


async def test_a_damaged_file_is_named_without_its_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        (tmp_path / "node-1").mkdir()
        (tmp_path / "node-1" / "runs.txt").write_bytes(b"\xff\xfe")
        sentence = await refused(nodes, 1)
    assert sentence == "runs.txt is damaged: this node cannot tell which runs it has had"
    assert f"{tmp_path}/node-1/runs.txt" in caplog.text


ERRORS: dict[str, tuple[Exception, str]] = {
    "a value": (
        BadInput("privacy.smoothness", 5.5, "a bound, but M = 7.25"),
        "privacy.smoothness is not accepted at this node; its log says why",
    ),
    "a path": (NodeFailed("/home/ann lee/x/journal.bin is damaged"), "journal.bin is damaged"),
    "a path with a colon": (NodeFailed("/home/ann:lee/x/journal.bin is damaged: no"), "journal.bin is damaged: no"),
    "two paths": (NodeFailed("/a/b/one is damaged; /a/c/two as well"), "one is damaged; two as well"),
    "numbers of rounds": (Diverged("round 3 has left the range"), "round 3 has left the range"),
    "a full disk": (OSError(28, "No space left on device", "/home/ann/x"), "[Errno 28] No space left on device"),
    "a disk without a number": (OSError("/home/ann/x"), "OSError at this node; its log says more"),
    "anything": (KeyError("patient 7"), "KeyError at this node; its log says more"),
    "what the peer said": (PeerFault("stale", "round 3 is over"), "stale: round 3 is over"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_peer_hears_the_kind_of_an_error(name: str) -> None:
    error, sentence = ERRORS[name]
    assert told(error) == sentence


async def test_an_unexpected_error_on_a_stream_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC by itself would send its text."""
    from tests.node.test_peers import VICTIM, metadata

    async def failing(*arguments: Any) -> None:
        raise ValueError(f"the income is {SECRET}")

    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare(VICTIM)
        monkeypatch.setattr(nodes.nodes[VICTIM]._peers, "answer", failing)
        async with nodes.channel(VICTIM) as channel:
            call: Any = channel.stream_stream("/dpp2.node.v1.Peer/Exchange")(metadata=metadata(nodes))
            code, details = await call.code(), await call.details()
    assert (code, details) == (grpc.StatusCode.INTERNAL, "ValueError at this node; its log says more")
    assert SECRET in caplog.text


async def test_the_name_of_a_relative_home_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with live(small(), Path("patients:berlin"), one_each(4)) as nodes:
        Path("patients:berlin/node-1").mkdir()
        Path("patients:berlin/node-1/runs.txt").write_bytes(b"\xff\xfe")
        assert await refused(nodes, 1) == "runs.txt is damaged: this node cannot tell which runs it has had"


# --- what others say ------------------------------------------------------------------------------------------

SAID = {
    "fine": "fine",
    "a\x1b[31mred\x1b[0m": "a [31mred [0m",
    "title\x1b]0;owned\x07": "title ]0;owned",
    "two\r\nlines\tof it": "two lines of it",
    "c1 \x9b31m": "c1 31m",
    "right to left \u202eevil\u2066": "right to left evil",
    "a" * 1000: "a" * 299 + "…",
    "ε = 3": "ε = 3",
}


@pytest.mark.parametrize("text", SAID, ids=ascii)
def test_a_peers_text_cannot_steer_a_terminal(text: str) -> None:
    assert plain(text) == SAID[text]
    assert plain(text).isprintable()


def test_a_fault_is_logged_as_plain_text(caplog: pytest.LogCaptureFixture) -> None:
    Refusals().count(PeerFault("bad phase", "\x1b[2J" + "x" * 5000))
    assert "\x1b" not in caplog.text
    assert len(caplog.messages[0]) < 400


async def test_text_of_a_node_is_plain_when_it_reaches_the_orchestrator(tmp_path: Path) -> None:
    from dpp2.node.cluster import Cluster
    from dpp2.orchestrator.drive import Drive, DriveFailed

    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        for node in nodes.nodes.values():
            assert node.shell is not None
            node.shell.failure = "\x1b]0;owned\x07\x1b[2J" + "y" * 5000
        drive = Drive(Cluster.load(tmp_path / "cluster.toml"), nodes.run_id, nodes.digest, window=4)
        async with asyncio.timeout(20):
            with pytest.raises(DriveFailed, match=r"\]0;owned") as failed:
                await drive.run(lambda heard: None)
    assert str(failed.value).isprintable()
    assert len(str(failed.value)) < 500
