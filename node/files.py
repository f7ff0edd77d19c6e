"""What a node keeps in its own folder: records, journal, checkpoints. Written so that a kill at any moment is survived.

Records are one flat file of float64 per name, a row of agents after the other; a node that restarts from round k cuts
them to k rounds and goes on. They never travel: whoever owns the folders merges them.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpp2.arrays import Array
from node.disk import Appended, Disk
from node.errors import NodeFailed

_ENTRY = struct.Struct("<32sQB")  # digest, round, phase (from 1 on)
_MORE = 1024  # entries by which the journal grows
_MAGIC = b"dpp2 j 2"  # what it begins with
_LENGTH = struct.Struct("<Q")


class RecordFiles:
    """Append-only float64 files, `width` numbers a round each."""

    def __init__(self, disk: Disk, widths: Mapping[str, int]) -> None:
        self._disk, self._widths = disk, dict(widths)
        self._files: dict[str, Appended] = {}
        try:
            for name in widths:
                self._files[name] = disk.append_to(_records(name))
        except BaseException:
            self.close()
            raise

    def cut(self, rounds: int) -> None:
        """Keep the first `rounds` rounds; fewer on disk is damage."""
        for name, file in self._files.items():
            size = 8 * self._widths[name] * rounds
            if file.size() < size:
                path = self._disk.path(_records(name))
                raise NodeFailed(f"{path} is shorter than the {rounds} rounds that the checkpoint speaks of")
            file.cut(size)

    def read(self, name: str, round_: int) -> Array:
        """What was appended for a round that is over."""
        size = 8 * self._widths[name]
        return np.frombuffer(self._files[name].read(size * round_, size), dtype="<f8").astype(np.float64)

    def append(self, name: str, values: Any) -> None:
        file = self._files.get(name)
        if file is not None:
            numbers = np.asarray(values, dtype="<f8")
            if numbers.size != self._widths[name]:  # one number for all
                numbers = np.broadcast_to(numbers, self._widths[name])
            file.append(np.ascontiguousarray(numbers).data)

    def push(self) -> None:
        """Hand everything to the operating system."""
        for file in self._files.values():
            file.push()

    def sync(self) -> None:
        """Wait until what was pushed is on disk."""
        for file in self._files.values():
            file.sync()

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _records(name: str) -> str:
    return f"records/{name}.f64"


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

    name = "journal.bin"

    def __init__(self, disk: Disk, phases: int) -> None:
        self.known: dict[tuple[int, int], bytes] = {}  # by round and phase: what had left when the file was opened
        self._file = disk.map(self.name)
        try:
            self._end = self._read(disk.path(self.name), phases)
            self._make_room()
        except BaseException:
            self._file.close()
            raise

    def _read(self, path: str, phases: int) -> int:
        """What has left before; returns where the next entry belongs."""
        content = self._file.read()
        begins = content[: len(_MAGIC)].rstrip(b"\0")
        if not _MAGIC.startswith(begins):  # a part of it: it was being made when the process, or the power, went
            raise NodeFailed(f"{path} is damaged, or the journal of another version: this node cannot go on")
        end = len(_MAGIC)
        for digest, round_, phase in journal_entries(content):
            if phase > phases:
                raise NodeFailed(f"{path} is damaged: this node cannot go on")
            self.known[round_, phase] = digest
            end += _ENTRY.size
        return end

    def _make_room(self) -> None:
        if len(self._file.memory) < self._end + _ENTRY.size:
            self._file.grow(self._end + _MORE * _ENTRY.size)
        self._file.memory[: len(_MAGIC)] = _MAGIC

    def append(self, round_: int, phase: int, digest: bytes) -> None:
        """The phase, which is the last byte, comes last."""
        last = self._end + _ENTRY.size - 1
        if last >= len(self._file.memory):
            self._make_room()
        memory = self._file.memory
        memory[self._end : last] = _ENTRY.pack(digest, round_, 0)[:-1]
        memory[last] = phase
        self._end = last + 1

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state at the beginning of round k."""

    state: Mapping[str, Array]
    facts: Mapping[str, Any]  # round, run, digest, saved: the round of the checkpoint before

    @property
    def k(self) -> int:
        return int(self.facts["round"])


class Checkpoints:
    """The last two checkpoints, each with its own checksum; a damaged one is named and the other one used.

    A file is a checksum, the length of a header, the header in JSON (facts, and the names and shapes of arrays) and the
    arrays as they lie in memory: a zip of arrays would take longer to make than ten rounds of a small network.
    """

    _newer, _older, _beside = "checkpoint.bin", "checkpoint-before.bin", "checkpoint.part"

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._newer_is_whole = False  # known to be there, and not damaged
        self.complaints: list[str] = []

    def save(self, checkpoint: Checkpoint) -> None:
        """The newer one becomes the older one, atomically; at every moment one of them is whole."""
        content = _content(checkpoint)
        self._disk.write(self._beside, hashlib.sha256(content).digest() + content)
        if self._newer_is_whole:  # a damaged one must not push out a whole one
            self._disk.rename(self._newer, self._older)
        self._disk.rename(self._beside, self._newer)
        self._newer_is_whole = True
        self._disk.sync_names()  # otherwise a loss of power could bring back the names of before, and so an older state

    def load(self) -> list[Checkpoint]:
        """All usable ones, the newest first; `complaints` has a sentence for each that is not.

        Where only damaged ones are left and there have been two, a start from round 0 would need frames that the
        neighbours have let go of: the node cannot go on.
        """
        usable, self.complaints = [], []
        for name in (self._newer, self._older):
            content = self._disk.read(name)
            if content is None:
                continue
            if hashlib.sha256(content[32:]).digest() == content[:32]:
                usable.append(_parse(content[32:]))
                self._newer_is_whole |= name == self._newer
            else:
                self.complaints.append(f"{self._disk.path(name)} is damaged and is not used")
        if not usable and self._disk.read(self._older) is not None:
            raise NodeFailed("; ".join(self.complaints) + ": this node cannot go on")
        return usable


def _content(checkpoint: Checkpoint) -> bytes:
    shapes = {name: array.shape for name, array in checkpoint.state.items()}
    header = json.dumps({"facts": dict(checkpoint.facts), "shapes": shapes}).encode()
    numbers = [array.astype("<f8", copy=False).tobytes() for array in checkpoint.state.values()]
    return b"".join([_LENGTH.pack(len(header)), header, *numbers])


def _parse(content: bytes) -> Checkpoint:
    """What is in a file whose checksum is right."""
    (length,) = _LENGTH.unpack_from(content)
    at = _LENGTH.size + length
    header = json.loads(content[_LENGTH.size : at])
    state = {}
    for name, shape in header["shapes"].items():
        count = math.prod(shape)
        state[name] = np.frombuffer(content, dtype="<f8", count=count, offset=at).reshape(shape).astype(np.float64)
        at += 8 * count
    return Checkpoint(state, header["facts"])
