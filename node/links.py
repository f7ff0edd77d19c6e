"""A link to one neighbouring node: one long-lived stream, dialled by the lower-numbered one, again when it breaks."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import grpc

from node.limits import ROOM_SECONDS
from node.queues import Link, Outgoing

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


async def serve(link: Link, stream: Stream, conversation: Conversation) -> None:
    """Speak over one stream until it ends.

    Whoever does not read does not hear that the other end is gone: a stream that waits too long is given up, to be
    dialled again. So is one on which nothing can be written any more.
    """
    writer = asyncio.create_task(_drain(conversation.outgoing, stream))
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
        link.close(conversation.outgoing)
        writer.cancel()
        await asyncio.wait([writer])  # not `await writer`, whose end could pass for a cancel of this task
        _tell_of(writer)


async def _drain(outgoing: Outgoing, stream: Stream) -> None:
    """Write what is there and what comes until the stream ends. asyncio's own queue costs a tenth of a message."""
    loop = asyncio.get_running_loop()
    while True:
        while (frame := outgoing.next()) is not None:
            await stream.write(frame)
        waiter = loop.create_future()
        outgoing.on_put = partial(_wake, waiter)
        await waiter


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


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
