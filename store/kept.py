"""Observation and truth of a run directory, whichever way they are kept: NAME.npz, or NAME.zarr for large runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpp2.arrays import Array
from dpp2.errors import BadInput, one_line
from dpp2.recorder import Recorder, recorded_weights
from dpp2.records import Records
from dpp2.store.files import PRIVATE, PUBLIC, read_npz
from dpp2.store.modes import make_private
from dpp2.store.zarr_arrays import (
    META,
    ZarrArray,
    drop_after,
    group_attribute,
    write_array,
    write_chunk,
    write_group,
    write_shape,
)

if TYPE_CHECKING:
    from dpp2.weights import Matrix

OBSERVATION, TRUTH = "observation", "truth"
WEIGHTS = ("P", "P_data", "P_indices", "P_indptr")  # of an observation: no row for each round
_RUN = "run"  # attribute of a group: the run_id
_MODES = {OBSERVATION: PUBLIC, TRUTH: PRIVATE}


class ZarrKeeper:
    """Takes the rounds of a large run as they come: observation.zarr and truth.zarr, an array for each name."""

    def __init__(self, run: Path, recorder: Recorder, run_id: str) -> None:
        self._run, self._chunk, self._run_id = run, recorder.window, run_id
        self._places = dict.fromkeys(recorder.sent_arrays, OBSERVATION) | dict.fromkeys(recorder.private_arrays, TRUTH)
        self._agents_by_dimension = next(iter(recorder.sent_arrays.values())).shape[1:]

    def write(self, first: int, rows: Mapping[str, Array]) -> None:
        for name, part in rows.items():
            write_chunk(self._folder(name), first // self._chunk, part, self._chunk, self._mode(name))

    def commit(self, k: int) -> None:
        for name in self._places:
            write_shape(self._folder(name), (k, *self._agents_by_dimension), self._chunk, mode=self._mode(name))

    def read(self, first: int, last: int) -> Mapping[str, Array]:
        try:
            return self._read(first, last)
        except (OSError, ValueError, KeyError, TypeError) as error:
            wanted = f"an intact run, but rounds {first} to {last - 1} cannot be read ({one_line(error)})"
            raise BadInput("--resume", str(self._run), wanted) from None

    def _read(self, first: int, last: int) -> Mapping[str, Array]:
        for group in {self._group(place) for place in self._places.values()} if last > first else ():
            if group_attribute(group, _RUN) not in (None, self._run_id):  # None: of an older version
                raise ValueError(f"{group.name} is of another run")
        arrays = {name: ZarrArray.open(self._folder(name)) for name in self._places} if last > first else {}
        for name, array in arrays.items():
            shape = (max(last, array.shape[0]), *self._agents_by_dimension)
            if (array.shape, array.chunk) != (shape, self._chunk):
                raise ValueError(f"{name} has the shape {array.shape} in chunks of {array.chunk}, not {shape}")
        return {name: array.cut(last).read(first) for name, array in arrays.items()}

    def finish(self, k: int, weights: Mapping[str, Array], scalars: Mapping[str, Array]) -> None:
        """Also what has no row for each agent. Nothing stays that a kill has left behind."""
        self.commit(k)
        for place, arrays in ((OBSERVATION, weights), (TRUTH, scalars)):
            for name, array in arrays.items():
                write_array(self._group(place) / name, array, _MODES[place])
        for name in self._places:
            drop_after(self._folder(name), k, self._chunk)

    def _mode(self, name: str) -> int:
        return _MODES[self._places[name]]

    def _folder(self, name: str) -> Path:
        folder = self._group(self._places[name]) / name
        folder.mkdir(exist_ok=True)
        return folder

    def _group(self, place: str) -> Path:
        group = self._run / f"{place}.zarr"
        if not (group / META).is_file():
            make_private(group) if _MODES[place] == PRIVATE else group.mkdir(exist_ok=True)
            write_group(group, {_RUN: self._run_id}, _MODES[place])
        return group


class KeptRecords(Records):
    """The arrays of a Zarr group. One is read when it is asked for, or refused if memory has no room for it."""

    def __init__(self, group: Path, rounds: int | None = None) -> None:
        """The first `rounds` rounds; without it as many as are there."""
        super().__init__({})
        self.path = group
        found = {path.parent.name: ZarrArray.open(path.parent) for path in sorted(group.glob(f"*/{META}"))}
        there = max((array.shape[0] for name, array in found.items() if name not in WEIGHTS), default=0)
        self.rounds = there if rounds is None else rounds
        self._stored = {name: one if name in WEIGHTS else one.cut(self.rounds) for name, one in found.items()}

    @property
    def shape(self) -> tuple[int, ...]:
        """(K, N, d)"""
        found = [array.shape for array in self._stored.values() if len(array.shape) == 3]
        if not found:
            raise ValueError(f"{self.path} has no array with a row for each agent yet")
        return found[0]

    def checksums(self, last: int | None = None) -> dict[str, Any]:
        """Of every array its shape and the CRC-32 of every chunk, or of those that the last rounds are in."""
        first = 0 if last is None else max(self.rounds - last, 0)
        return {
            name: {"shape": list(array.shape), "crc": array.checksums(0 if name in WEIGHTS else first)}
            for name, array in self._stored.items()
        }

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._stored.values())

    def window(self, first: int, last: int) -> Records:
        """Rounds first … last−1, and P whole."""
        stored = {name: array if name in WEIGHTS else array.cut(last) for name, array in self._stored.items()}
        begins = {name: 0 if name in WEIGHTS else first for name in stored}
        check_room(self.path, sum(array.nbytes * (1 - begins[name] / max(last, 1)) for name, array in stored.items()))
        return Records({name: array.read(begins[name]) for name, array in stored.items()})

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            stored = self._stored[name]
            check_room(self.path, stored.nbytes)
            self._arrays |= Records({name: stored.read()})
        return self._arrays[name]

    def __getattr__(self, name: str) -> Array:
        return self[name] if name in self.__dict__.get("_stored", ()) else super().__getattr__(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptRecords, (self.path, self.rounds)

    def __repr__(self) -> str:
        return f"Records({', '.join(f'{name}: {array.shape}' for name, array in self._stored.items())})"


def finish_records(run: Path, recorder: Recorder, k: int, P: Matrix, run_id: str) -> tuple[Records, Records]:
    """Observation and truth of rounds 0 … k−1: as they are held, or on disk, where what is missing is written now."""
    if not recorder.streamed:
        return recorder.observation(k, P) or Records({}), recorder.truth(k) or Records({})
    recorder.flush(k)
    scalars = {name: numbers[:k] for name, numbers in recorder.scalars.items()}
    ZarrKeeper(run, recorder, run_id).finish(k, recorded_weights(P), scalars)
    truth = KeptRecords(run / f"{TRUTH}.zarr", k) if recorder.private_arrays else Records({})
    return KeptRecords(run / f"{OBSERVATION}.zarr", k), truth


def records_path(run: Path, name: str) -> Path:
    """Where the observation or the truth of a run lies, or would."""
    chunked = run / f"{name}.zarr"
    return chunked if (chunked / META).is_file() else run / f"{name}.npz"


def open_records(run: Path, name: str) -> Records:
    """The observation or the truth of a run that is over; empty if it has none.

    Rounds that have metrics have the others. A run that is being resumed may have more of them already.
    """
    path = records_path(run, name)
    if path.suffix == ".npz":
        return read_npz(path) if path.is_file() else Records({})
    return KeptRecords(path, _finished_rounds(run / "metrics.csv")) if has_records(run, name) else Records({})


def has_records(run: Path, name: str) -> bool:
    """Whether a run that is over has them."""
    path = records_path(run, name)
    return path.is_file() if path.suffix == ".npz" else (run / "metrics.csv").is_file()


def last_rounds(run: Path, name: str, most: int | None) -> tuple[int, Records]:
    """Of `open_records` the last rounds, `most` of them (none named: all), and the round that they begin with.

    Of chunks no more is read than holds them.
    """
    records = open_records(run, name)
    if isinstance(records, KeptRecords):
        first = 0 if most is None else max(records.rounds - most, 0)
        return first, records.window(first, records.rounds)
    rounds = max((len(array) for name, array in records.items() if name not in WEIGHTS), default=0)
    first = 0 if most is None else max(rounds - most, 0)
    return first, Records({name: array if name in WEIGHTS else array[first:] for name, array in records.items()})


def _finished_rounds(metrics: Path) -> int:
    """A row for each of x^0 … x^K below the header."""
    with metrics.open("rb") as lines:
        return sum(1 for _ in lines) - 2


def check_window(run: Path, most: int | None, times: float, otherwise: str) -> None:
    """Refuse a window (`last_rounds`) of which memory has no room for so many times its size."""
    size = 0.0
    for name in (OBSERVATION, TRUTH):
        records = _opened_chunks(run, name)
        if records is not None:
            size += records.nbytes * (1.0 if most is None else min(most / max(records.rounds, 1), 1.0))
    check_room(run, times * size, otherwise)


def _opened_chunks(run: Path, name: str) -> KeptRecords | None:
    """None where they are not kept in chunks; damaged ones are refused."""
    path = records_path(run, name)
    try:
        records = open_records(run, name) if path.is_dir() else None
    except (OSError, ValueError) as error:
        raise BadInput("RUN", str(run), f"a run with an intact {path.name} ({one_line(error)})") from None
    return records if isinstance(records, KeptRecords) else None


def check_room(path: Path, size: float, otherwise: str = "") -> None:
    """Refuse to read what memory has no room for. Where nobody can say how much there is, it is tried."""
    free = _free_memory()
    if free is not None and size > free:
        wanted = f"records that fit in memory: {size / 1e9:.1f} GB are needed, and {free / 1e9:.1f} are free{otherwise}"
        raise BadInput("RUN", str(path), wanted)


def _free_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
