"""What a node sends: frames of its rows, and the memory of everything that has left before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpp2.arrays import Array
from dpp2.node.codec import encode
from dpp2.node.effects import Effect, JournalEntry, Send
from dpp2.node.errors import NodeFailed
from dpp2.node.hosting import Hosting, Neighbour


class Outbox:
    """Frames of the rows of one node. Neighbours that get the same rows share one frame."""

    def __init__(self, run_id: str, hosting: Hosting, neighbours: Sequence[Neighbour]) -> None:
        self._run_id, self._form = run_id, hosting.form
        self._ours = {neighbour.node: neighbour.ours for neighbour in neighbours}
        self._where = {ours: _places(hosting.owned, ours) for ours in self._ours.values()}
        self._alike = {
            ours: tuple(node for node, others in self._ours.items() if others == ours) for ours in self._where
        }
        self.sent: dict[str, Array] = {}  # in the round in the middle of which the node is
        self.frames = self.bytes = 0

    def send(self, k: int, phase: str, rows: Array, effects: list[Effect]) -> None:
        self.sent[phase] = rows
        for ours, nodes in self._alike.items():
            frame = encode(self._run_id, k, phase, ours, rows[self._where[ours]], self._form)
            effects.append(Send(nodes, k, frame))
            self.frames += len(nodes)
            self.bytes += len(nodes) * len(frame)

    def frame(self, node: int, k: int, phase: str, rows: Array) -> bytes:
        """For one neighbour, again; of the rows of all hosted agents it gets those of its own neighbours."""
        ours = self._ours[node]
        return encode(self._run_id, k, phase, ours, rows[self._where[ours]], self._form)


def _places(owned: Sequence[int], ours: Sequence[int]) -> slice | NDArray[np.intp]:
    """Where some agents' rows lie among those of all hosted ones: a slice, which copies nothing, if it is one."""
    places = np.searchsorted(np.asarray(owned), np.asarray(ours))  # both ascend
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first + 1 == len(places) else places


class SentDigests:
    """Digests of everything that left and could be computed again. `known`: by round and phase, counted from 1."""

    def __init__(self, phases: Sequence[str], known: Mapping[tuple[int, int], bytes], rounds: int) -> None:
        self._numbers = {phase: number for number, phase in enumerate(phases, start=1)}
        self._known = dict(known)
        self.rounds = rounds  # of which anything may ever have left

    def check(self, round_: int, phase: str, inputs: Iterable[bytes], sent: bytes) -> JournalEntry | None:
        """What must be noted before this leaves, if it is new; a fault if something else has left in its place.

        Both `inputs` and `sent` are fingerprints, each of which has its length: one after the other they cannot be
        mistaken for others.
        """
        digest = hashlib.sha256(b"".join((*inputs, sent))).digest()
        at = (round_, self._numbers[phase])
        before = self._known.get(at)
        if before is None:
            self._known[at] = digest
            self.rounds = max(self.rounds, round_ + 1)
            return JournalEntry(*at, digest)
        if before != digest:
            raise NodeFailed(
                f"round {round_}, phase {phase!r} was sent before with other bytes: nothing is sent, because two noisy "
                "copies of one value would leak it"
            )
        return None

    def forget(self, durable: int) -> None:
        """Rounds before this one cannot be computed again."""
        self._known = {at: digest for at, digest in self._known.items() if at[0] >= durable}
