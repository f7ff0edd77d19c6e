"""The only place that touches both protobuf and arrays: a frame is rows of float64, little-endian, on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from google.protobuf.message import DecodeError

from dpp2.arrays import Array
from node.errors import PeerFault
from node.v1 import wire_pb2

OVERHEAD = 4096  # bytes of a frame besides its rows, generously: run, phase, senders


@dataclass(frozen=True, eq=False)
class Rows:
    """One phase of one round, as some agents sent it to this node."""

    run: str
    round: int
    phase: str
    senders: tuple[int, ...]
    rows: Array  # (senders, d), finite
    durable: int


def encode(run: str, round_: int, phase: str, senders: Sequence[int], rows: Array, durable: int) -> bytes:
    """A serialised Frame. Bytes, so that one serialisation serves every link that gets the same rows."""
    frame = wire_pb2.Frame(
        run=run,
        round=round_,
        phase=phase,
        senders=senders,
        rows=rows.astype("<f8", copy=False).tobytes(),
        durable=durable,
    )
    return frame.SerializeToString()


def decode(content: bytes, dimension: int) -> Rows:
    """A Frame as it came, after checking what can be checked of it by itself."""
    try:
        frame = wire_pb2.Frame.FromString(content)
    except DecodeError:
        raise PeerFault("not a frame", f"{len(content)} bytes that are no message of this kind") from None
    senders = tuple(frame.senders)
    if len(frame.rows) != 8 * dimension * len(senders) or not senders:
        raise PeerFault("wrong dimension", f"{len(frame.rows)} bytes for {len(senders)} rows of {dimension} numbers")
    if any(low >= high for low, high in pairwise(senders)):
        raise PeerFault("bad senders", f"{senders[:5]} are not in ascending order, each once")
    rows = np.frombuffer(frame.rows, dtype="<f8").reshape(len(senders), dimension)
    if not np.isfinite(rows).all():
        raise PeerFault("not finite", f"round {frame.round}, phase {frame.phase!r} from {senders}")
    return Rows(frame.run, frame.round, frame.phase, senders, rows, frame.durable)


def message_limit(dimension: int, rows: int) -> int:
    """The largest frame that an honest neighbour can send."""
    return OVERHEAD + rows * (8 * dimension + 8)
