"""What was overheard: the messages of every sender, round by round, and what is missing from them.

An observation is a file of its own, observation.npz, so that whoever attacks is handed it and nothing else:

    one array per phase (y, z for DPP²)   (K, N, d), NaN where a sender's message was not overheard
    P                                     (N, N); P_data, P_indices, P_indptr for large networks
    first, channels, unobserved, gaps     written by a tap; a run's own file leaves them out, since there every channel
                                          was overheard from round 0 on
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpp2.arrays import Array, frozen
from dpp2.errors import BadInput, one_line
from dpp2.records import Records
from dpp2.store.files import write_npz
from dpp2.store.kept import OBSERVATION, last_rounds, records_path

Channels = NDArray[np.int64]  # (C, 2): directed pairs (sender, receiver)

_LARGEST = 20_000  # agents; a dense P beyond that does not fit into memory
_NOT_A_PHASE = ("P", "P_data", "P_indices", "P_indptr", "first", "channels", "unobserved", "gaps", "notes")


@dataclass(frozen=True, eq=False)
class Observation:
    """Messages of rounds first … first + K − 1, and P, as an eavesdropper has them.

    `channels` are the directed edges that were overheard, `unobserved` those that never reached a wire; `gaps` are
    sentences about what is missing although it was sent, `notes` about anything else worth knowing.
    """

    phases: Mapping[str, Array]
    P: Array
    first: int = 0
    channels: Channels = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    unobserved: Channels = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sealed = {name: _sealed(array) for name, array in self.phases.items()}
        object.__setattr__(self, "phases", Records(sealed))
        object.__setattr__(self, "P", _sealed(self.P))
        for name in ("channels", "unobserved"):
            pairs = np.array(getattr(self, name), dtype=np.int64).reshape(-1, 2)
            pairs.flags.writeable = False
            object.__setattr__(self, name, pairs)

    @classmethod
    def of(cls, arrays: Mapping[str, Any], name: str = "observation") -> Self:
        """From the arrays of a run (`result.observation`) or of a file; anything that does not fit is bad input."""
        phases = {key: np.asarray(value) for key, value in arrays.items() if key not in _NOT_A_PHASE}
        P = _weights(arrays)
        _check(name, phases, P)
        return cls(
            phases=phases,
            P=P,
            first=int(arrays.get("first", 0)),
            channels=arrays["channels"] if "channels" in arrays else edges(P),
            unobserved=arrays.get("unobserved", ()),
            gaps=_sentences(arrays, "gaps"),
            notes=_sentences(arrays, "notes"),
        )

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read observation.npz, of a run or of a tap."""
        path = Path(path)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                content = {name: arrays[name] for name in arrays.files}
            return cls.of(content, str(path))
        except BadInput:
            raise
        except OSError as error:
            raise BadInput("observation", str(path), f"a readable observation.npz ({error.strerror})") from None
        except Exception as error:  # zip, zlib, json and numpy raise a dozen kinds on a damaged file
            raise BadInput("observation", str(path), f"an intact observation.npz ({one_line(error)})") from None

    @classmethod
    def of_run(cls, run: Path, most: int | None = None) -> Self:
        """What a run recorded of what it sent: all rounds, or the last `most` of them."""
        path = records_path(run, OBSERVATION)
        try:
            first, arrays = last_rounds(run, OBSERVATION, most)
            return cls.of({**arrays, "first": first}, str(path))
        except BadInput:
            raise
        except Exception as error:  # zip, zlib, json and numpy raise a dozen kinds on a damaged file
            raise BadInput("RUN", str(run), f"a run with an intact {path.name} ({one_line(error)})") from None

    def last(self, most: int | None) -> Self:
        """Its last rounds."""
        skipped = 0 if most is None else max(self.shape[0] - most, 0)
        phases = {name: rows[skipped:] for name, rows in self.phases.items()}
        return replace(self, phases=phases, first=self.first + skipped)

    def save(self, path: Path | str) -> None:
        """Write observation.npz."""
        described = {
            "first": np.array(self.first),
            "channels": self.channels,
            "unobserved": self.unobserved,
            "gaps": np.array(json.dumps(self.gaps)),
            "notes": np.array(json.dumps(self.notes)),
        }
        write_npz(Path(path), {**self.phases, "P": self.P, **described})

    @property
    def shape(self) -> tuple[int, int, int]:
        """(K, N, d)"""
        rounds, agents, dimension = next(iter(self.phases.values())).shape
        return rounds, agents, dimension

    @cached_property
    def heard(self) -> NDArray[np.bool_]:
        """(K, N): whether every phase of a sender's round was overheard."""
        return np.asarray(np.all([~np.isnan(array).any(axis=2) for array in self.phases.values()], axis=0))


def edges(P: Array) -> Channels:
    """All directed edges of P, ascending: with none left out, the channels of a global eavesdropper."""
    off = P != 0
    np.fill_diagonal(off, False)
    return np.argwhere(off)


def _sealed(array: Array) -> Array:
    """Read-only; an array that already is (a run's record) is not copied."""
    array = np.asarray(array, dtype=np.float64)
    return frozen(array) if array.flags.writeable else array


def _weights(arrays: Mapping[str, Any]) -> Array:
    if "P" in arrays:
        return np.asarray(arrays["P"], dtype=np.float64)
    from scipy.sparse import csr_array

    data, indices, indptr = (np.asarray(arrays[f"P_{part}"]) for part in ("data", "indices", "indptr"))
    agents = len(indptr) - 1
    if agents > _LARGEST:
        raise BadInput("observation", f"{agents} agents", f"at most {_LARGEST}, beyond which P does not fit in memory")
    return np.asarray(csr_array((data, indices, indptr), shape=(agents, agents)).toarray(), dtype=np.float64)


def _check(name: str, phases: Mapping[str, Array], P: Array) -> None:
    shapes = {array.shape for array in phases.values()}
    if len(shapes) != 1 or any(array.dtype != np.float64 for array in phases.values()):
        raise BadInput("observation", name, "one float64 array per phase, all of one shape (rounds, agents, d)")
    shape = shapes.pop()
    if len(shape) != 3 or P.shape != (shape[1], shape[1]):
        raise BadInput("observation", name, f"arrays (rounds, agents, d) and P to match, not {shape} and {P.shape}")


def _sentences(arrays: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(map(str, json.loads(str(arrays[key])))) if key in arrays else ()
