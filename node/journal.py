"""Digests of everything that has left a node in a run, in a mapped file."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from dpp2.node.disk import Disk
from dpp2.node.errors import NodeFailed

_ENTRY = struct.Struct("<32sQIB")  # digest, round, checksum of all the others, phase (from 1 on)
_MORE = 1024  # entries by which the journal grows
_MAGIC = b"dpp2 j 3"  # what it begins with

Entry = tuple[bytes, int, int]  # digest, round, phase


def journal_entries(content: bytes) -> Iterator[Entry]:
    """(digest, round, phase from 1 on) of everything that has left, in its order, from a journal's bytes."""
    return (entry for entry in _slots(content) if entry is not None)


def _slots(content: bytes) -> Iterator[Entry | None]:
    """One after the other, up to the last that is not empty; None for one that is damaged or unfinished."""
    used = len(content.rstrip(b"\0")) - len(_MAGIC)
    for n in range(-(-used // _ENTRY.size)):
        slot = content[_at(n) : _at(n + 1)].ljust(_ENTRY.size, b"\0")
        digest, round_, checksum, phase = _ENTRY.unpack(slot)
        whole = phase > 0 and checksum == _checksum(digest, round_, phase)
        yield (digest, round_, phase) if whole else None


def _checksum(digest: bytes, round_: int, phase: int) -> int:
    return zlib.crc32(_ENTRY.pack(digest, round_, 0, phase))


class Journal:
    """A replay that would send other bytes finds out before it does.

    An entry is in a mapped file before its frame leaves, so it survives the death of the process, without a call of the
    operating system for each. Its last byte is written last: an entry without it is unfinished, and nothing left. An
    unfinished one is the last. Anything else that is not whole is damage, and after that nobody can tell what has left:
    the node stops, unless it is told to `trust` what is whole.
    """

    name = "journal.bin"

    def __init__(self, disk: Disk, phases: int, *, trust: bool = False) -> None:
        self.known: dict[tuple[int, int], bytes] = {}  # by round and phase: what had left when the file was opened
        self.path = disk.path(self.name)
        self._file = disk.map(self.name)
        try:
            content = self._file.read()
            self.fresh = not content[: len(_MAGIC)].rstrip(b"\0")  # just made, or its first bytes were lost
            self._end = self._read(content, phases, trust=trust)
        except BaseException:
            self._file.close()
            raise

    def _read(self, content: bytes, phases: int, *, trust: bool) -> int:
        """What has left before; returns where the next entry belongs."""
        if not _MAGIC.startswith(content[: len(_MAGIC)].rstrip(b"\0")):  # a part: it was being made when all ended
            raise NodeFailed(f"{self.path} is damaged, or the journal of another version: this node cannot go on")
        slots = [*_slots(content)]
        last = content[_at(len(slots)) - 1 : _at(len(slots))]  # byte
        unfinished = slots[-1:] == [None] and not last.strip(b"\0")
        entries = slots[:-1] if unfinished else slots
        self.known = {(round_, phase): digest for digest, round_, phase in filter(None, entries) if phase <= phases}
        damaged = [n for n, entry in enumerate(entries) if entry is None or entry[2] > phases]
        if (damaged or (slots and self.fresh)) and not trust:
            what = f"entry {damaged[0]}" if damaged else "its beginning"
            raise NodeFailed(
                f"{self.path} is damaged ({what}): this node cannot go on, because nobody can tell what it has sent; "
                "run under another id, or say --trust-journal if its neighbours are honest"
            )
        self._mend(damaged, range(len(entries) if self.known else 0, len(slots)))
        return _at(len(entries) if self.known else 0)

    def _mend(self, damaged: list[int], empty: range) -> None:
        """In the place of a damaged entry comes a copy of a whole one, which says nothing new."""
        memory, whole = self._file.memory, next(((digest, *at) for at, digest in self.known.items()), None)
        if whole is not None:
            memory[: len(_MAGIC)] = _MAGIC
            for n in damaged:
                memory[_at(n) : _at(n + 1)] = _packed(*whole)
        end = min(_at(empty.stop), len(memory))
        if end > _at(empty.start):
            memory[_at(empty.start) : end] = bytes(end - _at(empty.start))

    def begin(self) -> None:
        """Make room for more: until then the file is what it was."""
        if len(self._file.memory) < self._end + _ENTRY.size:
            self._file.grow(self._end + _MORE * _ENTRY.size)
        self._file.memory[: len(_MAGIC)] = _MAGIC

    @property
    def entries(self) -> int:
        return (self._end - len(_MAGIC)) // _ENTRY.size

    def append(self, round_: int, phase: int, digest: bytes) -> None:
        """The phase, which is the last byte, comes last."""
        last = self._end + _ENTRY.size - 1
        if last >= len(self._file.memory):
            self.begin()
        memory = self._file.memory
        memory[self._end : last] = _packed(digest, round_, phase)[:-1]
        memory[last] = phase
        self._end = last + 1

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _at(n: int) -> int:
    """Where entry n begins."""
    return len(_MAGIC) + n * _ENTRY.size


def _packed(digest: bytes, round_: int, phase: int) -> bytes:
    return _ENTRY.pack(digest, round_, _checksum(digest, round_, phase), phase)
