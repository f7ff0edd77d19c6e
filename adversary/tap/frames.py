"""Frames overheard on the channels of one network, put together: copies merged, contradictions kept as notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from google.protobuf.message import DecodeError

from dpp2.adversary.tap.public import Public
from dpp2.arrays import Array
from dpp2.node.codec import readable
from dpp2.node.v1 import wire_pb2

Where = tuple[str, int]  # (phase, round)


@dataclass(frozen=True)
class HeardFrame:
    """One frame between nodes: what its senders broadcast in one phase of one round, each row as d float64."""

    run: str
    round: int
    phase: str
    senders: tuple[int, ...]
    rows: tuple[bytes, ...]


def read_frame(message: bytes, public: Public) -> HeardFrame | None:
    """A message between nodes of this network, or None if it is anything else. A frame itself tells the dimension."""
    try:
        frame = wire_pb2.Frame.FromString(message)
    except DecodeError:
        return None
    senders, content = tuple(frame.senders), frame.rows
    if frame.phase not in public.phases or not _possible(senders, public):
        return None
    form = public.form(content, frame.dimension, len(senders))
    wrong = not form.dimension or frame.dimension != form.told_dimension
    if wrong or len(content) != form.size(frame.phase, senders) or not readable(frame.phase, senders, content, form):
        return None
    numbers, width = form.unpack(frame.phase, senders, content), 8 * form.dimension
    rows = tuple(numbers[at : at + width] for at in range(0, len(numbers), width))
    return HeardFrame(frame.run, frame.round, frame.phase, senders, rows)


def _possible(senders: tuple[int, ...], public: Public) -> bool:
    """Agents of one node, ascending, each once."""
    nodes = {public.node_of_agent.get(agent) for agent in senders}
    return len(nodes) == 1 and None not in nodes and all(low < high for low, high in pairwise(senders))


@dataclass
class HeardRun:
    """One run, as far as it was overheard."""

    rows: dict[tuple[str, int, int], bytes] = field(default_factory=dict)  # by (phase, round, sender)
    heard: dict[tuple[int, int], set[Where]] = field(default_factory=dict)  # by (sending node, receiving node)
    frames: int = 0
    copies: int = 0  # frames sent again after a connection broke, or recorded twice
    conflicts: set[tuple[str, int, int]] = field(default_factory=set)

    def add(self, frame: HeardFrame, source: int, destination: int | None) -> None:
        """A frame from one node to another; None where nothing tells which."""
        self.frames += 1
        for agent, row in zip(frame.senders, frame.rows, strict=True):
            key = frame.phase, frame.round, agent
            if self.rows.setdefault(key, row) != row:
                self.conflicts.add(key)
        if destination is not None:
            heard, where = self.heard.setdefault((source, destination), set()), (frame.phase, frame.round)
            self.copies += where in heard
            heard.add(where)

    @property
    def first(self) -> int:
        return min(round_ for _, round_, _ in self.rows)

    @property
    def last(self) -> int:
        return max(round_ for _, round_, _ in self.rows)

    def arrays(self, public: Public, dimension: int) -> dict[str, Array]:
        """Rounds first … last of each phase: (K, N, d), NaN where a sender was not overheard."""
        first, shape = self.first, (self.last - self.first + 1, public.agents, dimension)
        arrays = {phase: np.full(shape, np.nan) for phase in public.phases}
        for (phase, round_, agent), content in self.rows.items():
            arrays[phase][round_ - first, agent] = np.frombuffer(content, dtype="<f8")
        return arrays

    def channels(self, public: Public) -> list[tuple[int, int]]:
        return sorted(channel for nodes in self.heard for channel in public.between.get(nodes, ()))

    def gaps(self, public: Public) -> list[str]:
        """What was sent, as far as anybody can tell, and not overheard."""
        everything = {(phase, round_) for phase in public.phases for round_ in range(self.last + 1)}
        alike: dict[str, list[tuple[int, int]]] = {}
        for nodes in public.between:
            missing = everything - self.heard.get(nodes, set())
            if missing:
                alike.setdefault(_missing(missing, public.phases, len(missing) == len(everything)), []).append(nodes)
        sentences = [f"{what} {_directions(nodes)}" for what, nodes in alike.items()]
        rows = len(everything) * public.agents
        silent = rows - len(self.rows)
        if silent:
            sentences.append(f"{silent} of {rows} rows, each one phase of one agent's round, were heard on no channel")
        return sentences

    def notes(self, public: Public) -> list[str]:
        found = []
        if self.conflicts:
            found.append(f"{len(self.conflicts)} rows came with different bytes; the first copy of each was kept")
        if self.last + 1 < public.rounds:
            found.append(f"the experiment asks for {public.rounds} rounds; the last one overheard is {self.last}")
        return found


def _missing(missing: set[Where], phases: Iterable[str], all_of_it: bool) -> str:
    if all_of_it:
        return "nothing was overheard"
    by_phase = {phase: ranges(round_ for name, round_ in missing if name == phase) for phase in phases}
    if len(set(by_phase.values())) == 1:
        return f"rounds {next(iter(by_phase.values()))} were not overheard"
    parts = [f"{phase} of rounds {text}" for phase, text in by_phase.items() if text]
    return " and ".join(parts) + " were not overheard"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as a reader wants them.

    >>> ranges([3, 4, 5, 9])
    '3 to 5, 9'
    """
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in found)


def _directions(nodes: list[tuple[int, int]], most: int = 6) -> str:
    listed = ", ".join(f"{source} → {destination}" for source, destination in nodes[:most])
    return f"between nodes {listed}" + (f" and {len(nodes) - most} more" if len(nodes) > most else "")


def main_run(found: dict[tuple[str, int], HeardRun]) -> tuple[tuple[str, int], list[str]]:
    """The run and dimension that most frames speak of, and sentences about the others, which are left out."""
    sizes = Counter({key: overheard.frames for key, overheard in found.items()})
    (chosen, _), *others = sizes.most_common()
    said = [f"{count} frames of run {run[:8]}… with dimension {d} were left out" for (run, d), count in others]
    return chosen, said
