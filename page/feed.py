"""Who is watching, and what each of them still has to be told. No I/O: a stream takes messages out, a run puts them in.

Messages have ids that rise; the last few are kept. Whoever comes back with the id of the last message that it had gets
those that it missed; whoever is new, or was away for too long, gets the whole state. A viewer that does not keep up
is dropped: it would cost memory, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_VIEWERS = 32
MOST_WAITING = 64  # messages that one viewer may be behind
KEPT = 256  # messages for those who come back


class TooManyViewers(Exception):
    """No place is free."""


@dataclass(frozen=True)
class Message:
    id: str
    kind: str
    data: str  # JSON, in one line

    def encoded(self) -> bytes:
        """As a server-sent event."""
        text = f"id: {self.id}\nevent: {self.kind}\ndata: {self.data}\n\n"
        return text.encode(errors="replace")  # a name of a file, or a line of a run, need be no text


@dataclass(eq=False)
class Viewer:
    """One open page."""

    waiting: asyncio.Queue[Message] = field(default_factory=lambda: asyncio.Queue(MOST_WAITING))
    dropped: asyncio.Event = field(default_factory=asyncio.Event)


class Feed:
    """All viewers of one page."""

    def __init__(self, whole: Callable[[], str]) -> None:
        """`whole` gives the state as it is now, in JSON."""
        self._whole = whole
        self._start = secrets.token_hex(4)  # ids of a server that has gone mean nothing to this one
        self._count = 0
        self._kept: deque[Message] = deque(maxlen=KEPT)
        self._viewers: set[Viewer] = set()
        self.joined = asyncio.Event()  # somebody has been here
        self.dropped = 0

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def publish(self, kind: str, data: str) -> None:
        self._count += 1
        message = Message(f"{self._start}-{self._count}", kind, data)
        self._kept.append(message)
        for viewer in list(self._viewers):
            self._tell(viewer, message)

    def join(self, last_id: str = "") -> Viewer:
        """A new viewer, or one that comes back; `last_id` is that of the last message which it had."""
        if len(self._viewers) >= MOST_VIEWERS:
            raise TooManyViewers
        viewer = Viewer()
        for message in self._missed(last_id):
            viewer.waiting.put_nowait(message)
        self._viewers.add(viewer)
        self.joined.set()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)

    def _missed(self, last_id: str) -> list[Message]:
        start, _, number = last_id.partition("-")
        if start == self._start and number.isdecimal() and int(number) <= self._count:
            missed = self._count - int(number)
            if missed <= min(len(self._kept), MOST_WAITING // 2):
                return list(self._kept)[len(self._kept) - missed :]
        return [Message(f"{self._start}-{self._count}", "state", self._whole())]

    def _tell(self, viewer: Viewer, message: Message) -> None:
        try:
            viewer.waiting.put_nowait(message)
        except asyncio.QueueFull:
            self._viewers.discard(viewer)
            self.dropped += 1
            viewer.dropped.set()
