"""Streams between nodes as gRPC has them: frames in order, or an end. One end may notice later than the other.

A stream is dialled, answered and established in three moments, between which everything else can happen. Whoever does
not read, because it has enough in hand, does not hear that the other end is gone.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from dpp2.node.errors import PeerFault
from dpp2.node.inbox import Lane
from dpp2.node.queues import Outgoing

if TYPE_CHECKING:
    from tests.simulation.virtual_node import VirtualNode

IN_FLIGHT = 5  # frames that a stream holds; a writer that has more waits


class End:
    """One node's end of a stream. `coming` are the frames that travel towards it."""

    def __init__(self, node: VirtualNode, peer: int) -> None:
        self.node, self.peer, self.life = node, peer, node.life
        self.need = node.prepared.machine.k  # what it says of itself when the stream is opened
        self.hello = node.said_hello_to(peer)
        self.coming: deque[bytes] = deque()
        self.ends = False  # nothing will come after what is coming
        self.closed = False
        self.full = False  # enough in hand: it does not read
        self.lane: Lane | None = None
        self.outgoing: Outgoing | None = None
        self._next: bytes | None = None  # what it will write next

    @property
    def alive(self) -> bool:
        """Whether there is a process that has not closed it, nor got a newer stream of the same neighbour."""
        replaced = self.outgoing is not None and self.outgoing.fault is not None
        return not self.closed and not replaced and self.life == self.node.life and self.node.run is not None

    def open(self, need: int, hello: bytes) -> None:
        """The other one needs frames from this round on."""
        run = self.node.prepared
        run.machine.check_need(need)
        if hello:
            run.machine.meet(self.peer, hello)
        self.lane = run.machine.open_lane(self.peer, self.need)
        self.outgoing = run.open_stream(self.peer, need)

    def readable(self) -> bool:
        if self.lane is None or not self.alive:
            return False
        if self.full and self.node.prepared.machine.has_room(self.lane):
            self.full = False
        return not self.full

    def read(self) -> bytes | None:
        """The next frame is taken; None at the end. A fault is raised as the node raises it."""
        assert self.lane is not None
        if not self.coming:
            return None
        frame = self.coming.popleft()
        self.node.take(frame, self.lane, self.peer)
        self.full = not self.node.prepared.machine.has_room(self.lane)
        return frame

    def has_more(self) -> bool:
        """Whether there is something to write."""
        if self._next is None and self.outgoing is not None and self.alive:
            try:
                self._next = self.outgoing.next()
            except OSError:  # records that a full disk has not taken cannot be read: the stream ends
                self.close()
        return self._next is not None

    def written(self) -> bytes:
        assert self._next is not None
        frame, self._next = self._next, None
        return frame

    def __str__(self) -> str:
        return f"{self.peer}→{self.node}"

    def close(self) -> None:
        if self.alive and self.outgoing is not None:
            self.node.prepared.links[self.peer].close(self.outgoing)
        self.closed = True


class Stream:
    """From the node that dials to the one that listens."""

    def __init__(self, dialler: VirtualNode, listener: VirtualNode) -> None:
        self.dialler = End(dialler, listener.name)
        self.listener: End | None = None
        self._target = listener
        self.refused = ""  # why one end did not want the other
        self.tampered = False  # somebody else has put frames into it
        self.working = dialler  # whose process opens its end

    def answer(self) -> None:
        """The call has arrived. Who is not there, or not prepared, or finds it wrong, ends it."""
        if self._target.run is None:
            self.dialler.ends = True
            return
        self.working = self._target
        self.listener = End(self._target, self.dialler.node.name)
        try:
            self.listener.open(self.dialler.need, self.dialler.hello)
        except PeerFault as fault:
            self.fault(self.listener, fault)

    def establish(self) -> None:
        """The answer has arrived."""
        assert self.listener is not None
        self.working = self.dialler.node
        try:
            self.dialler.open(self.listener.need, self.listener.hello)
        except PeerFault as fault:
            self.fault(self.dialler, fault)

    @property
    def ends(self) -> list[End]:
        return [self.dialler] if self.listener is None else [self.dialler, self.listener]

    def other(self, end: End) -> End | None:
        return self.listener if end is self.dialler else self.dialler

    def write(self, end: End) -> list[bytes]:
        """What this end has to say goes on its way, as far as there is room; returned is what has left."""
        other, left = self.other(end), []
        while other is not None and len(other.coming) < IN_FLIGHT and end.alive and end.has_more():
            left.append(end.written())
            if not other.ends:
                other.coming.append(left[-1])
        return left

    def cut(self, rng: random.Random) -> None:
        """Both directions; of what was on its way some may still arrive."""
        for end in self.ends:
            self.no_more(end, rng)

    def no_more(self, end: End, rng: random.Random) -> None:
        """Nothing more will come to this end but some of what is on its way."""
        for _ in range(rng.randint(0, len(end.coming))):
            end.coming.pop()
        end.ends = True

    def hang_up(self, end: End, rng: random.Random) -> None:
        """This end is closed, so the other one will hear the end."""
        end.close()
        other = self.other(end)
        if other is not None:
            self.no_more(other, rng)

    def fault(self, end: End, fault: PeerFault) -> None:
        """This end refuses what the other one did, and ends the stream."""
        self.refused = str(fault)
        end.close()
        other = self.other(end)
        if other is not None:
            other.coming.clear()
            other.ends = True

    def __str__(self) -> str:
        return f"{self.dialler.node}–{self._target}"

    @property
    def over(self) -> bool:
        return not any(end.alive for end in self.ends)
