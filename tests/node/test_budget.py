"""A node keeps its own budget, whatever it is asked for, and its ledger is right however it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from dpp2 import Simulation
from dpp2.node.cluster import Cluster
from dpp2.node.server import run_folder
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc
from dpp2.orchestrator.drive import Drive
from dpp2.orchestrator.local import for_nodes
from dpp2.privacy import Epsilon
from dpp2.store.ledgers import LedgerFile
from tests.node.live import EVERY, SECONDS, Live, assert_same_run, live, networked, one_each, small

BUDGET, WITHIN = 1.0, 4  # ε of four rounds of the small experiment is 0.955, of five 1.278
WIDER, WITHIN_WIDER = 3.0, 9  # ε of nine rounds is 2.969, of ten 3.516
FOREVER = 2**64 - 1


async def asked(nodes: Live, node: int) -> Any:
    """What a node answers to the call that prepares it."""
    async with nodes.channel(node) as channel:
        request = wire_pb2.PrepareRequest(run=nodes.run_id, digest=nodes.digest)
        return await wire_pb2_grpc.ControlStub(channel).Prepare(request, timeout=SECONDS)


async def give(nodes: Live, budgets: Mapping[int, float | None]) -> None:
    """Start nodes again, each with a budget of its own in its own file."""
    for node, budget in budgets.items():
        await nodes.nodes[node].stop()
        common = for_nodes(nodes.simulation.prepared, nodes.folder)
        own = replace(common, privacy=common.privacy.updated(budget=budget))
        assert own.digest == nodes.digest
        (nodes.folder / "experiment.toml").write_text(own.to_toml())
        await nodes.start_one(node)


def charged(nodes: Live, node: int) -> list[tuple[int, float | None]]:
    """What the agents of a node have spent: on how many runs, and ε."""
    totals = LedgerFile(nodes.folder / f"node-{node}" / "ledger.sqlite").totals()
    assert [int(total.agent) for total in totals] == list(nodes.groups[node])
    return [(total.runs, total.spent.value if isinstance(total.spent, Epsilon) else None) for total in totals]


def epsilon(simulation: Simulation, rounds: int) -> float | None:
    spent = simulation.account.epsilon(rounds)
    assert isinstance(spent, Epsilon)
    return spent.value


# --- where a run ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [one_each(4), [[0, 1], [2, 3]]], ids=["one each", "pairs"])
async def test_a_node_stops_before_its_budget_whatever_is_released(
    groups: list[list[int]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = small(privacy__budget=BUDGET)
    async with live(experiment, tmp_path, groups) as nodes:
        replies = [await asked(nodes, node) for node in nodes.groups]
        for reply, group in zip(replies, groups, strict=True):
            assert (list(reply.agents), reply.round, reply.allowed) == (group, 0, WITHIN)
            assert reply.reason == f"the budget of agents {group} admits no more; their node's log has the numbers"
        numbers = "the budget admits 4 rounds: round 4 would bring the total to ε = 1.27804, over the budget of 1"
        assert [record.message for record in caplog.records] == [numbers] * len(groups)
        await nodes.release(FOREVER)
        for node in nodes.groups:
            report = await nodes.watched(node)
            assert (report.finished, report.round) == (True, WITHIN)
            shell = nodes.nodes[node].shell
            assert shell is not None
            assert shell.machine.rounds_begun == WITHIN
        for node, agents in nodes.groups.items():  # settled by the end of the run, not by that of the process
            assert charged(nodes, node) == [(1, epsilon(nodes.simulation, WITHIN))] * len(agents)
    nodes.simulation.budget.allow(nodes.simulation.budget.fresh_ledgers())
    assert nodes.simulation.remaining == WITHIN
    assert_same_run(nodes)


async def test_without_a_budget_everything_is_allowed(tmp_path: Path) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        reply = await asked(nodes, 2)
        assert (reply.allowed, reply.reason) == (12, "")


@pytest.mark.parametrize("window", [1, 512], ids=["strict", "windowed"])
async def test_the_run_ends_where_the_first_budget_does(window: int, tmp_path: Path) -> None:
    """Budgets are the nodes' own: the others are told, end there, too, and are charged for no more."""
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await give(nodes, {0: WIDER, 2: BUDGET, 3: None})
        drive = Drive(Cluster.load(tmp_path / "cluster.toml"), nodes.run_id, nodes.digest, window=window)
        async with asyncio.timeout(SECONDS):
            await drive.run(lambda heard: None)
        assert [drive.seen[node].allowed for node in nodes.groups] == [WITHIN_WIDER, 12, WITHIN, 12]
        assert (drive.round, drive.diverged) == (WITHIN, False)
        assert drive.last.reason.startswith("the budget of agents [2] admits no more")
        for node in nodes.groups:
            assert charged(nodes, node) == [(1, epsilon(nodes.simulation, WITHIN))]
    assert nodes.merged().k == WITHIN


async def test_a_budget_for_nothing_at_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await give(nodes, {1: 0.01})
        drive = Drive(Cluster.load(tmp_path / "cluster.toml"), nodes.run_id, nodes.digest, window=512)
        async with asyncio.timeout(SECONDS):
            await drive.run(lambda heard: None)
        assert (drive.round, drive.last.allowed) == (0, 0)
        assert drive.last.reason.startswith("the budget of agents [1] admits no more")
        assert "over the budget of 0.01" in caplog.text
        assert charged(nodes, 0) == [(1, 0.0)]
        assert LedgerFile(tmp_path / "node-1" / "ledger.sqlite").totals() == []


# --- a hostile orchestrator -----------------------------------------------------------------------------------


async def test_a_hostile_orchestrator_cannot_pass_a_budget(tmp_path: Path) -> None:
    """Not with credit without end, nor by asking twice, nor by another experiment; the others hang, and no more."""
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await give(nodes, {2: BUDGET})
        await nodes.prepare()
        for _ in range(3):
            await nodes.release(FOREVER)
            await nodes.prepare()
        await nodes.reach(WITHIN)
        digest, nodes.digest = nodes.digest, small(noise__u_w=0.0).resolve().digest
        with pytest.raises(grpc.aio.AioRpcError, match="wrong digest") as refused:
            await nodes.prepare(2)
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        nodes.digest = digest
        await nodes.release(FOREVER)
        assert (await nodes.watched(2)).finished
        shell = nodes.nodes[2].shell
        assert shell is not None
        assert (shell.machine.k, shell.machine.rounds_begun) == (WITHIN, WITHIN)
        assert charged(nodes, 2) == [(1, epsilon(nodes.simulation, WITHIN))]
    for agent in (1, 3):  # in the middle of round 4, which will never end: they sent it, so it counts
        assert charged(nodes, agent) == [(1, epsilon(nodes.simulation, WITHIN + 1))]


async def test_new_names_for_runs_open_no_new_budget(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each id is another run with noise of its own; all of them draw on one ledger."""
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await give(nodes, dict.fromkeys(nodes.groups, 2 * BUDGET))
        allowed = []
        for name in ("a", "b", "c"):
            nodes.run_id = name * 32
            allowed.append((await asked(nodes, 2)).allowed)
            await nodes.prepare()
            await nodes.release(3)
            await nodes.reach(min(3, allowed[-1]))
            for node in nodes.groups:
                await nodes.nodes[node].stop()
                await nodes.start_one(node)
        assert allowed == [6, 5, 3]
        (runs, spent), *_ = charged(nodes, 2)
        assert runs == 3
        assert spent is not None
        assert spent <= 2 * BUDGET
        nodes.run_id = "d" * 32
        reply = await asked(nodes, 2)
        assert reply.allowed == 0
        assert reply.reason.startswith("the budget of agents [2] admits no more")
        assert "earlier runs on the same data have spent" in caplog.text


# --- the ledger afterwards ------------------------------------------------------------------------------------


async def test_a_stop_in_the_middle_of_a_round_counts_it(tmp_path: Path) -> None:
    """Agent 3 is held back, so the others hang in round 6, of which they have sent something and it has not."""
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(6)
        await nodes.reach(6)
        await nodes.release(12, 0, 1, 2)
        async with asyncio.timeout(SECONDS):
            while [node.shell.machine.rounds_begun for node in nodes.nodes.values() if node.shell] != [7, 7, 7, 6]:
                await asyncio.sleep(0.005)
    for node, rounds in enumerate((7, 7, 7, 6)):
        assert charged(nodes, node) == [(1, epsilon(nodes.simulation, rounds))]


async def test_a_resumed_run_is_not_charged_twice(tmp_path: Path) -> None:
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await give(nodes, {1: WIDER})
        for until in (3, 7):
            await nodes.prepare()
            await nodes.release(until)
            await nodes.reach(until)
            for node in nodes.groups:
                await nodes.nodes[node].stop()
                assert charged(nodes, node) == [(1, epsilon(nodes.simulation, until))]
                await nodes.start_one(node)
        await give(nodes, {1: WIDER})
        reply = await asked(nodes, 1)
        assert (reply.round, reply.allowed) == (7, WITHIN_WIDER)
        await nodes.prepare()
        await nodes.release(WITHIN_WIDER)
        await nodes.reach(WITHIN_WIDER)
    for node in nodes.groups:
        assert charged(nodes, node) == [(1, epsilon(nodes.simulation, WITHIN_WIDER))]


async def test_a_loss_of_power_takes_the_journal_and_no_charge(tmp_path: Path) -> None:
    """Seven rounds were released and sent. The journal is lost: the node stops, or its operator says that it goes on.

    Then it ends in order before it gets as far as before.
    """
    async with live(small(), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(7)
        await nodes.reach(7)
        folder = run_folder(tmp_path / "node-1", nodes.run_id)
        on_disk = {path: path.read_bytes() for path in (folder / "node.json", folder / "checkpoint.bin")}
        await nodes.nodes[1].stop()
        for path, content in on_disk.items():
            path.write_bytes(content)
        (folder / "journal.bin").write_bytes(b"")
        (tmp_path / "node-1" / "ledger.sqlite").unlink()  # as if nothing had been settled
        await nodes.start_one(1)
        for _ in range(2):  # to be asked again changes nothing
            with pytest.raises(
                grpc.aio.AioRpcError, match="may lack what was sent in rounds 5 to 6, since power was lost"
            ):
                await asked(nodes, 1)
        await nodes.nodes[1].stop()
        await nodes.start_one(1, trust_journal=True)
        assert (await asked(nodes, 1)).round == 5
        await nodes.nodes[1].stop()
        assert charged(nodes, 1) == [(1, epsilon(nodes.simulation, 7))]
        await nodes.start_one(1)
        await nodes.prepare(1)
        await nodes.finish()
        assert charged(nodes, 1) == [(1, epsilon(nodes.simulation, 12))]
    assert_same_run(nodes)


async def test_runs_on_the_same_data_add_up(tmp_path: Path) -> None:
    for runs, damping in enumerate((0.0, 1.0, 2.0), start=1):
        nodes = await networked(small(algorithm__damping=damping), tmp_path, one_each(4))
        ((counted, spent),) = charged(nodes, 0)
        assert counted == runs
        assert spent == pytest.approx(runs * (epsilon(nodes.simulation, 12) or 0), rel=1e-12)
    other = await networked(small(problem__seed=7), tmp_path, one_each(4))
    totals = LedgerFile(tmp_path / "node-0" / "ledger.sqlite").totals()
    assert sorted(total.runs for total in totals) == [1, 3]
    assert other.merged().k == 12


async def test_own_keys_and_an_own_budget(tmp_path: Path) -> None:
    """Unseeded: every node draws its key, so nobody else could have computed what was sent, and the account holds."""
    async with live(small(run__seed="os"), tmp_path, one_each(4)) as nodes:
        for node in nodes.groups:
            (tmp_path / f"node-{node}-keys" / f"agent-{node}.key").unlink()
        await give(nodes, {3: BUDGET})
        await nodes.prepare()
        await nodes.release(FOREVER, 3)
        await nodes.release(WITHIN, 0, 1, 2)
        await nodes.reach(WITHIN)
    keys = {path.read_text() for path in tmp_path.glob("node-*-keys/agent-*.key")}
    assert len(keys) == 4
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.key")} == {0o600}
    for node in nodes.groups:
        assert charged(nodes, node) == [(1, epsilon(nodes.simulation, WITHIN))]
    nodes.simulation.advance(WITHIN)
    ours, theirs = nodes.simulation.recorder.sent_arrays["y"], nodes.merged().recorder.sent_arrays["y"]
    assert not (ours[:WITHIN] == theirs[:WITHIN]).any()


# --- real processes -------------------------------------------------------------------------------------------


@asynccontextmanager
async def process(nodes: Live, agents: str) -> AsyncIterator[Any]:
    """`dpp2 node` with these agents, in a home of its own, after it has said where it listens."""
    files = {"--experiment": "experiment.toml", "--cluster": "cluster.toml", "--home": "node-0"}
    named = [word for option, name in files.items() for word in (option, str(nodes.folder / name))]
    more = ["--agents", agents, "--listen", f"127.0.0.1:{nodes.ports.get(0, 0)}", "--checkpoint-every", str(EVERY)]
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dpp2.node", *named, *more, "--plaintext"), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert started.stdout is not None
        async with asyncio.timeout(SECONDS):
            nodes.ports[0] = json.loads(await started.stdout.readline())["listening"]
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


def alone(folder: Path, agents: tuple[int, ...]) -> Live:
    """One node; agents that are not its own are nowhere."""
    nodes = Live(Simulation(small()), folder, [agents])
    (folder / "experiment.toml").write_text(for_nodes(nodes.simulation.prepared, folder).to_toml())
    addresses = {agent: f"127.0.0.1:{1 if agent in agents else 2}" for agent in range(4)}
    (folder / "cluster.toml").write_text(Cluster(addresses, {}).to_toml())
    return nodes


async def at_round(nodes: Live, round_: int) -> None:
    async with asyncio.timeout(SECONDS), nodes.channel(0) as channel:
        watch = wire_pb2_grpc.ControlStub(channel).Watch(wire_pb2.WatchRequest(run=nodes.run_id))
        async for report in watch:
            if report.round >= round_ and report.frames_sent >= (len(nodes.groups[0]) < 4):
                return


ENDINGS = {"terminated": (signal.SIGTERM, 0), "killed": (signal.SIGKILL, -signal.SIGKILL)}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_process_that_ends_between_rounds_and_goes_on(ending: str, tmp_path: Path) -> None:
    """A kill leaves the charge for all that was allowed; the resumed run settles it, once."""
    number, code = ENDINGS[ending]
    nodes = alone(tmp_path, (0, 1, 2, 3))
    async with process(nodes, "0,1,2,3") as node:
        await nodes.prepare()
        await nodes.release(7)
        await at_round(nodes, 7)
        async with asyncio.timeout(SECONDS):  # that of round 5 is written while rounds go on
            while not (run_folder(tmp_path / "node-0", nodes.run_id) / "checkpoint.bin").exists():
                await asyncio.sleep(0.01)
        node.send_signal(number)
        assert await asyncio.wait_for(node.wait(), SECONDS) == code
    stands = 7 if ending == "terminated" else 12
    assert charged(nodes, 0) == [(1, epsilon(nodes.simulation, stands))] * 4
    async with process(nodes, "0,1,2,3") as node:
        assert (await asked(nodes, 0)).round == (7 if ending == "terminated" else 5)
        await nodes.release(9)
        await at_round(nodes, 9)
        node.terminate()
        assert await asyncio.wait_for(node.wait(), SECONDS) == 0
    assert charged(nodes, 0) == [(1, epsilon(nodes.simulation, 9))] * 4


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_process_that_ends_within_its_first_round(ending: str, tmp_path: Path) -> None:
    """Agent 3 is nowhere: of round 0 something has left, and it counts."""
    number, code = ENDINGS[ending]
    nodes = alone(tmp_path, (0, 1, 2))
    async with process(nodes, "0,1,2") as node:
        await nodes.prepare()
        await nodes.release(12)
        await at_round(nodes, 0)
        node.send_signal(number)
        assert await asyncio.wait_for(node.wait(), SECONDS) == code
    stands = 1 if ending == "terminated" else 12
    assert charged(nodes, 0) == [(1, epsilon(nodes.simulation, stands))] * 3
    assert (run_folder(tmp_path / "node-0", nodes.run_id) / "journal.bin").stat().st_size > 0


async def test_a_ledger_that_is_lost_in_mid_run_is_charged_at_the_end(tmp_path: Path) -> None:
    async with live(small(run__seed="os", privacy__budget=3.0), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(3)
        await nodes.reach(3)
        (tmp_path / "node-1" / "ledger.sqlite").unlink()
    totals = [LedgerFile(home / "ledger.sqlite").totals()[0] for home in nodes.homes]
    assert str(totals[1].spent) == str(totals[0].spent)
    assert totals[1].runs == 1


async def test_a_lost_ledger_does_not_grant_the_budget_again(tmp_path: Path) -> None:
    """Unless the earlier run is prepared again, which charges it anew."""
    async with live(small(run__seed="os", privacy__budget=3.0), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(3)
        await nodes.reach(3)
        await nodes.nodes[1].stop()
        (tmp_path / "node-1" / "ledger.sqlite").unlink()
        await nodes.start_one(1)
        first, nodes.run_id = nodes.run_id, "ab" * 16
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match=f"ledger.sqlite lacks run {first}.*charges it again"):
                await nodes.prepare(1)
        nodes.run_id = first
        await nodes.prepare(1)
        await nodes.nodes[1].stop()
        await nodes.start_one(1)
        nodes.run_id = "ab" * 16
        await nodes.prepare(1)
