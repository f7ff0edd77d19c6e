"""What goes wrong inside a node is told, with its kind, and leaves the node as it should be."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from dpp2 import BadInput
from dpp2.budget import RunBudget
from dpp2.node.__main__ import _agents
from dpp2.node.server import run_folder
from tests.node.live import SECONDS, Live, assert_same_run, live, one_each, small

ERRORS = (
    IndexError("list index out of range"),
    TypeError("no"),
    MemoryError(),
    ZeroDivisionError("0/0"),
    KeyError("x"),
)


def fail_in_round(nodes: Live, node: int, round_: int, error: Exception) -> None:
    """This node's program raises in this round, as one does whose η list is too short."""
    shell = nodes.nodes[node].shell
    assert shell is not None
    program: Any = shell.machine.program
    honest = program.round

    def failing(state: Any, k: int) -> Any:
        if k == round_:
            raise error
        return honest(state, k)

    program.round = failing


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_whatever_a_round_raises_is_reported(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        fail_in_round(nodes, 1, 6, error)
        await nodes.release(12)
        report = await nodes.watched(1)
        assert report.failure.startswith(type(error).__name__)
        assert (report.round, report.finished, report.diverged) == (6, False, False)
        assert type(error).__name__ in caplog.text
        assert nodes.nodes[1].failure == report.failure


async def test_whatever_the_disk_raises_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing leaves that is not in the journal, nor is a checkpoint written of rounds that are not on record."""
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        shell = nodes.nodes[1].shell
        assert shell is not None
        append = shell.run.folder.records.append

        def full(name: str, values: Any) -> None:
            if shell.machine.k == 7:  # which the machine has just ended: round 6
                raise OSError(28, "No space left on device")
            append(name, values)

        monkeypatch.setattr(shell.run.folder.records, "append", full)
        await nodes.release(12)
        report = await nodes.watched(1)
        assert report.failure == "[Errno 28] No space left on device"
        frames = shell.machine.outbox.frames
        await asyncio.sleep(0.1)
        assert shell.machine.outbox.frames == frames
        await nodes.nodes[1].stop()
        await nodes.start_one(1)
        await nodes.prepare(1)
        again = nodes.nodes[1].shell
        assert again is not None
        assert again.machine.k == 5  # the last checkpoint that was whole stands
        await nodes.finish()
    assert_same_run(nodes)


async def test_a_checkpoint_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        shell = nodes.nodes[1].shell
        assert shell is not None

        def full() -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(shell.run.folder.records, "sync", full)
        await nodes.release(12)
        assert (await nodes.watched(1)).failure == "[Errno 28] No space left on device"


@pytest.mark.parametrize("error", [ValueError("no budget"), OSError("no ledger")], ids=["unexpected", "a disk"])
async def test_a_run_that_could_not_be_prepared_can_be_prepared(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder was opened and is free again: not "in use by another node"."""

    def fails(*arguments: Any) -> RunBudget:
        raise error

    async with live(small(), tmp_path, one_each(4)) as nodes:
        with monkeypatch.context() as patched:
            patched.setattr("dpp2.node.run.RunBudget", fails)
            with pytest.raises(grpc.aio.AioRpcError, match=f"{type(error).__name__} at this node"):
                await nodes.prepare(1)
        assert str(error) in caplog.text
        await nodes.prepare()
        await nodes.finish()
    assert_same_run(nodes)


async def test_what_a_node_says_of_itself_is_never_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """node.json is looked at while the node is killed in the middle of writing it."""
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare(1)
        facts = run_folder(tmp_path / "node-1", nodes.run_id) / "node.json"
        await nodes.nodes[1].stop()
        before = json.loads(facts.read_text())

        def killed(descriptor: int) -> None:
            raise OSError(5, "killed")

        await nodes.start_one(1)
        with monkeypatch.context() as patched:
            patched.setattr("os.fsync", killed)
            with pytest.raises(grpc.aio.AioRpcError, match="killed"):
                await nodes.prepare(1)
        assert json.loads(facts.read_text()) == before
        await nodes.prepare(1)
        async with asyncio.timeout(SECONDS):
            await nodes.prepare(0, 2, 3)
            await nodes.finish()
    assert_same_run(nodes)


@pytest.mark.parametrize("agents", ["3,03", "0,1,1", "3,", "3,-1", "x"])
def test_agents_are_numbers_each_once(agents: str) -> None:
    """Written differently, 03 is the same agent as 3."""
    with pytest.raises(BadInput, match="numbers of agents, each once"):
        _agents(agents)
    assert _agents("2, 0,1") == (0, 1, 2)
