"""Whatever goes wrong while a node is followed ends the run with its name and kind; nothing is waited for in vain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from node.cluster import Cluster
from orchestrator.drive import Drive, DriveFailed

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

    monkeypatch.setattr("orchestrator.drive.open_channel", closed)
    async with asyncio.timeout(10):
        with pytest.raises(DriveFailed, match="ValueError: an address without a port"):
            await Drive(TWO, "ab", "0" * 64, window=1).run(lambda heard: None)
