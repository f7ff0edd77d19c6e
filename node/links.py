"""A link to one neighbouring node: one long-lived stream, dialled by the lower-numbered one, again when it breaks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc

from node.hosting import Neighbour
from node.limits import ROOM_SECONDS


class Link:
    """Frames to one neighbour go into the queue of every stream that is open to it (normally one)."""

    def __init__(self, neighbour: Neighbour) -> None:
        self.neighbour = neighbour
        self._queues: list[_Queue] = []

    def send(self, k: int, frame: bytes) -> None:
        """To whoever is connected and has not got past round k; a peer that is not there gets it when it connects."""
        for queue in self._queues:
            if k >= queue.need:
                queue.put(frame)

    async def serve(
        self,
        read: Callable[[], Awaitable[Any]],
        write: Callable[[bytes], Awaitable[None]],
        backlog: Iterable[bytes],
        need: int,
        take: Callable[[Any], bool],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        """Speak over one stream until it ends: first what the peer has missed, then what comes.

        `take` may raise. Where it says that this is enough, nothing is read before there is `room`. Whoever does not
        read does not hear that the other end is gone: a stream that waits too long is given up, to be dialled again.
        """
        queue = _Queue(backlog, need)
        self._queues.append(queue)
        writer = asyncio.create_task(queue.drain(write))
        writer.add_done_callback(lambda done: done.cancelled() or done.exception())  # the reader hears of it, too
        try:
            while (frame := await read()) is not grpc.aio.EOF:
                if not take(frame):
                    await asyncio.wait_for(room(), ROOM_SECONDS)
        except TimeoutError:
            pass
        finally:
            self._queues.remove(queue)
            writer.cancel()
            await asyncio.wait([writer])  # not `await writer`, whose end could pass for a cancel of this task


class _Queue:
    """Frames on their way to one stream. asyncio's own queue costs a tenth of a message; there is one reader here."""

    def __init__(self, backlog: Iterable[bytes], need: int) -> None:
        self.need = need  # the round from which on the peer needs frames
        self._backlog = backlog  # read when the stream has room: a peer may have missed a lot
        self._frames: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, frame: bytes) -> None:
        self._frames.append(frame)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def drain(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write what is there and what comes, in order, until the stream ends."""
        loop = asyncio.get_running_loop()
        for frame in self._backlog:
            await write(frame)
        while True:
            while self._frames:
                await write(self._frames.popleft())
            self._waiter = loop.create_future()
            await self._waiter
