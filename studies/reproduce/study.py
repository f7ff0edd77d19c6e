"""What a study is: many runs, claims judged by them, files, and a document; and how one is asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Self, TypeVar

from dpp2.studies.parallel import Counted
from dpp2.studies.tables import TextTable

Progress = Callable[[int, int, str], None]  # runs done, of how many, what they are for
Files = Mapping[str, Path]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, whether it held here, and the numbers behind that."""

    claim: str
    held: bool | None  # None: too few rounds were run to judge it
    evidence: str

    @property
    def word(self) -> str:
        return {True: "held", False: "DID NOT HOLD", None: "not judged"}[self.held]


@dataclass(frozen=True)
class Order:
    """How much is to be run, and where."""

    seeds: int
    rounds: int
    executor: str | None = None
    progress: Progress = field(default=lambda done, total, what: None)

    def counted(self, what: str = "runs") -> Counted:
        return lambda done, total: self.progress(done, total, what)


class Study(ABC, Generic[Made]):
    """`Made` is what its runs leave: everything else is made of that."""

    seeds: int = 3  # unless others are asked for
    quick_seeds: int = 1
    rounds: int  # enough to see what the paper says, unless others are asked for

    asked: int | None = None  # rounds, if others were asked for

    @abstractmethod
    def run(self, order: Order) -> Made: ...

    def of(self, rounds: int | None) -> Self:
        """The same study with so many rounds."""
        other = copy(self)
        other.asked = rounds
        return other

    def claims(self, made: Made) -> list[Claim]:
        """The claims as far as they can be judged: what a figure shows in the end, half of its rounds do not."""
        found, asked = self.judge(made), self.asked
        if asked is None or asked >= self.rounds:
            return list(found)
        few = f"{asked} of the {self.rounds} rounds that it takes were run"
        return [replace(claim, held=None, evidence=f"{few}: {claim.evidence}") for claim in found]

    def judge(self, made: Made) -> Sequence[Claim]:
        return ()

    @abstractmethod
    def write(self, made: Made, out: Path) -> Files:
        """Files by what they hold, in a folder that exists."""

    @abstractmethod
    def document(self, made: Made, files: Files) -> object:
        """What `--json` prints."""

    def table(self, made: Made) -> TextTable | None:
        return None
