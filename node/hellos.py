"""Hellos: what neighbours tell each other before the first round of a run whose edges have secrets.

Each stream begins with them, both ways: a frame without rows, with a public key and a nonce of every agent that has a
neighbour at the other end. Under TLS they come from the node whose certificate names these agents, or not at all.
Once a round rests on them they are on disk, and others are refused. Otherwise a neighbour that has lost its files, or
lies, would get the same own noise once more under another noise of their edge: two noisy copies of one value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from dpp2.edge_keys import Hello
from dpp2.errors import BadInput
from dpp2.node.errors import PeerFault
from dpp2.node.hosting import Neighbour
from dpp2.node.v1 import wire_pb2
from dpp2.prepared import NOBODY

HELLO_BYTES = 96  # bytes of one on the wire, generously
_SOME_KEY = bytes(range(32))  # whether a public key is usable does not depend on the private one


class Hellos:
    """`met` holds those of the neighbours' agents. `own` is empty where nobody needs any."""

    def __init__(
        self, run_id: str, own: Mapping[int, Hello], neighbours: Sequence[Neighbour], kept: Mapping[int, Hello] = NOBODY
    ) -> None:
        """`kept`: what the run rests on already, from its folder."""
        self._run_id, self._own = run_id, own
        self._neighbours = {neighbour.node: neighbour for neighbour in neighbours if own}
        self._expected = {agent for neighbour in self._neighbours.values() for agent in neighbour.theirs}
        self.met = dict(kept)
        self.settled = bool(kept)

    @property
    def exchanged(self) -> bool:
        """Whether streams begin with them."""
        return bool(self._own)

    def missing(self) -> set[int]:
        """Agents that have said none."""
        return self._expected - self.met.keys()

    def to(self, node: int) -> bytes:
        """The first frame on a stream to this neighbour."""
        said = [_on_the_wire(self._own[agent]) for agent in self._neighbours[node].ours]
        return bytes(wire_pb2.Frame(run=self._run_id, hellos=said).SerializeToString())

    def meet(self, node: int, frame: bytes) -> None:
        """The first frame on a stream of this neighbour; a fault leaves everything as it was."""
        hellos = self._hellos(node, frame)
        for agent, hello in hellos.items():
            if self.settled and self.met.get(agent) != hello:
                lost = "it has lost its files, or somebody else speaks for it"
                said = f"agent {agent} said another one when this run began: {lost}"
                raise PeerFault("other hello", said, self._neighbours[node].theirs)
        self.met |= hellos

    def settle(self) -> None:
        """From now on the run rests on them."""
        self.settled = True

    def _hellos(self, node: int, frame: bytes) -> dict[int, Hello]:
        """Of exactly those agents of this neighbour that have a neighbour here."""
        arrived, theirs = self._read(frame), self._neighbours[node].theirs
        if tuple(said.agent for said in arrived) != theirs:
            raise PeerFault("bad hello", f"of {len(arrived)} agents, where agents {theirs[:5]} are due, in this order")
        return {said.agent: self._checked(said) for said in arrived}

    def _read(self, frame: bytes) -> Sequence[Any]:
        try:
            arrived = wire_pb2.Frame.FromString(frame)
        except DecodeError:
            raise PeerFault("not a frame", f"{len(frame)} bytes that are not a message of this kind") from None
        if arrived.run != self._run_id:
            raise PeerFault("wrong run", f"this node runs {self._run_id[:8]}…, not {arrived.run[:8]!r}")
        return arrived.hellos

    def _checked(self, said: Any) -> Hello:
        try:
            hello = Hello(said.agent, said.public_key, said.nonce)
            if hello != self.met.get(hello.agent):  # which has been checked
                hello.shared_with(_SOME_KEY)
        except BadInput as refusal:
            raise PeerFault("bad hello", f"{refusal.field}: expected {refusal.accepted}") from None
        return hello


def _on_the_wire(hello: Hello) -> Any:
    return wire_pb2.Hello(agent=hello.agent, public_key=hello.public_key, nonce=hello.nonce)


def hellos_document(hellos: Mapping[int, Hello]) -> list[list[Any]]:
    """For the run's folder."""
    return [[hello.agent, hello.public_key.hex(), hello.nonce.hex()] for _, hello in sorted(hellos.items())]


def hellos_of(document: Any) -> dict[int, Hello]:
    """And back."""
    return {agent: Hello(agent, bytes.fromhex(key), bytes.fromhex(nonce)) for agent, key, nonce in document or ()}
