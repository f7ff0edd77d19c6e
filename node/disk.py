"""The few things that a node asks of a disk, so that a simulated disk can take its place and lose what was not synced.

Three promises matter: what was written survives the death of the process, what was synced survives a loss of power, and
a file that is written whole is there whole, under its name, or not at all.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from dpp2.node.errors import NodeFailed
from dpp2.node.process import with_descriptors
from dpp2.store.files import write_whole

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Appended(Protocol):
    """A file that only grows at its end."""

    def append(self, content: Any, /) -> Any:
        """Bytes, or what can be read as such. They may stay with the process until `push`."""

    def size(self) -> int: ...

    def read(self, at: int, size: int) -> bytes: ...

    def cut(self, size: int) -> None:
        """Drop everything after `size` bytes."""

    def push(self) -> None:
        """Hand everything to the operating system."""

    def sync(self) -> None:
        """Wait until everything that was pushed is on disk."""

    def close(self) -> None: ...


class Mapped(Protocol):
    """A file in memory, which one process has for itself: what is assigned to `memory` survives the process."""

    memory: Any  # of bytes: assigned to by place, with a length

    def read(self) -> bytes: ...

    def grow(self, size: int) -> None:
        """To this size, with zeros; `memory` is another one afterwards."""

    def sync(self) -> None:
        """Wait until everything that was assigned is on disk. May be called beside assignments, by another thread."""

    def close(self) -> None: ...


class Disk(Protocol):
    """One folder."""

    def boot(self) -> str:
        """Which start of the machine this is: mapped memory outlives processes, not machines. Empty: nobody knows."""

    def append_to(self, name: str) -> Appended:
        """Made if it is missing."""

    def map(self, name: str) -> Mapped:
        """Made if it is missing; refused if another process has it."""

    def read(self, name: str, most: int = -1, at: int = 0) -> bytes | None:
        """A whole file, or at most so many bytes from a place on; None if there is none."""

    def write(self, name: str, content: bytes) -> None:
        """A file and its content, synced; not atomic."""

    def replace(self, name: str, content: bytes) -> None:
        """The same, in place of another file: atomic. Its name is durable after `sync_names`."""

    def rename(self, name: str, to: str) -> None:
        """Atomic; durable after `sync_names`."""

    def sync_names(self) -> None:
        """Wait until all names are on disk as they are now."""

    def path(self, name: str) -> str:
        """For messages."""


class RealDisk:
    """A folder of the operating system, made if it is missing."""

    def __init__(self, folder: Path) -> None:
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        # Folders besides it whose names are yet to be synced, once. A run's lies in `runs`, which lies in a home.
        self._around = {*folder.parents[:2], *(path.parent for path in made)}

    def boot(self) -> str:
        try:
            return _BOOT.read_text().strip()  # in a container it is the host's, whose power is what matters
        except OSError:
            return ""

    def append_to(self, name: str) -> Appended:
        path = self._folder / name
        self._around |= {path.parent} - {self._folder}
        return _RealAppended(path)

    def map(self, name: str) -> Mapped:
        return _RealMapped(self._folder / name)

    def read(self, name: str, most: int = -1, at: int = 0) -> bytes | None:
        try:
            with (self._folder / name).open("rb") as file:
                file.seek(at)
                return file.read(most)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        with with_descriptors(lambda: (self._folder / name).open("wb")) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def replace(self, name: str, content: bytes) -> None:
        with_descriptors(lambda: write_whole(self._folder / name, lambda file: file.write(content)))

    def rename(self, name: str, to: str) -> None:
        (self._folder / name).replace(self._folder / to)

    def sync_names(self) -> None:
        around, self._around = self._around, set()
        for folder in (*around, self._folder):
            descriptor = with_descriptors(partial(os.open, folder, os.O_RDONLY))
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def path(self, name: str) -> str:
        return str(self._folder / name)


class _RealAppended:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._file: IO[bytes] = path.open("r+b")
        self._file.seek(0, os.SEEK_END)
        self.append = self._file.write  # itself: a round has several of them

    def size(self) -> int:
        return self._file.seek(0, os.SEEK_END)

    def read(self, at: int, size: int) -> bytes:
        self._file.flush()
        return os.pread(self._file.fileno(), size, at)

    def cut(self, size: int) -> None:
        self._file.truncate(size)
        self._file.seek(size)

    def push(self) -> None:
        self._file.flush()

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class _RealMapped:
    memory: mmap.mmap

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._lock()
            self.memory = mmap.mmap(self._file, 0) if os.fstat(self._file).st_size else mmap.mmap(-1, 1)
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        """Two nodes in one folder would write over each other's entries. The lock goes when the process does."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NodeFailed(f"{self._path} is in use by another node: each needs a --home of its own") from None

    def read(self) -> bytes:
        return self._path.read_bytes()

    def grow(self, size: int) -> None:
        """Zeros are written to the file now: mapped memory could not tell of a full disk."""
        while (before := os.fstat(self._file).st_size) < size:  # a disk that is nearly full takes a part, and then none
            try:
                os.pwrite(self._file, bytes(size - before), before)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self._path)) from None
        self.memory.close()
        self.memory = mmap.mmap(self._file, size)

    def sync(self) -> None:
        """By the descriptor, not by the mapping, which `grow` may take away meanwhile: pages of both are the same."""
        os.fsync(self._file)

    def close(self) -> None:
        self.memory.close()
        os.close(self._file)
