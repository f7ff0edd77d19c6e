"""TCP reassembly without I/O: segments as they were captured become the bytes that one side sent.

Segments may come out of order, twice, overlapping, or never. Sequence numbers are counted modulo 2³²; they are
unwrapped to the value nearest to the highest seen so far, which is right while reordering spans less than 2³¹ bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

_TURN = 1 << 32


@dataclass(frozen=True, eq=False)
class UnbrokenBytes:
    """Bytes without a hole. `missing` says how many are missing before them: 0 at the start of a stream, None where
    nobody can know (the capture began in the middle)."""

    data: bytes
    missing: int | None
    times: tuple[tuple[int, float], ...]  # (offset, time): the bytes from this offset on were captured then

    def time_of(self, offset: int) -> float:
        """When the byte at this offset was captured."""
        return self.times[bisect_right(self.times, offset, key=lambda pair: pair[0]) - 1][1]


class Assembler:
    """One direction of one connection."""

    def __init__(self) -> None:
        self._start: int | None = None  # the first byte's number, if the beginning was captured
        self._highest: int | None = None
        self._segments: list[tuple[int, float, bytes]] = []
        self._end: int | None = None  # the number after the last byte, if the end was captured

    @property
    def begun(self) -> bool:
        return self._start is not None

    def unwrap(self, sequence: int) -> int:
        """The number without its turns: the candidate nearest to what came before."""
        if self._highest is None:
            return sequence + _TURN  # so that an earlier one that comes later stays positive
        return self._highest + (sequence - self._highest + _TURN // 2) % _TURN - _TURN // 2

    def may_begin_at(self, sequence: int) -> bool:
        """Whether a stream whose first byte has this number can be the one that was seen so far."""
        first = self.unwrap(sequence)
        if self._start is not None:
            return first == self._start
        return all(first <= number < first + _TURN // 4 for number, _, _ in self._segments)

    def begin(self, sequence: int) -> None:
        self._start = self.unwrap(sequence)
        self._highest = max(self._highest or self._start, self._start)

    def add(self, sequence: int, when: float, data: bytes) -> None:
        if data:
            number = self.unwrap(sequence)
            self._segments.append((number, when, data))
            self._highest = max(self._highest or number, number)

    def end(self, sequence: int) -> None:
        """The other side was told that no byte from this number on will come."""
        self._end = self.unwrap(sequence)

    def assemble(self) -> tuple[tuple[UnbrokenBytes, ...], tuple[str, ...]]:
        """The bytes in order, and what is wrong with them, in sentences without a subject."""
        puzzle = _Puzzle(self._start)
        for number, when, piece in sorted(self._segments, key=lambda segment: (segment[0], segment[1])):
            puzzle.put(number, when, piece)
        if self._end is not None:
            puzzle.skip_to(self._end)
        puzzle.finish_run()
        wrong = [f"{hole} bytes were not captured" for hole in puzzle.holes]
        if puzzle.conflicts:
            wrong.append(f"{puzzle.conflicts} retransmissions differed from the first copy, which was kept")
        return tuple(puzzle.runs), tuple(wrong)


class _Puzzle:
    """Pieces in ascending order of where they begin."""

    def __init__(self, start: int | None) -> None:
        self.runs: list[UnbrokenBytes] = []
        self.holes: list[int] = []
        self.conflicts = 0
        self._base, self._missing = start, None if start is None else 0
        self._data = bytearray()
        self._times: list[tuple[int, float]] = []

    def put(self, number: int, when: float, piece: bytes) -> None:
        if self._base is None:
            self._base = number
        self.skip_to(number)
        at = number - self._base
        known = len(self._data) - at  # so many bytes of this piece we have already
        if at >= 0 and self._data[at : at + len(piece)] != piece[:known]:
            self.conflicts += 1
        if known < len(piece):
            self._times.append((len(self._data), when))
            self._data += piece[known:]

    def skip_to(self, number: int) -> None:
        """If we are not there yet, what lies between was not captured."""
        if self._base is not None and (hole := number - self._base - len(self._data)) > 0:
            self.finish_run()
            self.holes.append(hole)
            self._base, self._missing = number, hole

    def finish_run(self) -> None:
        if self._data:
            self.runs.append(UnbrokenBytes(bytes(self._data), self._missing, tuple(self._times)))
        self._data, self._times = bytearray(), []
