"""What is lost or damaged is noticed before a noisy copy of a value could leave twice: folders, journals, records."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dpp2 import BadInput, Experiment, Simulation
from dpp2.node.disk import RealDisk
from dpp2.node.server import run_folder
from tests.answers import BOWL
from tests.node.live import EVERY, Live, assert_same_run, live, networked, one_each, small

HOMES = ["ledger.sqlite", "runs.txt"]


def folder_of(nodes: Live, node: int) -> Path:
    return run_folder(nodes.folder / f"node-{node}", nodes.run_id)


# --- a run whose folder is lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("forgets", HOMES, ids=["the ledger is lost, too", "the list of runs is lost, too"])
async def test_a_run_whose_folder_is_lost_is_refused(forgets: str, tmp_path: Path) -> None:
    """By whatever remembers it: the noise would be other, and the charge the same."""
    nodes = await networked(small(run__seed="os"), tmp_path, one_each(4))
    shutil.rmtree(folder_of(nodes, 1))
    (tmp_path / "node-1" / forgets).unlink()
    await nodes.start_one(1)
    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError, match=r"has begun here before.*run under another id") as refused:
            await nodes.prepare(1)
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    nodes.run_id = "ab" * 16
    await nodes.prepare(1)
    await nodes.stop()


async def test_a_run_of_which_only_the_nonce_is_left_is_refused(tmp_path: Path) -> None:
    """With the same nonce it would draw the same noise."""
    nodes = await networked(small(run__seed="os"), tmp_path, one_each(4))
    for path in folder_of(nodes, 1).iterdir():
        if path.is_file() and path.name != "run.json":
            path.unlink()
    await nodes.start_one(1)
    with pytest.raises(grpc.aio.AioRpcError, match=r"has begun here before, and .*node\.json is gone"):
        await nodes.prepare(1)
    await nodes.stop()


async def test_a_nonce_that_nobody_else_remembers_is_refused(tmp_path: Path) -> None:
    """Ledger and list of runs are lost, too: the nonce alone tells that the run has begun."""
    nodes = await networked(small(run__seed="os"), tmp_path, one_each(4))
    for path in [*folder_of(nodes, 1).iterdir(), *(tmp_path / "node-1" / name for name in HOMES)]:
        if path.is_file() and path.name != "run.json":
            path.unlink()
    await nodes.start_one(1)
    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError, match=r"node\.json is gone: nobody can tell.*run under another id"):
            await nodes.prepare(1)
    await nodes.stop()


async def test_where_everything_is_lost_but_the_keys_noise_is_not_drawn_twice(tmp_path: Path) -> None:
    """The same keys, the same id, the same data: x⁰ and every row differ, so no difference of two messages tells."""
    nodes = await networked(small(run__seed="os"), tmp_path, one_each(4))
    before = nodes.merged().recorder.sent_arrays["y"].copy()
    for node in nodes.groups:
        shutil.rmtree(folder_of(nodes, node))
        for name in HOMES:
            (tmp_path / f"node-{node}" / name).unlink()
        await nodes.start_one(node)
    await nodes.prepare()
    await nodes.finish()
    await nodes.stop()
    assert not (before == nodes.merged().recorder.sent_arrays["y"]).any()
    assert_same_run(nodes)


async def test_a_seeded_run_may_be_run_again(tmp_path: Path) -> None:
    """Its noise is nobody's secret."""
    for _ in range(2):
        nodes = await networked(small(), tmp_path, one_each(4))
        assert_same_run(nodes)
        for node in nodes.groups:
            shutil.rmtree(folder_of(nodes, node))


@pytest.mark.parametrize("name", ["run.json", "node.json"])
@pytest.mark.parametrize("seed", [1, "os"])
async def test_facts_that_are_lost_or_damaged_stop_a_run_that_has_begun(name: str, seed: Any, tmp_path: Path) -> None:
    nodes = await networked(small(run__seed=seed), tmp_path, one_each(4))
    path = folder_of(nodes, 1) / name
    content = path.read_bytes()
    await nodes.start_one(1)
    path.unlink()
    with pytest.raises(grpc.aio.AioRpcError, match=f"{name} is (gone|missing): nobody can tell"):
        await nodes.prepare(1)
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(grpc.aio.AioRpcError, match=f"{name} is damaged"):
            await nodes.prepare(1)
    path.write_bytes(content)
    await nodes.prepare(1)
    await nodes.stop()


# --- a loss of power ------------------------------------------------------------------------------------------


@pytest.fixture
def reboot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Another start of the machine."""
    boots = tmp_path / "boot_id"
    boots.write_text("0")
    monkeypatch.setattr("dpp2.node.disk._BOOT", boots)

    def again() -> None:
        boots.write_text(f"{int(boots.read_text()) + 1}")

    return again


async def killed(nodes: Live, node: int) -> None:
    """Stopped, with a folder as a kill leaves it: its journal, and the rest as it was before the end."""
    folder = folder_of(nodes, node)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "journal.bin"}
    await nodes.nodes[node].stop()
    for path in folder.glob("checkpoint*"):
        path.unlink()
    for path, content in before.items():
        path.write_bytes(content)


async def reached(nodes: Live, rounds: int) -> None:
    await nodes.prepare()
    await nodes.release(rounds)
    await nodes.reach(rounds)


LOST = 8 + 45 * 11  # of seven rounds with two phases each: one entry of round 5, and round 6


@pytest.mark.parametrize("trusting", [False, True])
async def test_after_a_loss_of_power_nothing_leaves_unless_the_operator_says_so(
    trusting: bool, tmp_path: Path, reboot: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await reached(nodes, 7)
        await killed(nodes, 1)
        journal = folder_of(nodes, 1) / "journal.bin"
        journal.write_bytes(journal.read_bytes()[:LOST].ljust(journal.stat().st_size, b"\0"))
        reboot()
        await nodes.start_one(1, trust_journal=trusting)
        if not trusting:
            said = "may lack what was sent in rounds 5 to 6.*another id, or say --trust-journal"
            with pytest.raises(grpc.aio.AioRpcError, match=said):
                await nodes.prepare(1)
            await nodes.nodes[1].stop()
            await nodes.start_one(1, trust_journal=True)
        await nodes.prepare(1)
        assert "it is trusted" in caplog.text
        await nodes.finish()
    assert_same_run(nodes)


@pytest.mark.parametrize("rounds", [5, 7], ids=["up to the checkpoint", "after it"])
async def test_a_journal_with_fewer_entries_than_were_noted_is_not_believed(rounds: int, tmp_path: Path) -> None:
    """Cut by other hands than a loss of power, on a machine that has stayed up."""
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await reached(nodes, rounds)
        await killed(nodes, 1)
        journal = folder_of(nodes, 1) / "journal.bin"
        journal.write_bytes(journal.read_bytes()[: 8 + 45 * 2])
        await nodes.start_one(1)
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match=r"may lack what was sent in .*say --trust-journal"):
                await nodes.prepare(1)
        await nodes.nodes[1].stop()
        await nodes.start_one(1, trust_journal=True)
        await nodes.prepare(1)
        await nodes.nodes[1].stop()
        await nodes.start_one(1)
        await nodes.prepare(1)
        await nodes.finish()
    assert_same_run(nodes)


async def test_a_journal_that_says_everything_is_enough_after_a_loss_of_power(
    tmp_path: Path, reboot: Callable[[], None]
) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await reached(nodes, 7)
        await killed(nodes, 1)
        reboot()
        await nodes.start_one(1)
        await nodes.prepare(1)
        await nodes.finish()
    assert_same_run(nodes)


async def test_a_node_that_has_ended_in_order_goes_on_after_a_reboot(
    tmp_path: Path, reboot: Callable[[], None]
) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await reached(nodes, 7)
        await nodes.nodes[1].stop()
        reboot()
        await nodes.start_one(1)
        await nodes.prepare(1)
        await nodes.finish()
    assert_same_run(nodes)


async def test_a_node_that_is_killed_on_a_machine_that_stays_up_goes_on(tmp_path: Path) -> None:
    """Its last entry was not finished; nothing of it has left."""
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await reached(nodes, 7)
        await killed(nodes, 1)
        journal = folder_of(nodes, 1) / "journal.bin"
        content = bytearray(journal.read_bytes())
        content[8 + 45 * 14 : 8 + 45 * 15] = b"\x07" * 44 + b"\0"
        journal.write_bytes(content)
        await nodes.start_one(1)
        await nodes.prepare(1)
        await nodes.finish()
    assert_same_run(nodes)


async def test_a_node_does_not_go_on_with_other_data(tmp_path: Path) -> None:
    """Not even after it has ended in order, when there is nothing to be sent again. Its own data come back to it."""
    bowl = tmp_path / "bowl.py"
    bowl.write_text(BOWL)
    own = {"problem.name": "file", "problem.path": str(bowl), "network.agents": 3, "network.topology": "ring"}
    async with live(Experiment.load(overrides=own | {"run.rounds": 12}), tmp_path, one_each(3)) as nodes:
        await reached(nodes, 7)
        await nodes.nodes[1].stop()
        bowl.write_text(f"{BOWL}# changed")
        await nodes.start_one(1)
        with pytest.raises(grpc.aio.AioRpcError, match="other data than those that are here now"):
            await nodes.prepare(1)
        await nodes.nodes[1].stop()
        bowl.write_text(BOWL)
        await nodes.start_one(1)
        await nodes.prepare(1)
        await nodes.finish()
    assert_same_run(nodes)


async def test_the_journal_is_on_disk_before_a_checkpoint_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        shell = nodes.nodes[1].shell
        assert shell is not None
        folder = shell.run.folder
        checkpoints: Any = folder._checkpoints

        def noted(name: str, honest: Callable[..., None]) -> Callable[..., None]:
            def call(*arguments: Any) -> None:
                order.append(name)
                honest(*arguments)

            return call

        for what, name, said in (
            (folder.journal, "sync", "journal"),
            (folder.records, "sync", "records"),
            (checkpoints, "save", "checkpoint"),
        ):
            monkeypatch.setattr(what, name, noted(said, getattr(what, name)))
        await nodes.finish()
    assert order[:3] == ["journal", "records", "checkpoint"]
    assert order.count("checkpoint") == 12 // EVERY + 1


# --- a home from a backup -------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [0, 3], ids=["it dials", "it is dialled"])
@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "no TLS"])
async def test_a_home_that_is_older_than_what_it_has_sent_is_noticed(
    tls: bool, node: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neighbours rest on rounds that it knows nothing of. Who has not proved its name is not believed."""
    async with live(small(run__seed="os"), tmp_path, one_each(4), tls=tls) as nodes:
        await reached(nodes, 6)
        await nodes.nodes[node].stop()
        home, backup = tmp_path / f"node-{node}", tmp_path / "backup"
        shutil.copytree(home, backup)
        await nodes.start_one(node)
        await nodes.prepare(node)
        await nodes.release(10)
        await nodes.reach(10)
        await nodes.nodes[node].stop()
        shutil.rmtree(home)
        shutil.copytree(backup, home)
        await nodes.start_one(node)
        await nodes.prepare(node)
        said = "this home is older than what it has sent to agents"
        async with asyncio.timeout(10):
            while said not in (nodes.nodes[node].failure if tls else caplog.text):
                await asyncio.sleep(0.01)
        assert bool(nodes.nodes[node].failure) == tls
        assert nodes.nodes[node].refusals.counts["bad metadata"] >= 1
        if tls:
            assert (await nodes.watched(node)).failure.endswith("run under another id")


# --- damaged records ------------------------------------------------------------------------------------------


def damage_record(nodes: Live, node: int, round_: int, *, nan: bool = False) -> None:
    """Of one agent with three numbers."""
    path = folder_of(nodes, node) / "records" / "y.f64"
    content = bytearray(path.read_bytes())
    content[32 * round_ : 32 * round_ + 8] = np.array([np.nan if nan else 1.0]).tobytes()
    path.write_bytes(content)


@pytest.mark.parametrize("nan", [False, True])
async def test_damaged_records_are_not_merged(nan: bool, tmp_path: Path) -> None:
    nodes = await networked(small(), tmp_path, one_each(4))
    damage_record(nodes, 2, 7, nan=nan)
    with pytest.raises(BadInput, match=r"whole records, but .*node-2.*y\.f64 is damaged: round 7 is not what was"):
        nodes.merged()


@pytest.mark.parametrize("finished", [False, True])
async def test_damaged_records_are_not_sent_again(finished: bool, tmp_path: Path) -> None:
    """A neighbour replays and needs them: the node that has them fails, and says why."""
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await reached(nodes, 9)
        if finished:
            await nodes.finish()
        await killed(nodes, 1)
        for path in folder_of(nodes, 1).glob("checkpoint*.bin"):
            path.write_bytes(b"gone")
        damage_record(nodes, 0, 3)
        await nodes.start_one(1)
        await nodes.prepare(1)
        await nodes.release(12)
        report = await asyncio.wait_for(nodes.watched(0), 10) if not finished else None
        async with asyncio.timeout(10):
            while not nodes.nodes[0].failure:
                await asyncio.sleep(0.01)
        assert "y.f64 is damaged: round 3 is not what was written" in nodes.nodes[0].failure
        assert report is None or report.failure == nodes.nodes[0].failure
        replaying = nodes.nodes[1].shell
        assert replaying is not None
        assert replaying.machine.k <= 3


# --- a failed write -------------------------------------------------------------------------------------------


async def test_nothing_is_checkpointed_after_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is on its way when a round cannot be recorded; then there is space again, and the node stops."""
    async with live(small(run__rounds=20), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        shell = nodes.nodes[1].shell
        assert shell is not None
        records, folder, may_save = shell.run.folder.records, shell.run.folder, asyncio.Event()
        append, save, loop = records.append, folder.save, asyncio.get_running_loop()

        def full(name: str, values: Any) -> None:
            if shell.machine.k == 7:  # which the machine has just ended: round 6
                raise OSError(28, "No space left on device")
            append(name, values)

        def slowly(effect: Any) -> None:
            asyncio.run_coroutine_threadsafe(may_save.wait(), loop).result()
            save(effect)

        monkeypatch.setattr(records, "append", full)
        monkeypatch.setattr(folder, "save", slowly)
        await nodes.release(20)
        assert (await nodes.watched(1)).failure == "[Errno 28] No space left on device"
        monkeypatch.setattr(records, "append", append)
        may_save.set()
        await nodes.nodes[1].stop()
        assert shell.failure == "[Errno 28] No space left on device"
        await nodes.start_one(1)
        await nodes.prepare(1)
        again = nodes.nodes[1].shell
        assert again is not None
        assert again.machine.k == 5
        await nodes.finish()
    assert_same_run(nodes)


def test_a_journal_that_finds_little_room_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is nearly full takes a part of what is written, and then nothing."""
    taken = 0

    def short(descriptor: int, content: bytes, at: int) -> int:
        nonlocal taken
        if taken >= 3:
            raise OSError(28, "No space left on device")
        taken += 1
        return pwrite(descriptor, content[:1000], at)

    pwrite = os.pwrite
    mapped = RealDisk(tmp_path).map("journal.bin")
    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", short)
        with pytest.raises(OSError, match=r"No space left on device: '.*journal\.bin'"):
            mapped.grow(10_000)
    mapped.grow(10_000)
    assert len(mapped.memory) == 10_000
    mapped.close()


async def test_every_node_draws_a_nonce_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    async with live(small(run__seed="os"), tmp_path, one_each(4)) as nodes:
        await reached(nodes, 3)
        drawn = {json.loads((folder_of(nodes, node) / "run.json").read_text())["nonce"] for node in nodes.groups}
        assert len(drawn) == 4
        assert all(len(nonce) == 64 for nonce in drawn)
        await killed(nodes, 2)
        await nodes.start_one(2)
        await nodes.prepare(2)
        await nodes.finish()
    assert_same_run(nodes)
    assert nodes.simulation.prepared.secrets.agent != Simulation(small()).prepared.secrets.agent
