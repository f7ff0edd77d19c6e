"""Frames on their way to neighbours. Pure: whoever owns the streams writes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from node.hosting import Neighbour


class Outgoing:
    """Frames on their way to one stream, which has one writer."""

    def __init__(self, backlog: Iterable[bytes], need: int) -> None:
        self.need = need  # the round from which on the peer needs frames
        self._backlog: Iterator[bytes] | None = iter(backlog)  # read when there is room: a peer may have missed a lot
        self._frames: deque[bytes] = deque()
        self.on_put: Callable[[], None] | None = None  # wakes whoever writes them

    def put(self, frame: bytes) -> None:
        self._frames.append(frame)
        if self.on_put is not None:
            self.on_put()

    def next(self) -> bytes | None:
        """In order: what the peer has missed, then what comes. None if there is nothing."""
        if self._backlog is not None:
            for frame in self._backlog:
                return frame
            self._backlog = None
        return self._frames.popleft() if self._frames else None


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
