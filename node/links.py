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
        self._queues: set[asyncio.Queue[bytes]] = set()

    @property
    def connected(self) -> bool:
        return bool(self._queues)

    def send(self, frame: bytes) -> None:
        """To whoever is connected; a peer that is not gets it when it connects."""
        for queue in self._queues:
            queue.put_nowait(frame)

    async def serve(
        self,
        read: Callable[[], Awaitable[Any]],
        write: Callable[[bytes], Awaitable[None]],
        backlog: Iterable[bytes],
        take: Callable[[Any], None],
    ) -> None:
        """Speak over one stream until it ends: first what the peer has missed, then what comes. `take` may raise."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        for frame in backlog:
            queue.put_nowait(frame)
        self._queues.add(queue)
        writer = asyncio.create_task(_drain(queue, write))
        try:
            while (frame := await read()) is not grpc.aio.EOF:
                take(frame)
        finally:
            self._queues.discard(queue)
            writer.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.UsageError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await writer


async def _drain(queue: asyncio.Queue[bytes], write: Callable[[bytes], Awaitable[None]]) -> None:
    while True:
        await write(await queue.get())
