"""A link to one neighbouring node: one long-lived stream, dialled by the lower-numbered one, again when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import grpc

from node.hosting import Neighbour


class Link:
    """Frames to one neighbour go into the queue of every stream that is open to it (normally one)."""

    def __init__(self, neighbour: Neighbour) -> None:
        self.neighbour = neighbour
        self._queues: dict[asyncio.Queue[bytes], int] = {}  # with the round from which on the peer needs frames

    def send(self, k: int, frame: bytes) -> None:
        """To whoever is connected and has not got past round k; a peer that is not there gets it when it connects."""
        for queue, need in self._queues.items():
            if k >= need:
                queue.put_nowait(frame)

    async def serve(
        self,
        read: Callable[[], Awaitable[Any]],
        write: Callable[[bytes], Awaitable[None]],
        backlog: Iterable[bytes],
        need: int,
        take: Callable[[Any], None],
    ) -> None:
        """Speak over one stream until it ends: first what the peer has missed, then what comes. `take` may raise."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        for frame in backlog:
            queue.put_nowait(frame)
        self._queues[queue] = need
        writer = asyncio.create_task(_drain(queue, write))
        try:
            while (frame := await read()) is not grpc.aio.EOF:
                take(frame)
        finally:
            del self._queues[queue]
            writer.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.UsageError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await writer


async def _drain(queue: asyncio.Queue[bytes], write: Callable[[bytes], Awaitable[None]]) -> None:
    while True:
        await write(await queue.get())
