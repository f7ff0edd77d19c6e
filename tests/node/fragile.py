"""`dpp2 node` on a disk that knows what of it is safe. Test-only: `python -m tests.node.fragile --agents …`.

A test kills such a process and then takes the power away, too (`lose_power`): what was not synced is gone. What is safe
lies beside the home, so that it takes no room on the node's disk: contents by inode, as they were when a file was last
synced, and names, as they were when the folder was.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpp2.node.disk import Appended, Mapped, RealDisk

_PAGE = 4096


def boot_file(home: Path) -> Path:
    return home / "boot"


class _Safe:
    """What would survive."""

    def __init__(self, folder: Path) -> None:
        home = folder.parents[1]
        self._folder, self._kept = folder, home.with_name(f"{home.name}-safe") / folder.name
        (self._kept / "data").mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()  # a checkpoint is written in a thread of its own

    def keep(self, name: str) -> None:
        path = self._folder / name
        _write(self._kept / "data" / str(path.stat().st_ino), path.read_bytes())

    def keep_names(self) -> None:
        with self._lock:
            names = {str(path.relative_to(self._folder)): path.stat().st_ino for path in _files(self._folder)}
            _write(self._kept / "names.json", json.dumps(names).encode())

    def lose_power(self, rng: random.Random) -> None:
        """Nothing that is not safe is left, or of the journal some pages."""
        listed = self._kept / "names.json"
        names: dict[str, int] = json.loads(listed.read_text()) if listed.exists() else {}
        contents = {name: self._content(name, inode, rng) for name, inode in names.items()}
        shutil.rmtree(self._folder)
        shutil.rmtree(self._kept)
        again = _Safe(self._folder)
        for name, content in contents.items():
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_bytes(content)
            again.keep(name)
        again.keep_names()

    def _content(self, name: str, inode: int, rng: random.Random) -> bytes:
        kept = self._kept / "data" / str(inode)
        safe = kept.read_bytes() if kept.exists() else b""
        now = self._folder / name
        if name != "journal.bin" or not now.exists() or rng.random() < 0.5:
            return safe
        content = now.read_bytes()
        pages = range(0, len(content), _PAGE)
        safe = safe.ljust(len(content), b"\0")
        return b"".join((content if rng.random() < 0.5 else safe)[at : at + _PAGE] for at in pages)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".part"))


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: the process may be killed meanwhile."""
    beside = path.with_name(f"{path.name}.{threading.get_ident()}")
    beside.write_bytes(content)
    beside.replace(path)


def lose_power(home: Path, rng: random.Random) -> None:
    """The node that has this home is dead already."""
    for folder in (home / "runs").iterdir():
        _Safe(folder).lose_power(rng)
    boot_file(home).write_text(str(rng.random()))


class _Synced:
    """A file; what is synced is kept."""

    def __init__(self, file: Any, safe: _Safe, name: str) -> None:
        self._file, self._safe, self._name = file, safe, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._file.sync()
        self._safe.keep(self._name)


class FragileDisk(RealDisk):
    """The real one, watched."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._safe, self._home = _Safe(folder), folder.parents[1]

    def boot(self) -> str:
        return boot_file(self._home).read_text() if boot_file(self._home).exists() else "the first"

    def append_to(self, name: str) -> Appended:
        file: Any = _Synced(super().append_to(name), self._safe, name)
        return file  # type: ignore[no-any-return]

    def map(self, name: str) -> Mapped:
        file: Any = _Synced(super().map(name), self._safe, name)
        return file  # type: ignore[no-any-return]

    def write(self, name: str, content: bytes) -> None:
        super().write(name, content)
        self._safe.keep(name)

    def replace(self, name: str, content: bytes) -> None:
        super().replace(name, content)
        self._safe.keep(name)
        self._safe.keep_names()

    def sync_names(self) -> None:
        super().sync_names()
        self._safe.keep_names()


if __name__ == "__main__":
    from dpp2.node.process import set_up

    set_up()  # before gRPC is imported
    from dpp2.node import server
    from dpp2.node.__main__ import main

    vars(server)["RealDisk"] = FragileDisk
    sys.exit(main())
