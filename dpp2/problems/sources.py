"""Which data an objective was made of: digests of what was read, taken once, from the very values that are used.

A ledger is kept under them and the noise key rests on them. A file that changes later changes neither, and a file that
says the same in another way (a line break, another format) is the same data.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dpp2.arrays import Array


@dataclass(frozen=True)
class Source:
    """One agent's data from outside."""

    digest: bytes  # of what is computed with
    known_as: tuple[str, ...] = ()  # other names under which a ledger may have the same data


@runtime_checkable
class FromOutside(Protocol):
    """What objectives offer whose data the experiment does not determine; without sources it does."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """One for each owned agent."""


def sources_of(objective: object) -> tuple[Source, ...]:
    """Of the data as they were read; none where the experiment draws them."""
    return objective.sources if isinstance(objective, FromOutside) else ()


def source_of_arrays(features: Array, labels: Array, content: bytes) -> Source:
    """By value: names, shapes and little-endian float64, where −0 is 0. `content` is the file that held them.

    Ledgers of format 1 know the data by the bytes of the file.
    """
    digest = hashlib.sha256(b"dpp2 data 1")
    for name, values in (("features", features), ("labels", labels)):
        digest.update(f" {name} <f8 {values.shape} ".encode())
        digest.update((values + 0.0).astype("<f8").tobytes())
    return Source(digest.digest(), (hashlib.sha256(hashlib.sha256(content).digest()).hexdigest(),))


def source_of_program(program: bytes, agent: int) -> Source:
    """By its bytes, and by what Python reads in them: comments and layout make no other program.

    What the program reads elsewhere is not seen: `problem.dataset` names it.
    """
    parsed = hashlib.sha256(ast.dump(ast.parse(program)).encode()).hexdigest()
    return Source(hashlib.sha256(program).digest(), (f"program {parsed} of agent {agent}",))
