"""What neighbours have sent and this node has not used yet. Pure: frames in, completeness out.

A stream brings everything from the round that was asked for on, phase after phase, without a gap. So whoever stops
reading when there is enough in hand holds no more than that, whatever the neighbour leaves out.
Accepts rounds from the last durable checkpoint on (honest peers send those again after a crash). What was accepted is
remembered by its fingerprint until it is durable: the same bytes again are ignored, other bytes for the same (sender,
round, phase) are a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpp2.node.codec import RowFormat, Rows, check_rows, parse, phase_header, readable, sender_header
from dpp2.node.errors import PeerFault
from dpp2.node.fingerprints import Fingerprint
from dpp2.node.limits import REPEATS, rounds_in_hand


class Lane:
    """One stream of a neighbouring node, whose frames hold a row of each of `senders`, phase after phase."""

    __slots__ = ("asked", "copies", "due", "headers", "node", "rounds", "senders", "sizes")

    def __init__(self, node: int, senders: tuple[int, ...], form: RowFormat, asked: int) -> None:
        self.node, self.senders = node, senders
        self.asked = self.due = asked  # the phase from which on we asked for frames; the one that comes next
        self.sizes = [form.size(phase, senders) for phase in form.phases]  # bytes
        self.headers = [sender_header(senders, size) for size in self.sizes]
        self.rounds = rounds_in_hand(form.round_size(senders))  # that are enough
        self.copies = 0  # of frames that have come on this stream before


class _Phase:
    """One phase of one round as far as it has arrived, by node: rows until they are used, then their fingerprints."""

    __slots__ = ("fingerprints", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, bytes] = {}
        self.fingerprints: dict[int, bytes] = {}


class Inbox:
    """`senders`: the agents of each neighbouring node that send to this one.

    Phases are counted through all rounds: the n-th is phase n mod p of round ⌊n/p⌋.
    """

    def __init__(
        self,
        run: str,
        form: RowFormat,
        senders: Mapping[int, tuple[int, ...]],
        fingerprint: Fingerprint,
    ) -> None:
        self.run, self.form, self.phases = run, form, form.phases
        self.senders = dict(sorted(senders.items()))
        self._fingerprint = fingerprint
        self._taken: dict[int, _Phase] = {}
        self._headers: dict[int, bytes] = {}
        self.advance(0)
        self.forget(0)

    def lane(self, node: int, since: int) -> Lane:
        """For a new stream, on which the neighbour was asked for everything from round `since` on."""
        return Lane(node, self.senders[node], self.form, since * len(self.phases))

    def has_enough(self, lane: Lane) -> bool:
        """Whether so much of this neighbour is here, from the current round on, that no more should be read."""
        return lane.due >= self._now + lane.rounds * len(self.phases)

    def take(self, frame: bytes, lane: Lane) -> bool:
        """Store what is new; a fault leaves everything as it was. True if a phase is now complete."""
        n, rows = self._read(frame, lane)
        if n != lane.due:
            self._check_copy(n, lane)
        if n < self._first:
            lane.due += n == lane.due
            return False  # we asked for it ourselves, and have got on without it meanwhile
        taken = self._taken.get(n) or _Phase()
        if self._came(n, lane.node):
            self._compare(rows, taken, lane.node, n)
        else:
            self._taken[n] = taken
            if n >= self._now:
                taken.rows[lane.node] = rows
            else:
                taken.fingerprints[lane.node] = self._fingerprint(rows)
        lane.due += n == lane.due
        return len(taken.rows) == len(self.senders)

    def _read(self, frame: bytes, lane: Lane) -> tuple[int, bytes]:
        """Which phase a frame is of, and its rows.

        As a rule it is the phase that is due, and then everything before the rows is known: a frame that begins with
        just these bytes holds nothing that parsing it could tell. Others are parsed.
        """
        start, phase = self._headers.get(lane.due) or self._open(lane.due), lane.due % len(self.phases)
        header, size = lane.headers[phase], lane.sizes[phase]
        before = len(start) + len(header)
        if len(frame) == before + size and frame.startswith(start) and frame.startswith(header, len(start)):
            rows = frame[before:]
            if readable(self.phases[phase], lane.senders, rows, self.form, self.form.largest):
                return lane.due, rows
        arrived = parse(frame)
        self._check(arrived, lane.senders)  # before its rows: nobody but the senders that are due has any here
        check_rows(arrived, self.form)
        return len(self.phases) * arrived.round + self.phases.index(arrived.phase), arrived.rows

    def _open(self, n: int) -> bytes:
        round_, phase = divmod(n, len(self.phases))
        self._headers[n] = phase_header(self.run, round_, self.phases[phase], self.form.told_dimension)
        return self._headers[n]

    def _check(self, arrived: Rows, expected: Sequence[int]) -> None:
        if arrived.run != self.run:
            raise PeerFault("wrong run", f"this node runs {self.run[:8]}…, not {arrived.run[:8]!r}")
        if arrived.phase not in self.phases:
            raise PeerFault("bad phase", f"{arrived.phase[:20]!r} is not one of {', '.join(self.phases)}")
        if strangers := [sender for sender in arrived.senders if sender not in expected]:
            raise PeerFault("unknown sender", f"{strangers[:5]} are not behind this stream, or no neighbours here")
        if len(arrived.senders) < len(expected):
            raise PeerFault("bad senders", f"{arrived.senders[:5]}, where a row of each of {expected[:5]} is due")

    def _check_copy(self, n: int, lane: Lane) -> None:
        """What is not due can only be a copy of what has come before, and not of anything, nor too often."""
        if n > lane.due and not self._came(n, lane.node):
            raise PeerFault("future", f"{self._at(n)} came, where {self._at(lane.due)} is due")
        if n < min(lane.asked, self._first):
            raise PeerFault("stale", f"{self._at(n)} is over since the checkpoint at {self.durable}")
        lane.copies += 1
        if lane.copies > REPEATS:
            raise PeerFault("too many copies", f"{self._at(n)}, and more than {REPEATS} before, came a second time")

    def _came(self, n: int, node: int) -> bool:
        taken = self._taken.get(n)
        return taken is not None and (node in taken.rows or node in taken.fingerprints)

    def _at(self, n: int) -> str:
        return f"round {n // len(self.phases)}, phase {self.phases[n % len(self.phases)]!r}"

    def _compare(self, rows: bytes, taken: _Phase, node: int, n: int) -> None:
        """An identical copy of what has come before is ignored, another one is a fault."""
        same = taken.rows[node] == rows if node in taken.rows else taken.fingerprints[node] == self._fingerprint(rows)
        if not same:
            senders = self.senders[node]
            raise PeerFault("other bytes", f"agents {senders[:5]} sent {self._at(n)} before, and differently", senders)

    def complete(self, round_: int, phase: str) -> bool:
        taken = self._taken.get(self._count(round_, phase))
        return not self.senders or (taken is not None and len(taken.rows) == len(self.senders))

    def missing(self, round_: int, phase: str) -> set[int]:
        """Agents whose rows of this phase have not arrived."""
        taken = self._taken.get(self._count(round_, phase)) or _Phase()
        absent = (agents for node, agents in self.senders.items() if node not in taken.rows | taken.fingerprints)
        return {agent for agents in absent for agent in agents}

    def pop(self, round_: int, phase: str) -> tuple[list[bytes], list[bytes]]:
        """The rows of a complete phase in float64, and fingerprints of what came, in ascending order of nodes."""
        taken = self._taken.get(self._count(round_, phase)) or _Phase()
        rows = [taken.rows[node] for node in self.senders]
        fingerprints = [self._fingerprint(one) for one in rows]
        taken.rows, taken.fingerprints = {}, dict(zip(self.senders, fingerprints, strict=True))
        unpack = self.form.unpack
        return [unpack(phase, *one) for one in zip(self.senders.values(), rows, strict=True)], fingerprints

    def _count(self, round_: int, phase: str) -> int:
        return len(self.phases) * round_ + self.phases.index(phase)

    def advance(self, round_: int) -> None:
        """The node is now in this round."""
        self.round = round_
        self._now = len(self.phases) * round_
        self._headers = {n: start for n, start in self._headers.items() if n >= self._now}

    def forget(self, durable: int) -> None:
        """Rounds before `durable` are safe on disk, twice."""
        self.durable = durable
        self._first = len(self.phases) * durable
        self._taken = {n: phase for n, phase in self._taken.items() if n >= self._first}
