"""The only place that touches both protobuf and arrays: a frame is rows of float64, little-endian, on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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


def decode(frame: wire_pb2.Frame, dimension: int) -> Rows:
    """Check what can be checked of a frame by itself."""
    senders = tuple(frame.senders)
    if len(frame.rows) != 8 * dimension * len(senders) or not senders:
        raise PeerFault("wrong dimension", f"{len(frame.rows)} bytes for {len(senders)} rows of {dimension} numbers")
    rows = np.frombuffer(frame.rows, dtype="<f8").reshape(len(senders), dimension)
    if not np.isfinite(rows).all():
        raise PeerFault("not finite", f"round {frame.round}, phase {frame.phase!r} from {senders}")
    return Rows(frame.run, frame.round, frame.phase, senders, rows, frame.durable)


def message_limit(dimension: int, rows: int) -> int:
    """The largest frame that an honest neighbour can send."""
    return OVERHEAD + rows * (8 * dimension + 8)
