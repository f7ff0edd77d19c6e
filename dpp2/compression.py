"""Compressors for messages: what they make of a vector, and the bytes in which that travels.

Both are deterministic, so a round that is sent again is sent as the same bytes, and both are contractions, which is
what exact convergence with compressed differences needs: ‖C(v) − v‖² ≤ (1 − c)‖v‖² with c > 0.
`C(rows)` compresses every row; `decode(encode(v))` is the same for one, through the bytes that a channel would carry.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpp2.arrays import Array

_FLOAT = 8  # bytes


class Compressor(Protocol):
    def __call__(self, rows: Array) -> Array:
        """C(v) of every row v."""

    def message_bytes(self, dimension: int) -> int:
        """What C(v) takes on a channel."""

    def encode(self, row: Array) -> bytes: ...

    def decode(self, message: bytes, dimension: int) -> Array: ...


@dataclass(frozen=True)
class Everything:
    """C(v) = v: d numbers."""

    def __call__(self, rows: Array) -> Array:
        return rows

    def message_bytes(self, dimension: int) -> int:
        return _FLOAT * dimension

    def encode(self, row: Array) -> bytes:
        return row.astype("<f8").tobytes()

    def decode(self, message: bytes, dimension: int) -> Array:
        return np.frombuffer(message, dtype="<f8").astype(np.float64)


@dataclass(frozen=True)
class TopK:
    """The `keep` entries that are largest in size (of equal ones the first), the others 0: c = keep/d.

    On the channel: a bit per entry says which are kept, then they come.
    """

    keep: int

    def __call__(self, rows: Array) -> Array:
        return np.where(self._kept(rows), rows, 0.0)

    def message_bytes(self, dimension: int) -> int:
        return math.ceil(dimension / 8) + _FLOAT * min(self.keep, dimension)

    def encode(self, row: Array) -> bytes:
        kept = self._kept(row[None])[0]
        return bytes(np.packbits(kept).tobytes() + row[kept].astype("<f8").tobytes())

    def decode(self, message: bytes, dimension: int) -> Array:
        flags = math.ceil(dimension / 8)
        kept = np.unpackbits(np.frombuffer(message[:flags], dtype=np.uint8), count=dimension).astype(bool)
        row = np.zeros(dimension)
        row[kept] = np.frombuffer(message[flags:], dtype="<f8")
        return row

    def _kept(self, rows: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        order = np.argsort(-np.abs(rows), axis=1, kind="stable")
        kept = np.zeros(rows.shape, dtype=bool)
        np.put_along_axis(kept, order[:, : self.keep], True, axis=1)
        return kept


@dataclass(frozen=True)
class Quantised:
    """Every entry to the nearest of 2^bits − 1 levels between ±max|v|: that maximum, then `bits` bits per entry.

    No entry moves by more than half a step max|v|/(2^bits − 2), so c ≥ 1 − d/(2^bits − 2)²: a contraction for
    d < (2^bits − 2)².
    """

    bits: int  # from 2 to 16

    @property
    def _levels(self) -> int:
        """On either side of 0."""
        return (1 << self.bits - 1) - 1

    def __call__(self, rows: Array) -> Array:
        largest = np.abs(rows).max(axis=1, keepdims=True)
        return np.asarray(self._codes(rows, largest) * (largest / self._levels))

    def message_bytes(self, dimension: int) -> int:
        return _FLOAT + math.ceil(dimension * self.bits / 8)

    def encode(self, row: Array) -> bytes:
        largest = np.abs(row).max()
        codes = (self._codes(row, largest) + self._levels).astype(np.uint16)
        flags = (codes[:, None] >> np.arange(self.bits, dtype=np.uint16)) & 1
        return struct.pack("<d", largest) + np.packbits(flags.astype(np.uint8)).tobytes()

    def decode(self, message: bytes, dimension: int) -> Array:
        (largest,) = struct.unpack("<d", message[:_FLOAT])
        flags = np.unpackbits(np.frombuffer(message[_FLOAT:], dtype=np.uint8), count=dimension * self.bits)
        codes = flags.reshape(dimension, self.bits) @ (1 << np.arange(self.bits))
        return np.asarray((codes - float(self._levels)) * (largest / self._levels))

    def _codes(self, values: Array, largest: Array) -> Array:
        return np.rint(values / np.where(largest > 0, largest, 1.0) * self._levels)
