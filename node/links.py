"""A link to one neighbouring node: one long-lived stream, dialled by the lower-numbered one, again when it breaks."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol

import grpc

from node.hosting import Neighbour
from node.limits import ROOM_SECONDS

log = logging.getLogger("dpp2.node")

# What reading and writing raise; InternalError: a peer that has gone while it was written to.
STREAM_ENDED = (grpc.aio.AioRpcError, grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError)


class Stream(Protocol):
    """One end of a gRPC stream, dialled or answered."""

    async def read(self) -> Any: ...

    async def write(self, frame: bytes, /) -> None: ...


class Conversation(Protocol):
    """What is said over one stream, seen from this node."""

    outgoing: Outgoing

    def take(self, frame: bytes) -> bool:
        """May raise. False: that is enough, and nothing should be read before there is room."""

    async def wait_for_room(self) -> None: ...


class Outgoing:
    """Frames on their way to one stream. asyncio's own queue costs a tenth of a message; there is one reader here."""

    def __init__(self, backlog: Iterable[bytes], need: int) -> None:
        self.need = need  # the round from which on the peer needs frames
        self._backlog: Iterator[bytes] | None = iter(backlog)  # read when there is room: a peer may have missed a lot
        self._frames: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, frame: bytes) -> None:
        self._frames.append(frame)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def next(self) -> bytes | None:
        """In order: what the peer has missed, then what comes. None if there is nothing."""
        if self._backlog is not None:
            for frame in self._backlog:
                return frame
            self._backlog = None
        return self._frames.popleft() if self._frames else None

    async def drain(self, stream: Stream) -> None:
        """Write what is there and what comes until the stream ends."""
        loop = asyncio.get_running_loop()
        while True:
            while (frame := self.next()) is not None:
                await stream.write(frame)
            self._waiter = loop.create_future()
            await self._waiter


class Link:
    """Frames to one neighbour go into the queue of every stream that is open to it (normally one)."""

    def __init__(self, neighbour: Neighbour) -> None:
        self.neighbour = neighbour
        self._open: list[Outgoing] = []

    def open(self, backlog: Iterable[bytes], need: int) -> Outgoing:
        outgoing = Outgoing(backlog, need)
        self._open.append(outgoing)
        return outgoing

    def close(self, outgoing: Outgoing) -> None:
        self._open.remove(outgoing)

    def send(self, k: int, frame: bytes) -> None:
        """To whoever is connected and has not got past round k; a peer that is not there gets it when it connects."""
        for outgoing in self._open:
            if k >= outgoing.need:
                outgoing.put(frame)

    async def serve(self, stream: Stream, conversation: Conversation) -> None:
        """Speak over one stream until it ends.

        Whoever does not read does not hear that the other end is gone: a stream that waits too long is given up, to be
        dialled again. So is one on which nothing can be written any more.
        """
        writer = asyncio.create_task(conversation.outgoing.drain(stream))
        try:
            async with asyncio.timeout(None) as limit:
                end = _ending(limit)
                writer.add_done_callback(end)
                try:
                    await _listen(stream, conversation)
                finally:
                    writer.remove_done_callback(end)
        except TimeoutError:
            pass
        finally:
            self.close(conversation.outgoing)
            writer.cancel()
            await asyncio.wait([writer])  # not `await writer`, whose end could pass for a cancel of this task
            _tell_of(writer)


async def _listen(stream: Stream, conversation: Conversation) -> None:
    while (frame := await stream.read()) is not grpc.aio.EOF:
        if not conversation.take(frame):
            await asyncio.wait_for(conversation.wait_for_room(), ROOM_SECONDS)


def _ending(limit: asyncio.Timeout) -> Any:
    """A writer that has died ends the reading, too, unless that is over."""

    def end(writer: asyncio.Task[None]) -> None:
        with suppress(RuntimeError):
            limit.reschedule(asyncio.get_running_loop().time())

    return end


def _tell_of(writer: asyncio.Task[None]) -> None:
    """A stream that has ended is nothing to speak of; a fault of ours is."""
    if writer.cancelled():
        return
    error = writer.exception()
    if error is not None and not isinstance(error, STREAM_ENDED):
        log.error("a link ends, because its next frame cannot be written: %s: %s", type(error).__name__, error)
