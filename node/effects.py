"""What a round machine wants done. Whoever runs it carries effects out in the order in which they come.

The order is the crash safety: a digest is in the journal before its frame leaves, and the records of a round are
written before the state that rests on them can be saved. Tuples, since a round makes half a dozen of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dpp2.arrays import Array
from dpp2.edge_keys import Hello


class JournalEntry(NamedTuple):
    """Note what is about to leave."""

    round: int
    phase: int  # its place among the phases, from 1 on
    digest: bytes  # of the rows and of everything that they rest on


class Send(NamedTuple):
    """One frame for neighbouring nodes that get the same rows."""

    nodes: tuple[int, ...]
    round: int
    frame: bytes


class Record(NamedTuple):
    """A round is over: append its rows to the records."""

    rows: Mapping[str, Any]  # by name; one number may stand for all


class KeepHellos(NamedTuple):
    """The run rests on these from now on: write them down before anything leaves."""

    hellos: Mapping[int, Hello]  # by agent


class NoteUncovered(NamedTuple):
    """Float64 does not carry the noise of this round: write that down before anything of it leaves."""

    round: int


class SaveCheckpoint(NamedTuple):
    """Begin to write a checkpoint. Rounds go on meanwhile; `RoundMachine.saved` hears when it is durable."""

    k: int
    state: Mapping[str, Array]
    saved: int  # the round of the checkpoint before


class Finished(NamedTuple):
    """Every round is over and durable."""


class Failed(NamedTuple):
    """The run cannot go on. What was decided before stands."""

    error: Exception


Effect = KeepHellos | JournalEntry | Send | Record | NoteUncovered | SaveCheckpoint | Finished | Failed
