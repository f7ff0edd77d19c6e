"""What leaves a machine after a run: the records of its nodes in one file, and nothing besides.

An export is a ZIP archive without compression that anybody can look into: `export.json` names the nodes, their records
and the SHA-256 of each, and `N/NAME.f64` has the records of the N-th node, float64, rounds 0 … k−1. What was sent is
always there: an eavesdropper has it, too. Only with full telemetry, where nothing is private any more, there is also
what was written down besides, and the last x. Keys, checkpoints, journals and ledgers have no place in it, and a file
with anything else in it is refused.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from dpp2 import BadInput
from dpp2.algorithms.base import AlgorithmSection
from dpp2.arrays import Array
from dpp2.orchestrator.merge import NodeFolder, refused
from dpp2.store.files import json_text, plain_size, write_new
from dpp2.streaming import chunk_rounds

_ABOUT, _LAST_X, _FORMAT = "export.json", "last_x", 1
_MOST_ABOUT, _BLOCK = 2**24, 2**20  # bytes of export.json, and those that are read at a time


def pack(nodes: Sequence[NodeFolder], section: AlgorithmSection, out: Path) -> None:
    """The records of these nodes into the new file `out`, for its owner alone."""

    def fill(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            about = [_put(archive, f"{number}/", node, section) for number, node in enumerate(nodes)]
            archive.writestr(zipfile.ZipInfo(_ABOUT), json_text({"format": _FORMAT, "nodes": about}))

    try:
        write_new(out, fill)
    except FileExistsError:
        raise BadInput("--out", str(out), "a new file") from None


def _put(archive: zipfile.ZipFile, folder: str, node: NodeFolder, section: AlgorithmSection) -> Mapping[str, Any]:
    digests = {}
    for name, parts in _exported(node, section).items():
        digest = hashlib.sha256()
        member = zipfile.ZipInfo(f"{folder}{name}.f64")
        with archive.open(member, "w", force_zip64=True) as file:
            for numbers in parts:
                content = numbers.astype("<f8", copy=False).tobytes()
                file.write(content)
                digest.update(content)
        digests[name] = digest.hexdigest()
    facts = {"agents": node.agents, "run": node.run_id, "digest": node.digest, "uncovered": node.uncovered}
    return {**facts, "rounds": node.k, "dimension": node.dimension, "records": digests}


def _exported(node: NodeFolder, section: AlgorithmSection) -> dict[str, Iterable[Array]]:
    """By name, a chunk after the other."""
    count = chunk_rounds(len(node.agents), node.dimension)
    chunks = [range(first, min(first + count, node.k)) for first in range(0, node.k, count)]
    full = node.has("x")
    rows = (*section.phases, *(("x", "grad", *section.noises) if full else ()))
    exported: dict[str, Iterable[Array]] = {
        name: map(partial(node.records, name, node.dimension), chunks) for name in rows
    }
    if not full:
        return exported
    exported |= {name: map(partial(node.scalars, name), chunks) for name in section.scalars}
    return exported | {"values": map(partial(node.records, "values", 1), chunks), _LAST_X: [node.state["x"]]}


def unpack(path: Path) -> list[NodeFolder]:
    """The nodes of an export; records are read, and checked, when they are asked for."""
    with refused("FILE", path, "an export of dpp2 export"):
        size = plain_size(path)
        with zipfile.ZipFile(path) as archive:
            sizes = _sizes(archive, size)
            about = json.loads(archive.read(_ABOUT)) if sizes.get(_ABOUT, size) <= _MOST_ABOUT else {}
        if about["format"] != _FORMAT:
            raise ValueError(f"format {about['format']}, where {_FORMAT} is known")
        listed = {f"{n}/{name}.f64" for n, node in enumerate(about["nodes"]) for name in node["records"]}
        if sizes.keys() != listed | {_ABOUT}:
            raise ValueError(f"it holds {min(sizes.keys() ^ (listed | {_ABOUT}))}, or lacks it")
        nodes = [_node(path, f"{n}/", facts, sizes) for n, facts in enumerate(about["nodes"])]
        if len({node.run_id for node in nodes}) != 1:
            raise ValueError("it must hold one run")
        if any(node.k == 0 and not node.state for node in nodes):
            raise ValueError("nothing was run")
        return nodes


def _sizes(archive: zipfile.ZipFile, size: int) -> dict[str, int]:
    """Bytes by name. Nothing is compressed, so nothing can be larger than the file."""
    members = archive.infolist()
    if any(one.compress_type != zipfile.ZIP_STORED or one.file_size != one.compress_size for one in members):
        raise ValueError("it is compressed")
    sizes = {one.filename: one.file_size for one in members}
    if len(sizes) != len(members) or sum(sizes.values()) > size:
        raise ValueError("a name is there twice, or more is claimed than there is")
    return sizes


def _node(path: Path, folder: str, facts: Mapping[str, Any], sizes: Mapping[str, int]) -> NodeFolder:
    own = {name: sizes[f"{folder}{name}.f64"] for name in facts["records"]}
    stored = ExportedRecords(path, folder, facts["records"], own, facts["rounds"])
    node = NodeFolder.of(path, facts, {}, stored)
    if not stored.has(_LAST_X):
        return node
    x = stored.read(_LAST_X, range(len(node.agents)), node.dimension)
    return NodeFolder.of(path, facts, {"x": x}, stored)


@dataclass(frozen=True)
class ExportedRecords:
    """The records of one node in an export."""

    path: Path
    folder: str
    digests: Mapping[str, str]
    sizes: Mapping[str, int]
    rounds: int
    _places: dict[str, int] = field(default_factory=dict, compare=False)

    def has(self, name: str) -> bool:
        return name in self.digests

    def read(self, name: str, rounds: range, width: int) -> Array:
        with refused("FILE", self.path, f"whole records, and those of {name} are not"):
            expected = 8 * width * (rounds.stop if name == _LAST_X else self.rounds)
            if self.sizes[name] != expected:
                raise ValueError(f"{self.sizes[name]} bytes, not {expected}")
            with self.path.open("rb") as file:
                file.seek(self._checked_place(name) + rounds.start * 8 * width)
                content = file.read(len(rounds) * 8 * width)
            return np.frombuffer(content, dtype="<f8").astype(np.float64).reshape(len(rounds), width)

    def _checked_place(self, name: str) -> int:
        """Where the numbers begin in the archive, which is not compressed. Their checksum is compared once."""
        if name not in self._places:
            with zipfile.ZipFile(self.path) as archive, archive.open(f"{self.folder}{name}.f64") as file:
                digest = hashlib.sha256()
                while block := file.read(_BLOCK):
                    digest.update(block)
                if digest.hexdigest() != self.digests[name]:
                    raise ValueError("the checksum is another one")
                self._places[name] = _place(self.path, archive.getinfo(f"{self.folder}{name}.f64"))
        return self._places[name]


def _place(path: Path, member: zipfile.ZipInfo) -> int:
    """After the local header: 30 bytes, the last four of which are the lengths of a name and of what else follows."""
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
    return member.header_offset + 30 + int(name) + int(extra)
