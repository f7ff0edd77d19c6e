"""The only place that touches both protobuf and arrays: a frame is rows, float64 or as the algorithm encodes them."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from dpp2 import arrays
from dpp2.arrays import Array
from dpp2.compression import RowEncoding
from dpp2.node.errors import PeerFault
from dpp2.node.fingerprints import Bytes
from dpp2.node.v1 import wire_pb2

if TYPE_CHECKING:
    from dpp2.algorithms.base import AlgorithmSection

EncodingOf = Callable[[str, int], RowEncoding]  # of a phase and a sender

OVERHEAD = 4096  # bytes of a frame besides its rows, generously: run, phase, senders
_ANY = sys.float_info.max  # a bound that every number keeps
_FEW = 1024  # bytes, of which looking at every eighth is faster than making an array
_TRAVELS = np.dtype("<f8")


class Rows(NamedTuple):
    """One phase of one round, as some agents sent it to this node. Bytes: arrays are made of whole phases."""

    run: str
    round: int
    phase: str
    senders: tuple[int, ...]
    rows: bytes  # row after row, as they travel: d float64 for each sender, little-endian, or encoded
    dimension: int = 0  # of encoded rows


def payload(rows: Array) -> Bytes:
    """Rows as they travel: few are copied, which is faster, and many stay where they lie."""
    if rows.nbytes <= _FEW and rows.dtype == _TRAVELS:
        return rows.tobytes()
    return np.ascontiguousarray(rows, dtype=_TRAVELS).data.cast("B")


def numbers(rows: bytes, dimension: int) -> Array:
    """And back: (senders, d), where they lie."""
    return np.frombuffer(rows, dtype=_TRAVELS).reshape(-1, dimension)


class RowFormat:
    """How the rows of a run travel: d float64 each, unless the algorithm declares another encoding for its rows.

    The senders of an encoded row are asked one by one: who has nothing to say in a phase sends no bytes at all.
    """

    def __init__(
        self,
        phases: Sequence[str],
        dimension: int,
        encoding: EncodingOf | None = None,
        largest: float = _ANY,
    ) -> None:
        """`largest`: no number may exceed it in magnitude."""
        self.phases, self.dimension, self._encoding = tuple(phases), dimension, encoding
        self.largest = largest

    @classmethod
    def of(cls, section: AlgorithmSection, dimension: int, largest: float = _ANY) -> RowFormat:
        return cls(section.phases, dimension, section.encoding if section.encodes else None, largest)

    @property
    def told_dimension(self) -> int:
        """What a frame says of d: 0 where the length of its rows tells it."""
        return self.dimension if self._encoding else 0

    def size(self, phase: str, senders: tuple[int, ...]) -> int:
        """Bytes of one row of each of these."""
        return 8 * self.dimension * len(senders) if self._encoding is None else sum(self._each(phase, senders))

    def round_size(self, senders: tuple[int, ...]) -> int:
        """Bytes of their rows in all phases of one round, with a header for each phase."""
        return sum(self.size(phase, senders) + OVERHEAD for phase in self.phases)

    def _each(self, phase: str, senders: tuple[int, ...]) -> list[int]:
        assert self._encoding is not None
        return [self._encoding(phase, sender).size(self.dimension) for sender in senders]

    def pack(self, phase: str, senders: Sequence[int], rows: Array) -> Bytes:
        """Rows as they travel."""
        encoding = self._encoding
        if encoding is None:
            return payload(rows)
        return b"".join(encoding(phase, sender).encode(row) for sender, row in zip(senders, rows, strict=True))

    def unpack(self, phase: str, senders: tuple[int, ...], content: bytes) -> bytes:
        """And back: row after row, d float64 each. ValueError if an encoded row is none."""
        if self._encoding is None:
            return content
        rows, at = [], 0
        for sender, size in zip(senders, self._each(phase, senders), strict=True):
            encoding, message = self._encoding(phase, sender), content[at : at + size]
            row = encoding.decode(message, self.dimension)
            if encoding.encode(row) != message:
                raise ValueError("a row has one encoding, and this is another")
            rows.append(row)
            at += size
        return bytes(payload(np.stack(rows)))


PLAIN = RowFormat((), 0)  # for whoever writes rows of float64 and reads none

# A frame is written as two messages, one after the other, which protobuf defines to be one with the fields of both:
# what all neighbours get alike, and what is the same in every round. So neither is serialised again for every frame,
# and a receiver who knows what is due knows every byte before the rows.


@lru_cache(maxsize=64)
def phase_header(run: str, round_: int, phase: str, dimension: int = 0) -> bytes:
    """How every frame of a phase begins."""
    return bytes(wire_pb2.Frame(run=run, round=round_, phase=phase, dimension=dimension).SerializeToString())


@lru_cache(maxsize=1024)
def sender_header(senders: tuple[int, ...], length: int) -> bytes:
    """Everything between the phase header and `length` bytes of rows."""
    whole = bytes(wire_pb2.Frame(senders=senders, rows=bytes(length)).SerializeToString())
    return whole[: len(whole) - length]


def encode(run: str, round_: int, phase: str, senders: Sequence[int], rows: Array, form: RowFormat = PLAIN) -> bytes:
    """A serialised Frame. Bytes, so that one serialisation serves every link that gets the same rows."""
    content = form.pack(phase, senders, rows)
    header = phase_header(run, round_, phase, form.told_dimension)
    return b"".join((header, sender_header(tuple(senders), len(content)), content))


def decode(content: bytes, form: RowFormat) -> Rows:
    """A Frame as it came, after checking everything that can be checked of it by itself."""
    arrived = parse(content)
    check_rows(arrived, form)
    return arrived


def parse(content: bytes) -> Rows:
    """A Frame as it came. Nobody has looked at its rows: whoever knows which senders are due asks for them first."""
    try:
        frame = wire_pb2.Frame.FromString(content)
    except DecodeError:
        raise PeerFault("not a frame", f"{len(content)} bytes that are not a message of this kind") from None
    senders = tuple(frame.senders)
    if not senders:
        raise PeerFault("wrong dimension", f"{len(frame.rows)} bytes of no sender")
    if any(low >= high for low, high in pairwise(senders)):
        raise PeerFault("bad senders", f"{senders[:5]} are not in ascending order, each once")
    return Rows(frame.run, frame.round, frame.phase, senders, frame.rows, frame.dimension)


def check_rows(arrived: Rows, form: RowFormat) -> None:
    """Whether there are as many bytes as these senders have, and all of them are numbers."""
    _, round_, phase, senders, rows, dimension = arrived
    if len(rows) != form.size(phase, senders) or dimension != form.told_dimension:
        raise PeerFault("wrong dimension", f"{len(rows)} bytes for {len(senders)} rows of {form.dimension} numbers")
    at = f"round {round_}, phase {phase[:20]!r} from agents {senders[:5]}"
    if not readable(phase, senders, rows, form):
        raise PeerFault("not finite", at)
    if not readable(phase, senders, rows, form, form.largest):
        raise PeerFault("too large", f"{at} exceeds run.largest_value = {form.largest:.4g}")


def readable(phase: str, senders: tuple[int, ...], rows: bytes, form: RowFormat, largest: float = _ANY) -> bool:
    """Whether rows as they travel are numbers, none of them larger than this."""
    try:
        return within(form.unpack(phase, senders, rows), largest)
    except ValueError:
        return False


def within(rows: Bytes, largest: float) -> bool:
    """Whether all numbers are at most this large. Infinities and nan are not.

    The last byte of a number has its sign and most of its exponent, which bounds it: of few numbers this is enough.
    """
    if len(rows) <= _FEW and not bytes(rows[7::8]).translate(None, _small(largest)):
        return True
    return arrays.within(np.frombuffer(rows, dtype="<f8"), largest)


@lru_cache
def _small(largest: float) -> bytes:
    """Last bytes of numbers that are certainly no larger."""
    numbers = {last: struct.unpack("<d", b"\xff" * 7 + bytes([last]))[0] for last in range(128)}
    positive = [last for last, number in numbers.items() if number <= largest]  # nan is not
    return bytes([*positive, *(128 + last for last in positive)])


def message_limit(form: RowFormat, senders: tuple[int, ...]) -> int:
    """The largest frame that an honest neighbour can send, with a row of each of these."""
    return OVERHEAD + 8 * len(senders) + max(form.size(phase, senders) for phase in form.phases)
