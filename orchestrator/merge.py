"""What nodes wrote in their own folders, put together into one run, as if it had been embedded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpp2 import BadInput, Experiment, Simulation
from dpp2.algorithms.base import AlgorithmSection
from dpp2.arrays import Array
from dpp2.errors import one_line
from dpp2.node.disk import RealDisk
from dpp2.node.errors import NodeFailed
from dpp2.node.files import read_records, records_file
from dpp2.node.run import final_state
from dpp2.privacy import MOST_ROUNDS
from dpp2.simulation import Snapshot
from dpp2.store.files import plain_size, read_json
from dpp2.streaming import chunk_rounds

_ID = re.compile(r"[0-9a-f]{1,64}")
_MOST_FACTS, _MOST_STATE = 2**24, 2**30  # bytes of node.json, where a million agents have room, and of a checkpoint


class Stored(Protocol):
    """Where the records of one node lie."""

    def has(self, name: str) -> bool: ...

    def read(self, name: str, rounds: range, width: int) -> Array:
        """So many numbers for each of these rounds, (rounds, width); fewer, or damaged ones, are a `BadInput`."""


@dataclass(frozen=True, eq=False)
class NodeFolder:
    """What one node left behind: its agents' records of rounds 0 … k−1 and, where it is there, their state at k."""

    path: Path
    agents: list[int]
    run_id: str
    digest: str
    k: int
    dimension: int
    state: dict[str, Array]
    stored: Stored
    uncovered: int | None  # the first round whose noise float64 did not carry

    @classmethod
    def open(cls, path: Path) -> NodeFolder:
        with refused("DIR", path, "the folder of a node that has run"):
            for file in (path / "node.json", *path.glob("checkpoint*.bin")):
                plain_size(file, _MOST_FACTS if file.suffix == ".json" else _MOST_STATE)
            facts = read_json(path / "node.json", _MOST_FACTS)
            state = final_state(path)
            k = int(state.pop("k"))
            return cls.of(path, facts | {"rounds": k, "dimension": state["x"].shape[1]}, state, FolderRecords(path))

    @classmethod
    def of(cls, path: Path, facts: Mapping[str, Any], state: dict[str, Array], stored: Stored) -> NodeFolder:
        """Of facts that anybody may have written; what is wrong with them is a `ValueError`."""
        agents, k, dimension = facts["agents"], facts["rounds"], facts["dimension"]
        if not isinstance(agents, list) or not agents or any(not _counts(agent) for agent in agents):
            raise ValueError("agents are not numbers")
        if len(set(agents)) != len(agents):
            raise ValueError("an agent is there twice")
        if not _counts(k) or k > MOST_ROUNDS or not _counts(dimension) or not 0 < dimension < 2**31:
            raise ValueError("rounds or dimension is not a valid number")
        if not all(isinstance(facts[name], str) and _ID.fullmatch(facts[name]) for name in ("run", "digest")):
            raise ValueError("run or digest is not hexadecimal")
        for name, rows in state.items():
            if rows.ndim < 1 or len(rows) != len(agents) or (name == "x" and rows.shape[1:] != (dimension,)):
                raise ValueError(f"{name} has the shape {rows.shape}")
        uncovered = facts.get("uncovered")
        if uncovered is not None and not _counts(uncovered):
            raise ValueError("uncovered is not a round")
        return cls(path, agents, facts["run"], facts["digest"], k, dimension, state, stored, uncovered)

    def fits(self, other: NodeFolder) -> bool:
        """Whether rows of both have one shape; an export may have less of the state than a home."""
        common = self.state.keys() & other.state.keys()
        alike = all(self.state[name].shape[1:] == other.state[name].shape[1:] for name in common)
        return self.dimension == other.dimension and alike

    def has(self, name: str) -> bool:
        return self.stored.has(name)

    def records(self, name: str, width: int, rounds: range) -> Array:
        """(rounds, agents, width)."""
        return self._read(name, len(self.agents) * width, rounds).reshape(len(rounds), len(self.agents), width)

    def scalars(self, name: str, rounds: range) -> Array:
        """(rounds,): one number a round, the same at every node."""
        return self._read(name, 1, rounds).reshape(len(rounds))

    def _read(self, name: str, width: int, rounds: range) -> Array:
        numbers = self.stored.read(name, rounds, width)
        if name != "values" and not np.isfinite(numbers).all():  # f_i alone may leave the range of numbers
            raise BadInput("DIR", str(self.path), f"finite numbers, which those of {name} are not")
        return numbers

    def state_at(self, k: int) -> dict[str, Array]:
        """At round k; of an earlier one than it ended at, x may be on record and the rest is lost."""
        if self.k == k:
            return self.state
        lost = {name: np.full_like(rows, np.nan) for name, rows in self.state.items()}
        return lost | ({"x": self.records("x", self.dimension, range(k, k + 1))[0]} if self.has("x") else {})


def completed(folders: Sequence[Path]) -> int | None:
    """Rounds that every node has completed, as their last checkpoints have it; None if one of them cannot be read.

    A node that is stopped finishes its round and writes down more than it had told.
    """
    saved = [_saved(folder) for folder in folders]
    known = [k for k in saved if k is not None]
    return min(known) if known and len(known) == len(saved) else None


def furthest(folders: Sequence[Path]) -> int:
    """The last round at which any node has saved its state; 0 where none has."""
    return max((k for folder in folders if (k := _saved(folder)) is not None), default=0)


def _saved(folder: Path) -> int | None:
    """The round of a node's last checkpoint; None where there is none, or none that can be read."""
    try:
        return int(final_state(folder)["k"])
    except (NodeFailed, OSError, ValueError, KeyError):
        return None


@dataclass(frozen=True)
class FolderRecords:
    """The files that a node appends to."""

    path: Path

    def has(self, name: str) -> bool:
        return (self.path / records_file(name)).exists()

    def read(self, name: str, rounds: range, width: int) -> Array:
        with refused("DIR", self.path, f"whole records, and those of {name} are not"):
            plain_size(self.path / records_file(name))
            try:
                return read_records(RealDisk(self.path), name, rounds, width)
            except NodeFailed as error:
                raise BadInput("DIR", str(self.path), f"whole records, but {error}") from None


@contextmanager
def refused(field: str, path: Path, wanted: str) -> Iterator[None]:
    """Whatever goes wrong with what others have written becomes one sentence."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:  # JSON, zip, NumPy and the disk raise a dozen kinds
        raise BadInput(field, str(path), f"{wanted} ({one_line(error)})") from None


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, eq=False)
class MergedRun:
    """The folders of all nodes of one run; `k` rounds are on record with every one of them."""

    nodes: list[NodeFolder]
    agents: int
    k: int

    @classmethod
    def open(cls, folders: Sequence[Path], agents: int, run_id: str, *, diverged: bool = False) -> MergedRun:
        """Every agent must be there, at the same round.

        Nodes of a run that diverged stop where they are, a few rounds apart: what all of them have is kept.
        """
        return cls.of([NodeFolder.open(path) for path in folders], agents, run_id, diverged=diverged)

    @classmethod
    def of(cls, nodes: list[NodeFolder], agents: int, run_id: str, *, diverged: bool = False) -> MergedRun:
        """The same of nodes that have been opened."""
        for node in nodes:
            if node.run_id != run_id:
                raise BadInput("DIR", str(node.path), f"records of run {run_id[:8]}…, not of {node.run_id[:8]}…")
        found = sorted(agent for node in nodes for agent in node.agents)
        if found != list(range(agents)):
            missing = sorted(set(range(agents)) - set(found))
            what = f"agent {missing[0]} is missing" if missing else "some are there twice"
            raise BadInput("DIR", len(nodes), f"folders of all {agents} agents, each once, but {what}")
        k = min(node.k for node in nodes)
        if not diverged and any(node.k != k for node in nodes):
            behind = next(node.path for node in nodes if node.k == k)
            raise BadInput("DIR", str(behind), f"nodes that ended at one round, not at {sorted({n.k for n in nodes})}")
        for node in nodes:
            if not node.fits(nodes[0]):
                raise BadInput("DIR", str(node.path), f"rows of the shape that {nodes[0].path} has")
        return cls(nodes, agents, k)

    @property
    def dimension(self) -> int:
        return self.nodes[0].dimension

    @property
    def telemetry(self) -> bool:
        """Whether every node has written down what was private."""
        return all(node.has("x") for node in self.nodes)

    @property
    def uncovered(self) -> int | None:
        """The first round that was not covered at some node."""
        return min((node.uncovered for node in self.nodes if node.uncovered is not None), default=None)

    def state(self) -> dict[str, Array]:
        """What every node has of the agents' state at round k. Exports have at most x."""
        parts = [node.state_at(self.k) for node in self.nodes]
        state = {}
        for name in (name for name in parts[0] if all(name in part for part in parts)):
            state[name] = np.empty((self.agents, *parts[0][name].shape[1:]))
            for node, part in zip(self.nodes, parts, strict=True):
                state[name][node.agents] = part[name]
        return state

    def pieces(self, section: AlgorithmSection, *, private: bool) -> Iterator[dict[str, Array]]:
        """What was sent and, if asked for, what was private: rounds 0 … k−1 of all agents, a chunk after the other."""
        count = chunk_rounds(self.agents, self.dimension)
        for first in range(0, self.k, count):
            yield self._records(section, range(first, min(first + count, self.k)), private=private)

    def _records(self, section: AlgorithmSection, rounds: range, *, private: bool) -> dict[str, Array]:
        rows = {name: self._rows(name, self.dimension, rounds) for name in section.phases}
        if not private:
            return rows
        rows |= {name: self._rows(name, self.dimension, rounds) for name in ("x", "grad", *section.noises)}
        scalars = {name: self.nodes[0].scalars(name, rounds) for name in section.scalars}
        return rows | scalars | {"values": self._rows("values", 1, rounds)[:, :, 0]}

    def _rows(self, name: str, width: int, rounds: range) -> Array:
        parts = [node.records(name, width, rounds) for node in self.nodes]  # first: what is claimed must be there
        rows = np.empty((len(rounds), self.agents, width))
        for node, part in zip(self.nodes, parts, strict=True):
            rows[:, node.agents] = part
        return rows

    def snapshot(self, experiment: Experiment, seconds: float = 0.0) -> Snapshot:
        """Where the run stands, as if it had been embedded; the records come in `pieces`, and metrics follow."""
        return Snapshot(
            k=self.k,
            since=0,
            digest=experiment.digest,
            seconds=seconds,
            diverged=False,  # whoever takes it up sees for himself
            state=self.state(),
            watched={},
            records={},
            uncovered=self.uncovered,
        )


def load_node_records(
    simulation: Simulation, folders: Sequence[Path], *, diverged: bool = False, seconds: float = 0.0
) -> None:
    """A simulation takes up what the nodes of its run did, in this many seconds."""
    merged = MergedRun.open(folders, simulation.prepared.graph.agents, simulation.run_id, diverged=diverged)
    experiment = simulation.experiment
    private = merged.telemetry and experiment.run.telemetry == "full"
    pieces = merged.pieces(experiment.algorithm, private=private)
    simulation.restore(merged.snapshot(experiment, seconds), pieces)
    if diverged and not simulation.budget.stopped_uncovered:
        simulation.convict()
