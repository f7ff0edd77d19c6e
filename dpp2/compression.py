"""Compressors, and the bytes in which a row of a message travels.

Compressors are deterministic, so a round that is sent again is sent as the same bytes, and they are contractions, which
is what exact convergence with compressed differences needs: ‖C(v) − v‖² ≤ (1 − c)‖v‖² with c > 0.
`C(rows)` compresses every row. `encode` takes one row that is compressed already, and `decode` gives it back bit for
bit: what the neighbours compute with is what the sender computed with. In C(v) a zero is always +0.0.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpp2.arrays import Array

_FLOAT = 8  # bytes


class RowEncoding(Protocol):
    """How one agent's row travels."""

    def size(self, dimension: int) -> int:
        """Bytes of every encoded row."""

    def encode(self, row: Array) -> bytes: ...

    def decode(self, message: bytes, dimension: int) -> Array: ...


class Compressor(RowEncoding, Protocol):
    def __call__(self, rows: Array) -> Array:
        """C(v) of every row v."""


@dataclass(frozen=True)
class Everything:
    """C(v) = v: d numbers, float64."""

    def __call__(self, rows: Array) -> Array:
        return rows

    def size(self, dimension: int) -> int:
        return _FLOAT * dimension

    def encode(self, row: Array) -> bytes:
        return row.astype("<f8").tobytes()

    def decode(self, message: bytes, dimension: int) -> Array:
        return np.frombuffer(message, dtype="<f8").astype(np.float64)


@dataclass(frozen=True)
class Nothing:
    """For whoever has nothing to say: no bytes, which stand for zeros."""

    def size(self, dimension: int) -> int:
        return 0

    def encode(self, row: Array) -> bytes:
        return b""

    def decode(self, message: bytes, dimension: int) -> Array:
        return np.zeros(dimension)


EVERYTHING, NOTHING = Everything(), Nothing()


@dataclass(frozen=True)
class TopK:
    """The `keep` entries that are largest in size (of equal ones the first), the others 0: c = keep/d.

    On the channel: a bit per entry says which are not 0, then they come, then zeros up to `keep` numbers.
    """

    keep: int

    def __call__(self, rows: Array) -> Array:
        order = np.argsort(-np.abs(rows), axis=1, kind="stable")
        kept = np.zeros(rows.shape, dtype=bool)
        np.put_along_axis(kept, order[:, : self.keep], True, axis=1)
        return np.where(kept, rows, 0.0) + 0.0  # −0.0 + 0.0 = +0.0

    def size(self, dimension: int) -> int:
        return math.ceil(dimension / 8) + _FLOAT * min(self.keep, dimension)

    def encode(self, row: Array) -> bytes:
        kept = row != 0  # true for NaN as well
        message = bytes(np.packbits(kept).tobytes() + row[kept].astype("<f8").tobytes())
        return message.ljust(self.size(len(row)), b"\0")

    def decode(self, message: bytes, dimension: int) -> Array:
        flags = math.ceil(dimension / 8)
        kept = np.unpackbits(np.frombuffer(message[:flags], dtype=np.uint8), count=dimension).astype(bool)
        row = np.zeros(dimension)
        numbers = np.frombuffer(message[flags:], dtype="<f8")
        if np.count_nonzero(kept) > len(numbers):
            raise ValueError("more entries than numbers")
        row[kept] = numbers[: np.count_nonzero(kept)]
        return row


@dataclass(frozen=True)
class Quantised:
    """Every entry to the nearest of 2^bits − 1 multiples of a step between ±max|v|: the step, then `bits` bits each.

    No entry moves by more than half a step max|v|/(2^bits − 2), so c ≥ 1 − d/(2^bits − 2)²: a contraction for
    d < (2^bits − 2)². A row that is not finite has no step: all of C(v) is NaN.
    """

    bits: int  # from 2 to 16

    @property
    def _levels(self) -> int:
        """On either side of 0."""
        return (1 << self.bits - 1) - 1

    def __call__(self, rows: Array) -> Array:
        largest = np.abs(rows).max(axis=1, keepdims=True)
        step = largest / self._levels
        with np.errstate(over="ignore", invalid="ignore"):
            step = np.where(np.isinf(step * self._levels), np.nextafter(step, 0.0), step)  # rounded up, out of float64
            codes = np.rint(rows / np.where(largest > 0, largest, 1.0) * self._levels)
            return np.where(np.isfinite(largest), codes * step + 0.0, np.nan)  # −0.0 + 0.0 = +0.0

    def size(self, dimension: int) -> int:
        return _FLOAT + math.ceil(dimension * self.bits / 8)

    def encode(self, row: Array) -> bytes:
        step, codes = self._taken_apart(row)
        flags = ((codes + self._levels).astype(np.uint16)[:, None] >> np.arange(self.bits, dtype=np.uint16)) & 1
        return struct.pack("<d", step) + np.packbits(flags.astype(np.uint8)).tobytes()

    def decode(self, message: bytes, dimension: int) -> Array:
        (step,) = struct.unpack("<d", message[:_FLOAT])
        if math.isnan(step):
            return np.full(dimension, np.nan)
        flags = np.unpackbits(np.frombuffer(message[_FLOAT:], dtype=np.uint8), count=dimension * self.bits)
        codes = flags.reshape(dimension, self.bits) @ (1 << np.arange(self.bits))
        with np.errstate(over="ignore"):  # a step that nobody honest sends
            return np.asarray((codes - float(self._levels)) * step + 0.0)

    def _taken_apart(self, row: Array) -> tuple[float, Array]:
        """The step and the codes of a row C(v).

        Its largest entry is levels · step, rounded; so the step is that divided by the levels, or a float next to it.
        The right one gives the whole row back.
        """
        largest = float(np.abs(row).max())
        if not 0 < largest < math.inf:
            return largest, np.zeros_like(row)
        near = largest / self._levels
        for step in (near, math.nextafter(near, math.inf), math.nextafter(near, 0.0)):
            codes = np.rint(row / step)
            if np.array_equal(codes * step, row):
                return step, codes
        raise ValueError(f"{row!r} is no row that {self!r} has made")
