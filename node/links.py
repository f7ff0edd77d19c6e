"""A link to one neighbouring node: one long-lived stream, dialled by the lower-numbered one, again when it breaks."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Protocol

import grpc

from dpp2.node.errors import PeerFault
from dpp2.node.limits import ROOM_SECONDS, SLOWEST, UNREAD_SECONDS
from dpp2.node.queues import Link, Outgoing

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
    outgoing = conversation.outgoing
    writing = _Writing(outgoing, stream)
    writer = asyncio.create_task(writing.drain())
    try:
        async with asyncio.timeout(None) as limit:
            end = _ending(limit)
            writer.add_done_callback(end)
            outgoing.on_end = end
            try:
                await _listen(stream, conversation)
            finally:
                writer.remove_done_callback(end)
    except TimeoutError:
        pass
    finally:
        link.close(outgoing)
        writing.watch.cancel()
        await _let_go(link, writing, writer)
    if outgoing.fault is not None:
        raise PeerFault(outgoing.fault.kind, outgoing.fault.detail)  # itself would keep all that it passes through


class _Writing:
    """Writes frames to a stream. A peer that does not read them in time is a fault: it may come back."""

    def __init__(self, outgoing: Outgoing, stream: Stream) -> None:
        self._outgoing, self._stream = outgoing, stream
        self._loop = asyncio.get_running_loop()
        self._until = inf  # when the frame that is being written must have been
        self.watch = self._loop.call_later(UNREAD_SECONDS, self._look)

    @property
    def busy(self) -> bool:
        """gRPC has a frame and has not got rid of it."""
        return self._until < inf

    async def drain(self) -> None:
        """Write what is there and what comes until the stream ends. asyncio's own queue costs a tenth of a message."""
        outgoing, loop = self._outgoing, self._loop
        while True:
            while (frame := outgoing.next()) is not None:
                self._until = loop.time() + UNREAD_SECONDS + len(frame) / SLOWEST
                await self._stream.write(frame)
            self._until = inf
            if outgoing.closed:
                return
            waiter = loop.create_future()
            outgoing.on_put = partial(wake, waiter)
            await waiter

    def _look(self) -> None:
        """Now and then, since a timer for every frame would cost more than the frame."""
        if self._loop.time() > self._until:
            self._outgoing.end(PeerFault("not reading", f"a frame has waited for more than {UNREAD_SECONDS:g} s"))
        else:
            self.watch = self._loop.call_later(UNREAD_SECONDS / 4, self._look)


async def _let_go(link: Link, writing: _Writing, writer: asyncio.Task[None]) -> None:
    """A frame that gRPC has taken cannot be taken back: it counts until the peer reads it or its connection ends."""
    if writing.busy and not writer.done():
        link.unread += 1
        writer.add_done_callback(partial(_read_at_last, link))
        return
    writer.cancel()
    await asyncio.wait([writer])  # not `await writer`, whose end could pass for a cancel of this task
    _tell_of(writer)


def _read_at_last(link: Link, writer: asyncio.Task[None]) -> None:
    link.unread -= 1
    _tell_of(writer)


def wake(waiter: asyncio.Future[None]) -> None:
    """Let whoever waits for it go on, unless something else has."""
    if not waiter.done():
        waiter.set_result(None)


async def _listen(stream: Stream, conversation: Conversation) -> None:
    while (frame := await stream.read()) is not grpc.aio.EOF:
        try:
            has_room = conversation.take(frame)
        except PeerFault as fault:
            raise fault.with_traceback(None) from None  # it would keep the frame, with all who have looked at it
        finally:
            del frame  # which may be long, and the wait, too
        if not has_room:
            await asyncio.wait_for(conversation.wait_for_room(), ROOM_SECONDS)


def _ending(limit: asyncio.Timeout) -> Any:
    """A writer that has died, or a fault, ends the reading, too, unless that is over."""

    def end(writer: asyncio.Task[None] | None = None) -> None:
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
