"""What a relay writes down: segments behind each other, each complete in one write.

A file begins with MAGIC. A segment is a header (bytes that follow, number of the connection, kind, seconds since 1970,
CRC-32 of what follows), little-endian, and the bytes. A file is only ever appended to, and by one process: a relay that
starts again begins the next file. A kill therefore costs at most the last segment of a file.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

MAGIC = b"dpp2tap1"
_HEADER = struct.Struct("<IIBdI")


class Kind(IntEnum):
    """What happened on a connection; "forward" is from the side that dialled."""

    OPEN = 0
    FORWARD = 1
    BACK = 2
    FORWARD_END = 3
    BACK_END = 4
    CLOSED = 5


@dataclass(frozen=True)
class Segment:
    connection: int
    kind: Kind
    time: float
    data: bytes


@dataclass(frozen=True)
class Opening:
    """What the first segment of a connection says: which link it is, and the addresses at its ends."""

    link: str
    dialler: str
    target: str

    @classmethod
    def read(cls, data: bytes) -> Opening | None:
        """None if it does not say that."""
        try:
            said = json.loads(data)
            return cls(str(said["link"]), str(said["dialler"]), str(said["target"]))
        except (ValueError, KeyError, TypeError):
            return None


class WireRecorder:
    """Appends segments. A full disk ends the record, not the traffic: the agents must not notice that we are here."""

    def __init__(self, folder: Path) -> None:
        self.path, self._file = new_part(folder, "relay", "tap")
        self.failure: str | None = None
        os.write(self._file, MAGIC)

    def append(self, connection: int, kind: Kind, data: bytes = b"") -> None:
        """Straight to the operating system, which keeps it even if this process is killed in the next moment."""
        if self.failure is not None:
            return
        header = _HEADER.pack(len(data), connection, kind, time.time(), zlib.crc32(data))
        try:
            written = os.writev(self._file, (header, data))
            if written < len(header) + len(data):
                self.failure = f"{self.path}: the disk is full"
        except OSError as error:
            self.failure = f"{self.path}: {error.strerror}"

    def opened(self, connection: int, opening: Opening) -> None:
        self.append(connection, Kind.OPEN, json.dumps(asdict(opening)).encode())

    def close(self) -> None:
        os.close(self._file)


def new_part(folder: Path, stem: str, suffix: str) -> tuple[Path, int]:
    """The next file stem-0001.suffix, stem-0002.suffix, … of a folder, open for writing."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = (path.stem.removeprefix(f"{stem}-") for path in folder.glob(f"{stem}-*.{suffix}"))
    number = 1 + max((int(name) for name in taken if name.isdecimal()), default=0)
    path = folder / f"{stem}-{number:04d}.{suffix}"
    return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)


def is_record(content: bytes) -> bool:
    return content.startswith(MAGIC)


def segments(content: bytes) -> Iterator[Segment]:
    """Every whole segment, up to the first that is torn or damaged; `sound` says how far that is."""
    at = len(MAGIC)
    while (end := _whole(content, at)) is not None:
        _, connection, kind, when, _ = _HEADER.unpack_from(content, at)
        yield Segment(connection, Kind(kind), when, content[at + _HEADER.size : end])
        at = end


def sound(content: bytes) -> int:
    """How many bytes of a record are whole segments."""
    at = len(MAGIC)
    while (end := _whole(content, at)) is not None:
        at = end
    return at


def _whole(content: bytes, at: int) -> int | None:
    """Where the segment at this offset ends, if it is all there and unharmed."""
    if at + _HEADER.size > len(content):
        return None
    length, _, kind, _, checksum = _HEADER.unpack_from(content, at)
    end = at + _HEADER.size + length
    if end > len(content) or kind not in Kind._value2member_map_:
        return None
    return end if zlib.crc32(memoryview(content)[at + _HEADER.size : end]) == checksum else None
