"""What neighbours have sent and this node has not used yet. Pure: rows in, completeness out.

Accepts rounds from the last durable checkpoint on (honest peers send those again after a crash) up to as far ahead as
a neighbour can be. What was accepted is remembered by digest until it is durable: the same bytes again are ignored,
other bytes for the same (sender, round, phase) are a fault.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from dpp2.arrays import Array
from node.codec import Rows
from node.errors import PeerFault


class Inbox:
    def __init__(self, run: str, phases: Sequence[str], expected: Sequence[int], dimension: int, ahead: int) -> None:
        self.run, self.phases, self.dimension, self.ahead = run, tuple(phases), dimension, ahead
        self.place = {agent: n for n, agent in enumerate(sorted(expected))}
        self.round = 0  # the round that is being run
        self.durable = 0  # rounds before it will never be needed again
        self._rows: dict[tuple[int, str], Array] = {}
        self._missing: dict[tuple[int, str], set[int]] = {}
        self._seen: dict[tuple[int, str, int], bytes] = {}

    def take(self, arrived: Rows, allowed: Mapping[int, object] | Sequence[int]) -> bool:
        """Store what is new; `allowed` are the agents that this peer may speak for. True if a phase is now complete."""
        self._check(arrived, allowed)
        at = (arrived.round, arrived.phase)
        digests = [hashlib.blake2b(row, digest_size=16).digest() for row in arrived.rows]
        known = [self._seen.get((*at, sender)) for sender in arrived.senders]
        for sender, digest, before in zip(arrived.senders, digests, known, strict=True):
            if before is not None and before != digest:
                raise PeerFault(
                    "other bytes", f"agent {sender} sent round {at[0]}, phase {at[1]!r} before, and differently"
                )
        for sender, digest, row, before in zip(arrived.senders, digests, arrived.rows, known, strict=True):
            self._seen[(*at, sender)] = digest
            if arrived.round >= self.round and before is None:  # a copy must not bring back a phase that was used
                self._store(at, sender, row)
        return arrived.round >= self.round and not self._missing.get(at, {0})

    def _store(self, at: tuple[int, str], sender: int, row: Array) -> None:
        if at not in self._rows:
            self._rows[at] = np.empty((len(self.place), self.dimension))
            self._missing[at] = set(self.place)
        if sender in self._missing[at]:
            self._rows[at][self.place[sender]] = row
            self._missing[at].discard(sender)

    def _check(self, arrived: Rows, allowed: Mapping[int, object] | Sequence[int]) -> None:
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
        if max(arrived.round, arrived.durable) > self.round + self.ahead:
            raise PeerFault("future", f"round {arrived.round}, while this node is in round {self.round}")

    def missing(self, round_: int, phase: str) -> set[int]:
        """Agents whose rows of this phase have not arrived."""
        return self._missing.get((round_, phase), set(self.place)) if self.place else set()

    def pop(self, round_: int, phase: str) -> Array:
        """The rows of a complete phase, in ascending order of agents."""
        self._missing.pop((round_, phase), None)
        return self._rows.pop((round_, phase), np.empty((0, self.dimension)))

    def advance(self, round_: int) -> None:
        """The node is now in this round."""
        self.round = round_

    def forget(self, durable: int) -> None:
        """Rounds before `durable` are safe on disk, twice."""
        self.durable = durable
        self._seen = {key: digest for key, digest in self._seen.items() if key[0] >= durable}
