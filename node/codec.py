"""The only place that touches both protobuf and arrays: a frame is rows of float64, little-endian, on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from dpp2.arrays import Array
from node.errors import PeerFault
from node.v1 import wire_pb2

OVERHEAD = 4096  # bytes of a frame besides its rows, generously: run, phase, senders


class Rows(NamedTuple):
    """One phase of one round, as some agents sent it to this node.

    A tuple of bytes, because one is made for every message: arrays are made of whole phases.
    """

    run: str
    round: int
    phase: str
    senders: tuple[int, ...]
    rows: tuple[bytes, ...]  # one per sender: d finite float64, little-endian


def encode(run: str, round_: int, phase: str, senders: Sequence[int], rows: Array) -> bytes:
    """A serialised Frame. Bytes, so that one serialisation serves every link that gets the same rows."""
    frame = wire_pb2.Frame(
        run=run,
        round=round_,
        phase=phase,
        senders=senders,
        rows=rows.astype("<f8", copy=False).tobytes(),
    )
    return frame.SerializeToString()


def decode(content: bytes, dimension: int) -> Rows:
    """A Frame as it came, after checking what can be checked of it by itself."""
    try:
        frame = wire_pb2.Frame.FromString(content)
    except DecodeError:
        raise PeerFault("not a frame", f"{len(content)} bytes that are no message of this kind") from None
    senders, rows, width = tuple(frame.senders), frame.rows, 8 * dimension
    if len(rows) != width * len(senders) or not senders:
        raise PeerFault("wrong dimension", f"{len(rows)} bytes for {len(senders)} rows of {dimension} numbers")
    if len(senders) > 1 and any(low >= high for low, high in pairwise(senders)):
        raise PeerFault("bad senders", f"{senders[:5]} are not in ascending order, each once")
    if not _all_finite(rows):
        raise PeerFault("not finite", f"round {frame.round}, phase {frame.phase!r} from {senders}")
    parts = (rows,) if len(senders) == 1 else tuple(rows[at : at + width] for at in range(0, len(rows), width))
    return Rows(frame.run, frame.round, frame.phase, senders, parts)


def _all_finite(rows: bytes) -> bool:
    """Infinities and nan have all bits of the exponent set, so their last byte is 7f or ff; few others have."""
    last = rows[7::8]
    if b"\x7f" not in last and b"\xff" not in last:
        return True
    return bool(np.isfinite(numbers(rows)).all())


def numbers(row: bytes) -> Array:
    """One sender's row, where it lies."""
    return np.frombuffer(row, dtype="<f8")


def message_limit(dimension: int, rows: int) -> int:
    """The largest frame that an honest neighbour can send."""
    return OVERHEAD + rows * (8 * dimension + 8)
