"""Whether the records of a run are held in memory, or leave it as they come.

What is recorded of a round is a row for every agent, phase and private variable: 8·N·d bytes each. Small runs hold all
rounds at once. Large ones hold a chunk of rounds and hand it to a `Keeper`, so that memory does not grow with K.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dpp2.arrays import Array

MOST_IN_MEMORY = 2**30  # bytes of observation and truth: with more, "auto" is "zarr"
CHUNK = 2**24  # bytes of one array in one chunk: large enough that a file for each is no burden


class Keeper(Protocol):
    """Where the rounds go that a recorder does not hold. A run directory has one."""

    def write(self, first: int, rows: Mapping[str, Array]) -> None:
        """Rounds first …, the beginning of a chunk. A chunk that is not full comes again when it has grown."""

    def commit(self, k: int) -> None:
        """Rounds 0 … k−1 have been written: from now on readers see them."""

    def read(self, first: int, last: int) -> Mapping[str, Array]:
        """Rounds first … last−1 of every array, as they were written."""


def streams(wanted: str, size: int) -> bool:
    """Whether records of so many bytes leave memory as they come; `wanted` is `run.records`."""
    return wanted == "zarr" or (wanted == "auto" and size > MOST_IN_MEMORY)


def chunk_rounds(agents: int, dimension: int) -> int:
    """Rounds in one chunk. It does not depend on K, because a resumed run may go on longer."""
    return max(1, CHUNK // (8 * agents * dimension))
