"""How a file is written here: beside its name, synced, then renamed. Under its name there is only ever a whole file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from dpp2.arrays import Array
from dpp2.records import Records
from store.documents import plain


def read_npz(path: Path) -> Records:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return Records({name: arrays[name] for name in arrays.files})


def write_npz(path: Path, arrays: Mapping[str, Array], mode: int = 0o644) -> None:
    write_whole(path, lambda file: np.savez(file, **arrays), mode)  # type: ignore[arg-type]  # savez's own keyword clashes


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    write_whole(path, lambda file: file.write(text.encode()), mode)


def write_whole(path: Path, fill: Callable[[IO[bytes]], Any], mode: int = 0o644) -> None:
    beside = path.with_name(f".{path.name}.part")
    try:
        with open(beside, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def json_text(document: Any) -> str:
    """A document (`store.documents`) as a file or a reader gets it."""
    return json.dumps(plain(document), ensure_ascii=False, indent=2) + "\n"
