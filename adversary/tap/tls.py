"""Ciphertext: what a tap still learns when the channels are encrypted. Contents no; who, when, how much: yes.

TLS hides the bytes of a record, not its length nor when it passed. A round sends one message per phase in each
direction, and all of them have nearly the same length, so counting the records of that length counts the rounds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from dpp2.adversary.tap.reassembly import UnbrokenBytes
from dpp2.adversary.tap.streams import Conversation
from dpp2.store.documents import called

_HEADER, _CHAIN = 5, 3
_LONGEST = 16_384 + 2_048
_APPLICATION_DATA = 0x17
_RECORD = re.compile(rb"(?s)[\x14-\x17]\x03[\x01-\x04]")
_MOST_SIZES = 8  # listed for each direction
_MOST_IN_ONE = 3  # messages in one record


@dataclass(frozen=True)
class Record:
    """One TLS record: what is visible of it."""

    kind: int
    length: int
    time: float


def records(run: UnbrokenBytes) -> Iterator[Record]:
    """The records in these bytes; none if they are not TLS."""
    at = _first(run)
    while at is not None and (length := _length(run.data, at)) is not None:
        yield Record(run.data[at], length, run.time_of(min(at + _HEADER + length, len(run.data)) - 1))
        at += _HEADER + length


def is_ciphertext(run: UnbrokenBytes) -> bool:
    return _first(run) is not None


def _first(run: UnbrokenBytes) -> int | None:
    """Where records begin: at once, or, joining late, where three of them follow each other."""
    if run.missing == 0:
        return 0 if _length(run.data, 0) is not None else None
    starts = (match.start() for match in _RECORD.finditer(run.data))
    return next((at for at in starts if _chained(run.data, at)), None)


def _chained(data: bytes, at: int) -> bool:
    for _ in range(_CHAIN):
        length = _length(data, at)
        if length is None:
            return False
        at += _HEADER + length
    return True


def _length(data: bytes, at: int) -> int | None:
    if at + _HEADER > len(data) or not _RECORD.match(data, at):
        return None
    length = int.from_bytes(data[at + 3 : at + 5])
    return length if 0 < length <= _LONGEST else None


@dataclass(frozen=True)
class RecordSize:
    bytes: int
    records: int


@dataclass(frozen=True)
class Direction:
    """What one side of a pair of nodes sent, as far as ciphertext shows it."""

    between: str
    speaker: str = field(metadata=called("from"))
    records: int
    bytes: int
    first: float
    last: float
    sizes: list[RecordSize]
    rounds_estimate: int


@dataclass(frozen=True)
class Ciphertext:
    """ciphertext.json: who talks to whom, how much, when, and for about how many rounds."""

    sees: str
    still_leaks: list[str]
    rounds_estimate: int | None
    directions: list[Direction]


def leaks(conversations: Iterable[Conversation], names: Iterable[str], phases: int) -> Ciphertext:
    """What ciphertext gives away, for every direction in which anything was sent."""
    seen: dict[tuple[str, bool], list[Record]] = {}  # a link that broke is several conversations, but one pair
    for conversation, name in zip(conversations, names, strict=True):
        for answers, runs in zip((False, True), conversation.sent, strict=True):
            found = [record for run in runs for record in records(run) if record.kind == _APPLICATION_DATA]
            seen.setdefault((name, answers), []).extend(found)
    directions = [_direction(name, answers, found, phases) for (name, answers), found in seen.items() if found]
    return Ciphertext(
        "ciphertext: the contents of these conversations were not decoded",
        ["who talks to whom", "sizes", "timing", "an estimate of the number of rounds"],
        _overall(directions),
        directions,
    )


def _overall(directions: Sequence[Direction]) -> int | None:
    """Neighbours say as much as they hear. Somebody to whom others only report is not one of them, nor are pairs that
    say far less than others."""
    pairs: dict[str, list[int]] = {}
    for direction in directions:
        pairs.setdefault(direction.between, []).append(direction.rounds_estimate)
    both = [min(estimates) for estimates in pairs.values() if len(estimates) == 2]
    busy = [estimate for estimate in both if estimate >= max(both) / 2]
    return round(median(busy)) if busy else None


def _direction(between: str, answers: bool, seen: Sequence[Record], phases: int) -> Direction:
    sizes = Counter(record.length for record in seen)
    return Direction(
        between=between,
        speaker="the one that answered" if answers else "the one that dialled",
        records=len(seen),
        bytes=sum(record.length for record in seen),
        first=min(record.time for record in seen),
        last=max(record.time for record in seen),
        sizes=[RecordSize(size, count) for size, count in sizes.most_common(_MOST_SIZES)],
        rounds_estimate=estimated_rounds(sizes, phases),
    )


def estimated_rounds(sizes: Counter[int], phases: int) -> int:
    """Messages counted by length: those of the length that carries the most bytes, give or take what travels with them.

    A record of twice or three times that length carries as many messages; a longer one is no message but, for example,
    the certificate.
    """
    typical = max(sizes, key=lambda size: size * sum(count for other, count in sizes.items() if _near(other, size)))
    carried = {size: round(size / typical) for size in sizes}
    return round(sum(sizes[size] * number for size, number in carried.items() if number <= _MOST_IN_ONE) / phases)


def _near(size: int, typical: int) -> bool:
    return abs(size - typical) <= typical // 20
