"""What a node keeps in its own folder: records, journal, checkpoints. Written so that a kill at any moment is survived.

Records are one flat file of float64 per name, a row of agents after the other; a node that restarts from round k cuts
them to k rounds and goes on. They never travel: whoever owns the folders merges them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from dpp2.arrays import Array
from node.errors import NodeFailed

_ENTRY = struct.Struct("<32sQB")  # digest, round, phase (from 1 on)
_MORE = 1024  # entries by which the journal grows
_MAGIC = b"dpp2 j 2"  # what it begins with
_LENGTH = struct.Struct("<Q")


class RecordFiles:
    """Append-only float64 files, `width` numbers a round each."""

    def __init__(self, folder: Path, widths: Mapping[str, int]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._widths = dict(widths)
        self._files: dict[str, IO[bytes]] = {}
        for name in widths:
            path = folder / f"{name}.f64"
            path.touch()
            self._files[name] = path.open("r+b")

    def cut(self, rounds: int) -> None:
        """Keep the first `rounds` rounds; fewer on disk is damage."""
        for name, file in self._files.items():
            size = 8 * self._widths[name] * rounds
            if file.seek(0, os.SEEK_END) < size:
                raise NodeFailed(f"{file.name} is shorter than the {rounds} rounds that the checkpoint speaks of")
            file.truncate(size)
            file.seek(size)

    def read(self, name: str, round_: int) -> Array:
        """What was appended for a round that is over."""
        file, size = self._files[name], 8 * self._widths[name]
        file.flush()
        return np.frombuffer(os.pread(file.fileno(), size, size * round_), dtype="<f8").astype(np.float64)

    def append(self, name: str, values: Any) -> None:
        file = self._files.get(name)
        if file is not None:
            numbers = np.asarray(values, dtype="<f8")
            if numbers.size != self._widths[name]:  # one number for all
                numbers = np.broadcast_to(numbers, self._widths[name])
            file.write(np.ascontiguousarray(numbers).data)

    def push(self) -> None:
        """Hand everything to the operating system."""
        for file in self._files.values():
            file.flush()

    def sync(self) -> None:
        """Wait until what was pushed is on disk."""
        for file in self._files.values():
            os.fsync(file.fileno())

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def journal_entries(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(digest, round, phase from 1 on) of everything that has left, in its order, from a journal's bytes."""
    for at in range(len(_MAGIC), len(content) - _ENTRY.size + 1, _ENTRY.size):
        digest, round_, phase = _ENTRY.unpack_from(content, at)
        if phase == 0:
            return
        yield digest, round_, phase


class Journal:
    """Digests of everything that left: a replay that would send other bytes finds out before it does.

    An entry is in a mapped file before its frame leaves, so it survives the death of the process, without a call of the
    operating system for each. Its last byte is written last: an entry without it is unfinished, and nothing left.
    """

    def __init__(self, path: Path, phases: Sequence[str]) -> None:
        self._phases = {phase: n for n, phase in enumerate(phases, start=1)}
        self._known: dict[tuple[int, int], bytes] = {}
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._lock(path)
            self._end = self._read(path)
            self._map = self._mapped()
        except BaseException:
            os.close(self._file)
            raise
        self.rounds = max((round_ + 1 for round_, _ in self._known), default=0)  # of which anything has ever left

    def _lock(self, path: Path) -> None:
        """Two nodes in one folder would write over each other's entries. The lock goes when the process does."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NodeFailed(f"{path} is in use by another node: each needs a --home of its own") from None

    def _read(self, path: Path) -> int:
        """What has left before; returns where the next entry belongs."""
        content = path.read_bytes()
        begins = content[: len(_MAGIC)]
        if begins != _MAGIC and begins.strip(b"\0"):  # zeros: killed when it was made, before anything left
            raise NodeFailed(f"{path} is damaged, or the journal of another version: this node cannot go on")
        end = len(_MAGIC)
        for digest, round_, phase in journal_entries(content):
            if phase > len(self._phases):
                raise NodeFailed(f"{path} is damaged: this node cannot go on")
            self._known[round_, phase] = digest
            end += _ENTRY.size
        return end

    def _mapped(self) -> mmap.mmap:
        """The file, with room for more. Zeros are written there now: mapped memory could not tell of a full disk."""
        size = os.fstat(self._file).st_size
        if size < self._end + _ENTRY.size:
            more = self._end + _MORE * _ENTRY.size
            os.pwrite(self._file, bytes(more - size), size)
            os.pwrite(self._file, _MAGIC, 0)
            size = more
        return mmap.mmap(self._file, size)

    def check(self, round_: int, phase: str, inputs: Iterable[bytes], sent: bytes) -> None:
        """Note what is about to leave and what it rests on, or stop the node if it differs from what left before.

        Both as fingerprints, each of which has its length: one after the other they cannot be mistaken for others.
        """
        digest = hashlib.sha256(b"".join((*inputs, sent))).digest()
        at = (round_, self._phases[phase])
        before = self._known.get(at)
        if before is None:
            self._append(digest, *at)
            self._known[at] = digest
            self.rounds = max(self.rounds, round_ + 1)
        elif before != digest:
            raise NodeFailed(
                f"round {round_}, phase {phase!r} was sent before with other bytes: nothing is sent, because two noisy "
                "copies of one value would leak it"
            )

    def _append(self, digest: bytes, round_: int, phase: int) -> None:
        if self._end + _ENTRY.size > len(self._map):
            self._map.close()
            self._map = self._mapped()
        last = self._end + _ENTRY.size - 1
        self._map[self._end : last] = _ENTRY.pack(digest, round_, 0)[:-1]
        self._map[last] = phase
        self._end = last + 1

    def forget(self, durable: int) -> None:
        """Rounds before this one cannot be replayed any more."""
        self._known = {at: digest for at, digest in self._known.items() if at[0] >= durable}

    def close(self) -> None:
        self._map.close()
        os.close(self._file)


class Checkpoints:
    """The last two checkpoints, each with its own checksum; a damaged one is named and the other one used.

    A file is a checksum, the length of a header, the header in JSON (facts, and the names and shapes of arrays) and the
    arrays as they lie in memory: a zip of arrays would take longer to make than ten rounds of a small network.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._newer, self._older = folder / "checkpoint.bin", folder / "checkpoint-before.bin"
        self._newer_damaged = False

    def save(self, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> None:
        """The newer one becomes the older one, atomically; at every moment one of them is whole."""
        shapes = {name: array.shape for name, array in arrays.items()}
        header = json.dumps({"facts": dict(facts), "shapes": shapes}).encode()
        numbers = [array.astype("<f8", copy=False).tobytes() for array in arrays.values()]
        content = b"".join([_LENGTH.pack(len(header)), header, *numbers])
        beside = self._newer.with_suffix(".part")
        with beside.open("wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
            file.flush()
            os.fsync(file.fileno())
        if self._newer.exists() and not self._newer_damaged:  # a damaged one must not push out a whole one
            self._newer.replace(self._older)
        beside.replace(self._newer)
        self._newer_damaged = False

    def load(self) -> tuple[list[tuple[dict[str, Array], dict[str, Any]]], list[str]]:
        """All usable ones, the newest first, and a sentence for each that is not.

        Where only damaged ones are left and there have been two, a start from round 0 would need frames that the
        neighbours have let go of: the node cannot go on.
        """
        usable, complaints = [], []
        for path in (self._newer, self._older):
            if path.exists():
                content = path.read_bytes()
                if hashlib.sha256(content[32:]).digest() != content[:32]:
                    complaints.append(f"{path} is damaged and is not used")
                    self._newer_damaged |= path == self._newer
                    continue
                usable.append(_parse(content[32:]))
        if not usable and self._older.exists():
            raise NodeFailed("; ".join(complaints) + ": this node cannot go on")
        return usable, complaints


def _parse(content: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the facts of a checkpoint whose checksum is right."""
    (length,) = _LENGTH.unpack_from(content)
    at = _LENGTH.size + length
    header = json.loads(content[_LENGTH.size : at])
    arrays = {}
    for name, shape in header["shapes"].items():
        count = math.prod(shape)
        arrays[name] = np.frombuffer(content, dtype="<f8", count=count, offset=at).reshape(shape).astype(np.float64)
        at += 8 * count
    return arrays, header["facts"]
