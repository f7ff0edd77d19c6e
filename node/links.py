"""A link to one neighbouring node: one long-lived stream, dialled by the lower-numbered one, again when it breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
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

    def write(self, frame: bytes, /) -> Coroutine[Any, Any, None]: ...


class Conversation(Protocol):
    """What is said over one stream, seen from this node."""

    outgoing: Outgoing

    def take(self, frame: bytes) -> bool:
        """May raise. False: that is enough, and nothing should be read before there is room."""

    async def wait_for_room(self) -> None: ...

    def when_carried_out(self, action: Callable[[], None]) -> None:
        """Do this once the machine's effects have all been carried out: only then is on record what was sent."""


async def serve(link: Link, stream: Stream, conversation: Conversation) -> None:
    """Speak over one stream until it ends.

    Whoever does not read does not hear that the other end is gone: a stream that waits too long is given up, to be
    dialled again. So is one on which nothing can be written any more.
    """
    outgoing = conversation.outgoing
    writing = _Writing(outgoing, stream)
    try:
        async with asyncio.timeout(None) as limit:
            end = _ending(limit)
            writing.on_end = outgoing.on_end = end
            outgoing.on_put = partial(conversation.when_carried_out, writing.go_on)
            writing.go_on()
            try:
                await _listen(stream, conversation)
            finally:
                writing.on_end = None
    except TimeoutError:
        pass
    finally:
        link.close(outgoing)
        writing.watch.cancel()
        if writing.busy:  # gRPC has a frame that cannot be taken back
            writing.on_end = partial(link.read_at_last, writing)
            link.leave_unread(writing)
    if outgoing.fault is not None:
        raise PeerFault(outgoing.fault.kind, outgoing.fault.detail)  # itself would keep all that it passes through


class _Writing:
    """Writes frames to a stream. A peer that does not read them in time is a fault: it may come back.

    A write begins as soon as its frame is there, and its steps are taken here: the turns of a task, which come later,
    cost an eighth of a message.
    """

    def __init__(self, outgoing: Outgoing, stream: Stream) -> None:
        self._outgoing, self._stream = outgoing, stream
        self._loop = asyncio.get_running_loop()
        self._write: Coroutine[Any, Any, None] | None = None  # that is under way
        self._until = inf  # when its frame must have been written
        self.on_end: Callable[[], None] | None = None  # nothing can be written any more, or the last frame has been
        self.watch = self._loop.call_later(UNREAD_SECONDS, self._look)

    @property
    def busy(self) -> bool:
        """gRPC has a frame and has not got rid of it."""
        return self._write is not None

    def go_on(self) -> None:
        """There may be something to write. A write that is under way goes on by itself."""
        if not self.busy:
            self._run()

    def _run(self, _: Any = None) -> None:
        """As a task does: up to something that must be waited for, which raises its own exceptions."""
        try:
            while (write := self._write or self._begin()) is not None:
                try:
                    waited_for = write.send(None)
                except StopIteration:
                    self._write = None
                else:
                    waited_for._asyncio_future_blocking = False  # we heard of it, and call back
                    waited_for.add_done_callback(self._run)
                    return
        except (Exception, asyncio.CancelledError) as error:
            self._write = None
            self._outgoing.drop()
            _tell_of(error)
        self._until = inf
        if self._outgoing.closed and self.on_end is not None:
            self.on_end()

    def _begin(self) -> Coroutine[Any, Any, None] | None:
        """To write the next frame, if there is one."""
        if (frame := self._outgoing.next()) is not None:
            self._until = self._loop.time() + UNREAD_SECONDS + len(frame) / SLOWEST
            self._write = self._stream.write(frame)
        return self._write

    def _look(self) -> None:
        """Now and then, since a timer for every frame would cost more than the frame."""
        if self._loop.time() > self._until:
            self._outgoing.end(PeerFault("not reading", f"a frame has waited for more than {UNREAD_SECONDS:g} s"))
        else:
            self.watch = self._loop.call_later(UNREAD_SECONDS / 4, self._look)


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


def _ending(limit: asyncio.Timeout) -> Callable[[], None]:
    """What cannot be written, or a fault, ends the reading, too, unless that is over."""

    def end() -> None:
        with suppress(RuntimeError):
            limit.reschedule(asyncio.get_running_loop().time())

    return end


def _tell_of(error: BaseException) -> None:
    """A stream that has ended is nothing to speak of; a fault of ours is."""
    if not isinstance(error, (*STREAM_ENDED, asyncio.CancelledError)):
        log.error("a link ends, because its next frame cannot be written: %s: %s", type(error).__name__, error)
