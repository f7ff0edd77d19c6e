"""What a study is: many runs, claims judged by them, files, and a document; and how one is asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from studies.parallel import Counted
from studies.tables import TextTable

Progress = Callable[[int, int, str], None]  # runs done, of how many, what they are for
Files = Mapping[str, Path]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, whether it held here, and the numbers behind that."""

    claim: str
    held: bool
    evidence: str


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

    @abstractmethod
    def run(self, order: Order) -> Made: ...

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
