"""How a file is written here: beside its name, synced, then renamed. Under its name there is only ever a whole file."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dpp2.records import Records
from dpp2.store.documents import plain

PRIVATE, PUBLIC = 0o600, 0o644  # whom a file is for: its owner, or everybody
_MOST_JSON = 2**26  # bytes of a document: a million agents have room in it


def file_size(path: Path, most: int | None = None) -> int:
    """Bytes of a file that can be read to its end: a pipe would keep its reader waiting for ever."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path.name} is not a plain file")
    if most is not None and found.st_size > most:
        raise ValueError(f"{path.name} has {found.st_size} bytes, where {most} are the most")
    return found.st_size


def plain_size(path: Path, most: int | None = None) -> int:
    """The same of a file that is no link, and that no link leads to within its run."""
    if any(part.is_symlink() for part in (path, path.parent)):
        raise ValueError(f"{path.name} lies behind a link")
    return file_size(path, most)


def read_json(path: Path, most: int = _MOST_JSON) -> Any:
    """A document on disk. Whatever is wrong with what is in it is a `ValueError`, too deep a nesting as well."""
    file_size(path, most)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None


def read_npz(path: Path) -> Records:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return Records({name: arrays[name] for name in arrays.files})


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]], mode: int = PUBLIC) -> None:
    write_whole(path, lambda file: np.savez(file, **arrays), mode)  # type: ignore[arg-type]  # savez's own keyword clashes


def write_text(path: Path, text: str, mode: int = PUBLIC) -> None:
    write_whole(path, lambda file: file.write(text.encode()), mode)


def write_whole(path: Path, fill: Callable[[IO[bytes]], Any], mode: int = PUBLIC) -> None:
    """Write a file with `fill`, or replace the one that is there."""
    beside = path.with_name(f".{path.name}.part")
    with _named(path):
        _replace(path, beside, fill, mode)


def _replace(path: Path, beside: Path, fill: Callable[[IO[bytes]], Any], mode: int) -> None:
    try:
        with open(beside, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            _fill(file, fill)
        beside.replace(path)
        _sync_folder(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def write_new(path: Path, fill: Callable[[IO[bytes]], Any]) -> None:
    """Write a file that only its owner can read. One that is there is left alone, and is a `FileExistsError`.

    Under a name of its own first: of two that write the same file at once, one wins, and nobody sees a half.
    """
    descriptor, beside = mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with _named(path), os.fdopen(descriptor, "wb") as file:
            _fill(file, fill)
        os.link(beside, path)  # unlike a rename it never replaces
        _sync_folder(path.parent)
    finally:
        os.unlink(beside)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """A full disk does not say which file was being written. Its reader must hear it."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            error.filename = str(path)
        raise


def _fill(file: IO[bytes], fill: Callable[[IO[bytes]], Any]) -> None:
    fill(file)
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """A name is only safe from a loss of power once its folder is on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def json_text(document: Any) -> str:
    """A document (`store.documents`) as a file or a reader gets it."""
    return json.dumps(plain(document), ensure_ascii=False, indent=2) + "\n"
