"""Nodes in a run: whoever's certificate is revoked is out, whichever end has dialled, and back when it is allowed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dpp2.node.admission import ALLOWED, shown
from tests.node.live import SECONDS, Live, assert_same_run, live, one_each, small

ROUND, ROUNDS = 6, 12


def allow(nodes: Live, whose: str, *names: str) -> None:
    """Write the list of one node, whole."""
    assert nodes.tls is not None
    lines = [shown((nodes.tls / name / "cert.pem").read_bytes()).fingerprint for name in names]
    beside = nodes.tls / whose / "new"
    beside.write_text("\n".join(lines) + "\n")
    beside.replace(nodes.tls / whose / ALLOWED)


async def refused(nodes: Live, node: int) -> None:
    async with asyncio.timeout(SECONDS):
        while not nodes.nodes[node].refusals.counts["revoked"]:
            await asyncio.sleep(0.05)


async def without(tmp_path: Path, node: int, other: int) -> None:
    """`node` takes `other` off its list in the middle of a run, and later puts it back."""
    async with live(small(run__rounds=ROUNDS), tmp_path, one_each(4), tls=True) as nodes:
        await nodes.prepare()
        await nodes.release(ROUND)
        await nodes.reach(ROUND)
        everybody = [*(f"node-{n}" for n in nodes.groups if n != other), "orchestrator"]
        allow(nodes, f"node-{node}", *everybody)
        await refused(nodes, node)
        await nodes.release(ROUNDS)
        await asyncio.sleep(0.5)
        shell = nodes.nodes[node].shell
        assert shell is not None
        assert shell.machine.k <= ROUND + 1
        allow(nodes, f"node-{node}", *everybody, f"node-{other}")
        await nodes.finish()
    assert_same_run(nodes)


async def test_a_listener_lets_a_revoked_dialler_go(tmp_path: Path) -> None:
    await without(tmp_path, node=2, other=1)


async def test_a_dialler_lets_a_revoked_listener_go(tmp_path: Path) -> None:
    await without(tmp_path, node=1, other=2)


async def test_a_revoked_orchestrator_makes_no_calls(tmp_path: Path) -> None:
    async with live(small(), tmp_path, one_each(4), tls=True) as nodes:
        await nodes.prepare()
        allow(nodes, "node-2", *(f"node-{n}" for n in nodes.groups))
        await asyncio.wait({asyncio.ensure_future(nodes.release(ROUND))}, timeout=1)
        await refused(nodes, 2)
        allow(nodes, "node-2", *(f"node-{n}" for n in nodes.groups), "orchestrator")
        await nodes.finish()
    assert_same_run(nodes)
