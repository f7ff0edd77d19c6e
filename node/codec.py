"""The only place that touches both protobuf and arrays: a frame is rows of float64, little-endian, on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from dpp2.arrays import Array
from node.errors import PeerFault
from node.fingerprints import Bytes
from node.v1 import wire_pb2

OVERHEAD = 4096  # bytes of a frame besides its rows, generously: run, phase, senders
_FEW = 1024  # bytes, of which looking at every eighth is faster than making an array


class Rows(NamedTuple):
    """One phase of one round, as some agents sent it to this node. Bytes: arrays are made of whole phases."""

    run: str
    round: int
    phase: str
    senders: tuple[int, ...]
    rows: bytes  # row after row: d finite float64 for each sender, little-endian


def payload(rows: Array) -> memoryview:
    """Rows as they travel, where they lie."""
    return np.ascontiguousarray(rows, dtype="<f8").data.cast("B") if rows.size else memoryview(b"")


def numbers(rows: bytes, dimension: int) -> Array:
    """And back: (senders, d), where they lie."""
    return np.frombuffer(rows, dtype="<f8").reshape(-1, dimension)


# A frame is written as two messages, one after the other, which protobuf defines to be one with the fields of both:
# what all neighbours get alike, and what is the same in every round. So neither is serialised again for every frame,
# and a receiver who knows what is due knows every byte before the rows.


@lru_cache(maxsize=64)
def phase_header(run: str, round_: int, phase: str) -> bytes:
    """How every frame of a phase begins."""
    return bytes(wire_pb2.Frame(run=run, round=round_, phase=phase).SerializeToString())


@lru_cache(maxsize=1024)
def sender_header(senders: tuple[int, ...], length: int) -> bytes:
    """Everything between the phase header and `length` bytes of rows."""
    whole = bytes(wire_pb2.Frame(senders=senders, rows=bytes(length)).SerializeToString())
    return whole[: len(whole) - length]


def encode(run: str, round_: int, phase: str, senders: Sequence[int], rows: Array) -> bytes:
    """A serialised Frame. Bytes, so that one serialisation serves every link that gets the same rows."""
    content = payload(rows)
    return b"".join((phase_header(run, round_, phase), sender_header(tuple(senders), len(content)), content))


def decode(content: bytes, dimension: int) -> Rows:
    """A Frame as it came, after checking what can be checked of it by itself."""
    try:
        frame = wire_pb2.Frame.FromString(content)
    except DecodeError:
        raise PeerFault("not a frame", f"{len(content)} bytes that are no message of this kind") from None
    senders, rows = tuple(frame.senders), frame.rows
    if len(rows) != 8 * dimension * len(senders) or not senders:
        raise PeerFault("wrong dimension", f"{len(rows)} bytes for {len(senders)} rows of {dimension} numbers")
    if any(low >= high for low, high in pairwise(senders)):
        raise PeerFault("bad senders", f"{senders[:5]} are not in ascending order, each once")
    if not finite(rows):
        raise PeerFault("not finite", f"round {frame.round}, phase {frame.phase!r} from {senders}")
    return Rows(frame.run, frame.round, frame.phase, senders, rows)


def finite(rows: Bytes) -> bool:
    """Infinities and nan have all bits of the exponent set, so their last byte is 7f or ff; few others have."""
    if len(rows) <= _FEW:
        last = bytes(rows[7::8])
        if b"\x7f" not in last and b"\xff" not in last:
            return True
    return bool(np.isfinite(np.frombuffer(rows, dtype="<f8")).all())


def message_limit(dimension: int, rows: int) -> int:
    """The largest frame that an honest neighbour can send."""
    return OVERHEAD + rows * (8 * dimension + 8)
