"""Whatever goes wrong while a node is followed ends the run with its name and kind; nothing is waited for in vain."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from dpp2.node.cluster import Cluster
from dpp2.node.tls import ORCHESTRATOR, Identity, node_name
from dpp2.orchestrator import certs
from dpp2.orchestrator.drive import Drive, DriveFailed

TWO = Cluster({0: "127.0.0.1:1", 1: "127.0.0.1:2"}, {})


@pytest.mark.parametrize("error", [IndexError("no such node"), TypeError("a reply of another kind"), MemoryError()])
async def test_an_error_while_a_node_is_followed_ends_the_run(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = Drive(TWO, "ab", "0" * 64, window=1)

    async def fails(node: int, control: Any) -> None:
        if node == 1:
            raise error
        await asyncio.Event().wait()

    monkeypatch.setattr(drive, "_attend", fails)
    async with asyncio.timeout(10):
        with pytest.raises(DriveFailed, match=rf"node 1 \(127\.0\.0\.1:2\): {type(error).__name__}"):
            await drive.run(lambda heard: None)


async def test_a_channel_that_cannot_be_opened_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*arguments: Any) -> Any:
        raise ValueError("an address without a port")

    monkeypatch.setattr("dpp2.orchestrator.drive.open_channel", closed)
    async with asyncio.timeout(10):
        with pytest.raises(DriveFailed, match="ValueError: an address without a port"):
            await Drive(TWO, "ab", "0" * 64, window=1).run(lambda heard: None)


@pytest.mark.parametrize(
    ("node_has_tls", "sentence"),
    [(False, "it speaks plaintext, but --tls was given here"), (True, "as a node with --tls does to whoever comes")],
)
async def test_tls_on_one_side_only_is_named(node_has_tls: bool, sentence: str, tmp_path: Path) -> None:
    certs.make(tmp_path, [[0]], 30)
    server, ours = grpc.aio.server(), Identity.load(tmp_path / "orchestrator", [ORCHESTRATOR])
    if node_has_tls:
        listener = Identity.load(tmp_path / "node-0", [node_name((0,))]).listener()
        port = server.add_secure_port("127.0.0.1:0", listener)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    identity = None if node_has_tls else ours
    drive = Drive(Cluster({0: f"127.0.0.1:{port}"}, {}), "ab", "0" * 64, window=1, identity=identity, patience=1.0)
    try:
        with pytest.raises(DriveFailed) as failed:
            await drive.run(lambda heard: None)
        assert sentence in str(failed.value)
        assert "SSL" not in str(failed.value)
    finally:
        await server.stop(None)
