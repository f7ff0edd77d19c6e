"""A disk in memory that forgets what it may forget.

A kill loses what the process had not handed over. A loss of power loses, besides, whatever was not synced: of each file
any tail of what was written since, down to the byte, or any of its pages, and of names all changes after some moment.
Of what is safe a byte may change while nobody looks: `damage`. While the disk is `full` it takes a part of what is
written, or nothing, and says so.
"""

from __future__ import annotations

import errno
import random
from typing import Any

from dpp2.node.disk import Appended, Mapped
from dpp2.node.errors import NodeFailed

PAGE = 64  # bytes that are lost together: small, so that even a short journal has several


class Killed(BaseException):
    """The process has died in the middle of something. No code of the node may catch it."""


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


class _File:
    """What the operating system has of a file, and what of it is safe."""

    __slots__ = ("content", "synced")

    def __init__(self, content: bytes = b"", synced: bytes = b"") -> None:
        self.content, self.synced = bytearray(content), synced

    def lose_power(self, rng: random.Random) -> None:
        """Kept is nothing since the last sync, all, or a part. The zeros at the end of a journal are no content."""
        if rng.random() < 0.4:
            self._lose_pages(rng)
        else:
            kept = rng.choice((0, rng.randint(0, len(self.content.rstrip(b"\0"))), len(self.content)))
            self.content = self.content[:kept] + self.synced[kept:]
        self.synced = bytes(self.content)

    def _lose_pages(self, rng: random.Random) -> None:
        """What was written last may be kept, and what was written before it lost."""
        before = self.synced.ljust(len(self.content), b"\0")
        for at in range(0, len(self.content.rstrip(b"\0")), PAGE):
            if rng.random() < 0.5:
                self.content[at : at + PAGE] = before[at : at + PAGE]


class VirtualDisk:
    """One node's folder. `fuse`: after so many operations the process dies, in the middle of whatever it does."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names: dict[str, _File] = {}
        self._before: list[dict[str, _File]] = [{}]  # the names as they were last synced, and after each change since
        self._open: list[_Appended] = []
        self._mapped: set[str] = set()
        self.fuse: int | None = None
        self.full = self.was_full = False
        self._boots = 0

    def tick(self) -> None:
        """Before every operation."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                raise Killed

    def fill(self) -> None:
        self.full = self.was_full = True

    def free(self) -> None:
        self.full = False

    def room_for(self, size: int) -> int:
        """How many of so many bytes it takes."""
        return size if not self.full or self._rng.random() < 0.4 else self._rng.randint(0, max(size - 1, 0))

    def need_room(self) -> None:
        """For something small."""
        if self.room_for(1) < 1:
            raise full()

    def kill(self) -> None:
        """The process is gone; of what it had in hand, some may have reached the operating system."""
        for file in self._open:
            file.die(self._rng)
        self._open, self._mapped, self.fuse = [], set(), None
        self.was_full = self.full

    def lose_power(self) -> None:
        self.kill()
        self._boots += 1
        self._names = dict(self._rng.choice([*self._before, self._names]))
        self._before = [dict(self._names)]
        for file in self._names.values():
            file.lose_power(self._rng)

    def damage(self, name: str, at: int, change: int) -> None:
        """A byte of what is on the disk is no longer what was written."""
        file = self._names[name]
        file.content[at] ^= change
        file.synced = bytes(file.content)

    def durable(self) -> VirtualDisk:
        """What is left of it in the worst case."""
        copy = VirtualDisk(self._rng)
        copy._boots = self._boots + 1
        copy._names = {name: _File(file.synced, file.synced) for name, file in self._before[0].items()}
        return copy

    # -- what a node sees --------------------------------------------------------------------------------------

    def boot(self) -> str:
        return f"boot {self._boots}"

    def append_to(self, name: str) -> Appended:
        self.tick()
        file = _Appended(self, self._made(name))
        self._open.append(file)
        return file

    def map(self, name: str) -> Mapped:
        self.tick()
        if name in self._mapped:
            raise NodeFailed(f"{name} is in use by another node")
        mapped = _Mapped(self, name, self._made(name))
        self._mapped.add(name)
        return mapped

    def unmap(self, name: str) -> None:
        self._mapped.discard(name)

    def read(self, name: str, most: int = -1, at: int = 0) -> bytes | None:
        file = self._names.get(name)
        if file is None:
            return None
        return bytes(file.content[at : at + most]) if most >= 0 else bytes(file.content[at:])

    def write(self, name: str, content: bytes) -> None:
        """In three steps, after each of which it may be all over."""
        self.tick()
        self.need_room()
        file = _File(content[: len(content) // 2])
        self._name({**self._names, name: file})
        self.tick()
        self.need_room()
        file.content = bytearray(content)
        self.tick()
        file.synced = content

    def replace(self, name: str, content: bytes) -> None:
        self.write(f".{name}.part", content)
        self.rename(f".{name}.part", name)

    def rename(self, name: str, to: str) -> None:
        self.tick()
        names = dict(self._names)
        names[to] = names.pop(name)
        self._name(names)

    def sync_names(self) -> None:
        self.tick()
        self._before = [dict(self._names)]

    def path(self, name: str) -> str:
        return name

    def _made(self, name: str) -> _File:
        if name not in self._names:
            self.need_room()
            self._name({**self._names, name: _File()})
        return self._names[name]

    def _name(self, names: dict[str, _File]) -> None:
        self._before.append(self._names)
        self._names = names


class _Appended:
    def __init__(self, disk: VirtualDisk, file: _File) -> None:
        self._disk, self._file = disk, file
        self._hand = bytearray()  # still with the process

    def append(self, content: Any) -> None:
        self._disk.tick()
        self._hand += bytes(content)
        if self._disk.full:  # what is in hand is handed over at any moment
            self.push()

    def size(self) -> int:
        return len(self._file.content) + len(self._hand)

    def read(self, at: int, size: int) -> bytes:
        self.push()
        return bytes(self._file.content[at : at + size])

    def cut(self, size: int) -> None:
        self._disk.tick()
        del self._file.content[size:]

    def push(self) -> None:
        """A full disk takes a part."""
        size = len(self._hand)
        taken = self._disk.room_for(size)
        self._file.content += self._hand[:taken]
        del self._hand[:taken]
        if taken < size:
            raise full()

    def sync(self) -> None:
        self._disk.tick()
        self._file.synced = bytes(self._file.content)

    def die(self, rng: random.Random) -> None:
        self._file.content += self._hand[: rng.randint(0, len(self._hand))]
        self._hand.clear()

    def close(self) -> None:
        self.push()


class _Mapped:
    def __init__(self, disk: VirtualDisk, name: str, file: _File) -> None:
        self._disk, self._name, self._file, self.memory = disk, name, file, _Memory(disk, file)

    def read(self) -> bytes:
        return bytes(self._file.content)

    def grow(self, size: int) -> None:
        more = size - len(self._file.content)
        taken = self._disk.room_for(more)
        self._file.content += bytes(taken)
        if taken < more:
            raise full()

    def sync(self) -> None:
        self._disk.tick()
        self._file.synced = bytes(self._file.content)

    def close(self) -> None:
        self._disk.unmap(self._name)


class _Memory:
    """Assignments reach the operating system at once."""

    def __init__(self, disk: VirtualDisk, file: _File) -> None:
        self._disk, self._file = disk, file

    def __len__(self) -> int:
        return len(self._file.content)

    def __setitem__(self, at: Any, content: Any) -> None:
        self._disk.tick()
        self._file.content[at] = content
