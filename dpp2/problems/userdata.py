"""A folder of per-agent data.

`agent-<i>.npz` holds arrays `features` (m, d) and `labels` (m,); `agent-<i>.csv` has numeric columns of
which the last is the label, under a header line or none. Nothing in them is trusted: no pickles, and every
array is checked before it is used.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpp2.arrays import Array
from dpp2.errors import BadInput, MissingData, one_line
from dpp2.problems.base import LARGEST
from dpp2.problems.sources import Source, source_of_arrays

FIELD = "problem.path"


def read_agents(folder: Path, owned: Sequence[int], signs: bool) -> tuple[list[Array], list[Array], tuple[Source, ...]]:
    """Features, labels and sources of the owned agents; with `signs` the labels must be ±1."""
    data = [_read(folder, agent, signs) for agent in owned]
    first = data[0][0].shape[1]
    for agent, (features, *_) in zip(owned, data, strict=True):
        if features.shape[1] != first:
            wanted = f"{first} features like agent {owned[0]}'s, not {features.shape[1]}"
            raise _refused(agent_file(folder, agent), wanted)
    features_of, labels_of, sources = zip(*data, strict=True)
    return list(features_of), list(labels_of), sources


def agent_file(folder: Path, agent: int) -> Path:
    """The one data file of an agent."""
    names = (f"agent-{agent}.npz", f"agent-{agent}.csv")
    try:
        if not folder.is_dir():
            raise MissingData(FIELD, str(folder), "a Python file (.py) or a folder of per-agent data")
        found = [folder / name for name in names if (folder / name).exists()]
    except OSError as error:
        raise MissingData(FIELD, str(folder), f"a readable folder ({error.strerror})") from None
    if len(found) == 1:
        return found[0]
    wanted = "only one of {} and {}" if found else "a folder that holds {} or {}, and the like for every agent"
    refusal = BadInput if found else MissingData
    raise refusal(FIELD, str(folder), wanted.format(*names))


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise MissingData(FIELD, str(path), f"a readable file ({getattr(error, 'strerror', error)})") from None


def _read(folder: Path, agent: int, signs: bool) -> tuple[Array, Array, Source]:
    path = agent_file(folder, agent)
    content = read_bytes(path)
    features, labels = _from_npz(path, content) if path.suffix == ".npz" else _from_csv(path, content)
    if features.ndim != 2 or 0 in features.shape or labels.shape != features.shape[:1]:
        shapes = f"features {features.shape} and labels {labels.shape}"
        raise _refused(path, f"features (m, d) and labels (m,) with m, d ≥ 1, not {shapes}")
    for what, values in (("features", features), ("labels", labels)):
        _check(path, what, values, np.abs(values) < LARGEST, "finite {} below 1e100 in size")
    if signs:
        _check(path, "labels", labels, np.abs(labels) == 1, "{} −1 or 1 for the logistic loss")
    return features, labels, source_of_arrays(features, labels, content)


def _check(path: Path, what: str, values: Array, fine: Any, wanted: str) -> None:
    if not fine.all():
        where = tuple(int(index) for index in np.argwhere(~fine)[0])
        accepted = f"{wanted.format(what)}, not {values[where]:g} in sample {where[0]}"
        raise _refused(path, accepted)


def _refused(path: Path, wanted: str) -> BadInput:
    """Names the file once more, because a long path is cut short where the message shows it."""
    return BadInput(FIELD, str(path), f"in {path.name} {wanted}")


def _from_npz(path: Path, content: bytes) -> tuple[Array, Array]:
    wanted = "an .npz file with the numeric arrays features and labels"
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return _numeric(arrays["features"]), _numeric(arrays["labels"])
    except Exception as error:  # zip, zlib and numpy raise a dozen kinds on a file that is not theirs
        raise _refused(path, f"{wanted} ({one_line(error)})") from None


def _numeric(values: Any) -> Array:
    if values.dtype.kind not in "iuf":
        raise TypeError(f"an array of {values.dtype}")
    return np.asarray(values, dtype=np.float64)


def _from_csv(path: Path, content: bytes) -> tuple[Array, Array]:
    try:
        lines = [line for line in content.decode("utf-8-sig").splitlines() if line.strip()]
        if lines and not any(_is_number(cell) for cell in lines[0].split(",")):
            del lines[0]  # a header; a line with even one number is data, and a slip in it must not go unseen
        if not lines:
            raise ValueError("no samples")
        table = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None)
    except ValueError as error:
        accepted = f"comma-separated numbers, the label last ({one_line(error)})"
        raise _refused(path, accepted) from None
    return table[:, :-1], table[:, -1]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
