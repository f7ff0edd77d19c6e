"""Frames on their way to neighbours. Pure: whoever owns the streams writes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from dpp2.node.errors import PeerFault
from dpp2.node.hosting import Neighbour

FramesSince = Callable[[int], Iterable[bytes]]  # everything sent from a phase on; phases are counted as in `Inbox`


class Outgoing:
    """Frames on their way to one stream, which has one writer.

    At most `most` bytes wait here, or one frame. What a slow peer leaves no room for is not kept: it is on record, and
    comes from there when the peer has taken the rest.
    """

    def __init__(self, since: FramesSince, first: int, need: int, most: int) -> None:
        self.need = need  # the round from which on the peer needs frames
        self._since, self._next, self._most = since, first, most  # `_next`: the phase whose frame is next
        self._recorded: Iterator[bytes] = iter(())  # read when there is room: a peer may have missed a lot
        self._frames: deque[bytes] = deque()
        self._bytes = 0  # of these
        self._behind = True  # something was sent that is not in `_frames`
        self.fault: PeerFault | None = None  # why the stream must end
        self.closed = False  # nobody writes any more
        self.on_put: Callable[[], None] | None = None  # wakes whoever writes them
        self.on_end: Callable[[], None] | None = None  # ends the stream

    @property
    def held(self) -> int:
        """Bytes that wait."""
        return self._bytes

    def put(self, frame: bytes) -> None:
        if not self._behind and (not self._frames or self._bytes + len(frame) <= self._most):
            self._frames.append(frame)
            self._bytes += len(frame)
        else:
            self._behind = True
        if self.on_put is not None:
            self.on_put()

    def next(self) -> bytes | None:
        """In order: what the peer has missed, then what comes. None if there is nothing."""
        frame = None if self.closed else self._take()
        if frame is not None:
            self._next += 1
        return frame

    def _take(self) -> bytes | None:
        for frame in self._recorded:
            return frame
        if self._frames:
            frame = self._frames.popleft()
            self._bytes -= len(frame)
            return frame
        if self._behind:
            self._behind, self._recorded = False, iter(self._since(self._next))
            return next(self._recorded, None)
        return None

    def end(self, fault: PeerFault) -> None:
        """Nothing more goes this way, and the stream ends with this."""
        self.fault, on_end = fault, self.on_end
        self.drop()
        if on_end is not None:
            on_end()

    def drop(self) -> None:
        """Let go of everything at once: a collector of cycles would find it much later."""
        self.closed, self._recorded, self._bytes = True, iter(()), 0
        self._frames.clear()
        self.on_put = self.on_end = None


class Link:
    """Frames to one neighbour go into the queue of the one stream that is open to it: the newest."""

    def __init__(self, neighbour: Neighbour, phases: int, most: int) -> None:
        """`most`: bytes that may wait."""
        self.neighbour, self._phases, self._most = neighbour, phases, most
        self.current: Outgoing | None = None
        self.unread = 0  # frames on streams that have ended: gRPC keeps each until the peer reads it or is gone

    def open(self, since: FramesSince, need: int) -> Outgoing:
        """The peer needs frames from round `need` on. With this new stream it has done with the one before."""
        if self.current is not None:
            at = f"node {self.neighbour.node} has opened a newer stream, and one is enough"
            self.current.end(PeerFault("replaced", at))
        self.current = Outgoing(since, need * self._phases, need, self._most)
        return self.current

    def close(self, outgoing: Outgoing) -> None:
        outgoing.drop()
        if self.current is outgoing:
            self.current = None

    def send(self, k: int, frame: bytes) -> None:
        """To a peer that is connected and has not got past round k; one that is not there gets it when it connects."""
        if self.current is not None and k >= self.current.need:
            self.current.put(frame)
