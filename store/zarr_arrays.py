"""Arrays in the Zarr format, version 3, without compression: a folder with zarr.json, and a file for each chunk.

    NAME/zarr.json   shape, type, and how many rounds a chunk has
    NAME/c.3.0.0     chunk 3 of all agents: little-endian numbers as they lie in memory, with zeros after the last round

Others read it with zarr, xarray, dask or whatever knows the format. It is written here by a few lines of our own, and
not by zarr-python: a chunk must be synced before it is renamed, like every other file of a run (`store.files`), which
that library does not do; and importing it costs a quarter of a second of CPU. Nothing is compressed: of x and y seven
eighths would be left (zstd, bits shuffled).
Nothing is ever half-written: a chunk appears whole, and zarr.json speaks of a round only when its chunks are there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import numpy as np

from dpp2.arrays import Array
from dpp2.store.files import PUBLIC, json_text, read_json, write_text, write_whole

META = "zarr.json"
_TYPES = {"float64": "<f8", "int32": "<i4", "int64": "<i8"}


@dataclass(frozen=True)
class ZarrArray:
    """One array that is on disk; `chunk` counts rows of its first axis. The other axes are whole in every chunk."""

    path: Path
    shape: tuple[int, ...]
    chunk: int
    dtype: str

    @classmethod
    def open(cls, path: Path) -> ZarrArray:
        """What is no such array, or one that was written otherwise, is a `ValueError`."""
        described = read_json(path / META)
        try:
            shape, dtype = tuple(map(int, described["shape"])), str(described["data_type"])
            chunk = int(described["chunk_grid"]["configuration"]["chunk_shape"][0])
        except (ArithmeticError, LookupError, TypeError, ValueError):  # others may have written anything there
            raise ValueError(f"{path.name}/{META} describes no array") from None
        if dtype not in _TYPES or not _possible(shape, chunk) or described != _described(shape, chunk, dtype):
            raise ValueError(f"{path.name} is a Zarr array that was written otherwise")
        return cls(path, shape, chunk, dtype)

    def cut(self, rows: int) -> ZarrArray:
        """Its first rows; more than there are is a `ValueError`."""
        if rows > self.shape[0]:
            raise ValueError(f"{self.path.name} has {self.shape[0]} rounds, not {rows}")
        return replace(self, shape=(rows, *self.shape[1:]))

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def read(self, first: int = 0) -> Array:
        """Rows from `first` on. Only chunks that hold them are opened; one that is not whole is a `ValueError`."""
        last = self.shape[0]
        rows = np.empty((max(last - first, 0), *self.shape[1:]), self.dtype)
        for number in range(first // self.chunk, math.ceil(last / self.chunk)):
            begins, ends = max(first, number * self.chunk), min(last, (number + 1) * self.chunk)
            rows[begins - first : ends - first] = self._rows(number, begins - number * self.chunk, ends - begins)
        return rows

    def checksums(self, first: int = 0) -> list[int | None]:
        """CRC-32 of the rows in every chunk, one chunk in memory at a time; None for those before row `first`."""
        found: list[int | None] = [None] * (first // self.chunk)
        for number in range(first // self.chunk, math.ceil(self.shape[0] / self.chunk)):
            count = min(self.chunk, self.shape[0] - number * self.chunk)
            found.append(crc32(self._rows(number, 0, count).data))
        return found

    def _rows(self, number: int, skipped: int, count: int) -> Array:
        path, dtype = self.path / _key(number, len(self.shape)), np.dtype(_TYPES[self.dtype])
        row = math.prod(self.shape[1:])
        if (size := path.stat().st_size) != (whole := self.chunk * row * dtype.itemsize):
            raise ValueError(f"{self.path.name}/{path.name} has {size} bytes, not {whole}")
        read = np.fromfile(path, dtype, count * row, offset=skipped * row * dtype.itemsize)
        return read.reshape(count, *self.shape[1:])


def write_group(path: Path, attributes: Mapping[str, str], mode: int = PUBLIC) -> None:
    """A folder of arrays; it is there already."""
    write_text(path / META, json_text({"zarr_format": 3, "node_type": "group", "attributes": attributes}), mode)


def group_attribute(path: Path, name: str) -> str | None:
    """What `write_group` was told; None where it was not. What is no group is a `ValueError`."""
    try:
        found = read_json(path / META).get("attributes", {}).get(name)
    except AttributeError:
        raise ValueError(f"{path.name}/{META} describes no group") from None
    return None if found is None else str(found)


def write_shape(path: Path, shape: Sequence[int], chunk: int, dtype: str = "float64", mode: int = PUBLIC) -> None:
    """How much of an array there is. Its chunks have been written."""
    write_text(path / META, json_text(_described(tuple(shape), chunk, dtype)), mode)


def write_chunk(path: Path, number: int, rows: Array, chunk: int, mode: int = PUBLIC) -> None:
    """Chunk `number` of an array, as far as it goes: zeros follow, which take no room on disk."""
    numbers = np.ascontiguousarray(rows, _TYPES[rows.dtype.name])

    def fill(file: IO[bytes]) -> None:
        file.write(numbers.data)
        file.truncate(chunk * math.prod(rows.shape[1:]) * numbers.itemsize)

    write_whole(path / _key(number, rows.ndim), fill, mode)


def write_array(path: Path, array: Array, mode: int = PUBLIC) -> None:
    """A whole array in one chunk."""
    path.mkdir(exist_ok=True)
    chunk = max(len(array), 1)
    write_chunk(path, 0, array, chunk, mode)
    write_shape(path, array.shape, chunk, array.dtype.name, mode)


def drop_after(path: Path, rows: int, chunk: int) -> None:
    """Remove chunks of rows that are not there any more, and what a kill has left beside its name."""
    for file in (*path.glob("c.*"), *path.glob(".*.part")):
        if file.name.startswith(".") or int(file.name.split(".")[1]) * chunk >= max(rows, 1):
            file.unlink()


def _possible(shape: tuple[int, ...], chunk: int) -> bool:
    """Whether an array may have this size: what lies on a disk has fewer than 2⁶³ numbers."""
    return bool(shape) and chunk > 0 and all(0 <= size < 2**63 for size in (*shape, math.prod(shape), chunk))


def _key(number: int, dimensions: int) -> str:
    return ".".join(["c", str(number), *["0"] * (dimensions - 1)])


def _described(shape: tuple[int, ...], chunk: int, dtype: str) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk, *shape[1:]]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
    }
