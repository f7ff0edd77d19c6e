"""What a node keeps in its own folder besides its journal: records and checkpoints. A kill at any moment is survived.

Records are one flat file per name, a block for each round: a row of all agents in float64, and a checksum in eight
bytes. A node that restarts from round k cuts them to k rounds and goes on. They never travel: whoever owns the folders
merges them.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpp2.arrays import Array
from dpp2.node.disk import Appended, Disk
from dpp2.node.errors import NodeFailed

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<Q")  # as long as a number, so that numbers stay where they can be read at once


class RecordFiles:
    """Append-only files, `width` numbers and their checksum a round each."""

    def __init__(self, disk: Disk, widths: Mapping[str, int]) -> None:
        self._disk, self._widths = disk, dict(widths)
        self._files: dict[str, Appended] = {}
        self._salts = {name: _salt(name) for name in widths}
        self._rounds = dict.fromkeys(widths, 0)
        try:
            for name in widths:
                self._files[name] = disk.append_to(records_file(name))
        except BaseException:
            self.close()
            raise

    def cut(self, rounds: int) -> None:
        """Keep the first `rounds` rounds; fewer on disk is damage."""
        for name, file in self._files.items():
            size = _block(self._widths[name]) * rounds
            if file.size() < size:
                path = self._disk.path(records_file(name))
                raise NodeFailed(f"{path} is shorter than the {rounds} rounds that the checkpoint speaks of")
            file.cut(size)
            self._rounds[name] = rounds

    def read(self, name: str, round_: int) -> Array:
        """What was appended for a round that is over."""
        size = _block(self._widths[name])
        content = self._files[name].read(size * round_, size)
        return _checked(content, self._widths[name], name, range(round_, round_ + 1), self._disk).reshape(-1)

    def append(self, name: str, values: Any) -> None:
        file = self._files.get(name)
        if file is not None:
            numbers = np.asarray(values, dtype="<f8")
            if numbers.size != self._widths[name]:  # one number for all
                numbers = np.broadcast_to(numbers, self._widths[name])
            content, round_ = np.ascontiguousarray(numbers).data, self._rounds[name]
            file.append(content)
            file.append(_CHECKSUM.pack(zlib.crc32(content, self._salts[name] ^ round_)))
            self._rounds[name] = round_ + 1

    def push(self) -> None:
        """Hand everything to the operating system."""
        for file in self._files.values():
            file.push()

    def sync(self) -> None:
        """Wait until what was pushed is on disk."""
        for file in self._files.values():
            file.sync()

    def close(self) -> None:
        """All of them, whatever one of them says: what a full disk does not take is not needed."""
        for file in self._files.values():
            with suppress(OSError):
                file.close()


def read_records(disk: Disk, name: str, rounds: range, width: int) -> Array:
    """(rounds, width): what a node wrote down under a name. Every block is compared with its checksum."""
    size = len(rounds) * _block(width)
    content = disk.read(records_file(name), size, rounds.start * _block(width))
    if content is None or len(content) < size:
        raise NodeFailed(f"those of {name} end before round {rounds.stop}")
    return _checked(content, width, name, rounds, disk)


def _checked(content: bytes, width: int, name: str, rounds: range, disk: Disk) -> Array:
    """The numbers of the blocks of these rounds."""
    size, salt, view = _block(width), _salt(name), memoryview(content)
    for n, round_ in enumerate(rounds):
        block = view[n * size : (n + 1) * size]
        if block[8 * width :] != _CHECKSUM.pack(zlib.crc32(block[: 8 * width], salt ^ round_)):
            path = disk.path(records_file(name))
            raise NodeFailed(f"{path} is damaged: round {round_} is not what was written, and is used for nothing")
    numbers = np.frombuffer(content, dtype="<f8").reshape(len(rounds), width + 1)
    return np.ascontiguousarray(numbers[:, :width], dtype=np.float64)


def _block(width: int) -> int:
    return 8 * width + _CHECKSUM.size


def _salt(name: str) -> int:
    """Of a block's checksum, together with the round: a block in another place than its own is damage, too."""
    return zlib.crc32(name.encode())


def records_file(name: str) -> str:
    """Where what is recorded under a name lies, in a node's folder."""
    return f"records/{name}.f64"


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

        Without a usable one the node begins at round 0: neighbours have everything that they ever sent on record.
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
