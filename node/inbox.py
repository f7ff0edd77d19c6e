"""What neighbours have sent and this node has not used yet. Pure: rows in, completeness out.

Accepts rounds from the last durable checkpoint on (honest peers send those again after a crash) up to as far ahead as
a neighbour can be. What was accepted is remembered by digest until it is durable: the same bytes again are ignored,
other bytes for the same (sender, round, phase) are a fault.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from hashlib import sha256

from dpp2.arrays import Array
from node.codec import Rows, numbers
from node.errors import PeerFault


class _Phase:
    """One phase of one round, as far as it has arrived."""

    __slots__ = ("digests", "rows")

    def __init__(self) -> None:
        self.digests: dict[int, bytes] = {}  # of what each sender has sent
        self.rows: dict[int, bytes] = {}  # until they are used


class Inbox:
    def __init__(self, run: str, phases: Sequence[str], expected: Sequence[int], dimension: int, ahead: int) -> None:
        self.run, self.phases, self.dimension, self.ahead = run, tuple(phases), dimension, ahead
        self.place = {agent: n for n, agent in enumerate(sorted(expected))}
        self.round = 0  # the round that is being run
        self.durable = 0  # rounds before it will never be needed again
        self._taken: dict[tuple[int, str], _Phase] = {}

    def take(self, arrived: Rows, allowed: Container[int]) -> bool:
        """Store what is new; `allowed` are the agents that this peer may speak for. True if a phase is now complete."""
        self._check(arrived, allowed)
        at = (arrived.round, arrived.phase)
        phase = self._taken.get(at) or _Phase()
        digests = [sha256(row).digest() for row in arrived.rows]
        for sender, digest in zip(arrived.senders, digests, strict=True):
            if phase.digests.get(sender, digest) != digest:
                raise PeerFault(
                    "other bytes", f"agent {sender} sent round {at[0]}, phase {at[1]!r} before, and differently"
                )
        self._taken[at] = phase
        for sender, digest, row in zip(arrived.senders, digests, arrived.rows, strict=True):
            if sender not in phase.digests:  # a copy must not bring back a phase that was used
                phase.digests[sender] = digest
                if arrived.round >= self.round:
                    phase.rows[sender] = row
        return len(phase.rows) == len(self.place)

    def _check(self, arrived: Rows, allowed: Container[int]) -> None:
        if arrived.run != self.run:
            raise PeerFault("wrong run", f"this node runs {self.run[:8]}…, not {arrived.run[:8]!r}")
        if arrived.phase not in self.phases:
            raise PeerFault("bad phase", f"{arrived.phase[:20]!r} is none of {', '.join(self.phases)}")
        for sender in arrived.senders:
            if sender not in allowed:
                raise PeerFault("unknown sender", f"agent {sender} is not behind this stream")
            if sender not in self.place:
                raise PeerFault("not a neighbour", f"agent {sender} has no neighbour here")
        if arrived.round < self.durable:
            raise PeerFault("stale", f"round {arrived.round} is over since the checkpoint at {self.durable}")
        if arrived.round > self.round + self.ahead:
            raise PeerFault("future", f"round {arrived.round}, while this node is in round {self.round}")

    def complete(self, round_: int, phase: str) -> bool:
        taken = self._taken.get((round_, phase))
        return not self.place or (taken is not None and len(taken.digests) == len(self.place))

    def missing(self, round_: int, phase: str) -> set[int]:
        """Agents whose rows of this phase have not arrived."""
        taken = self._taken.get((round_, phase))
        return set(self.place).difference(taken.digests if taken else ())

    def pop(self, round_: int, phase: str) -> list[Array]:
        """The rows of a complete phase, in ascending order of agents."""
        taken = self._taken.get((round_, phase)) or _Phase()
        rows, taken.rows = taken.rows, {}
        return [numbers(rows[sender]) for sender in self.place if sender in rows]

    def advance(self, round_: int) -> None:
        """The node is now in this round."""
        self.round = round_

    def forget(self, durable: int) -> None:
        """Rounds before `durable` are safe on disk, twice."""
        self.durable = durable
        self._taken = {at: phase for at, phase in self._taken.items() if at[0] >= durable}
