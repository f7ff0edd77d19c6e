"""How far a comparison is: runs that are done, of all that will be. Whoever shows both tells the time that is left."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Made = TypeVar("Made")

Progress = Callable[[int, int, str], None]  # (runs done, of how many, what is being done)


@dataclass(eq=False)
class Tally:
    """Runs of the whole; ranges that have to be wider make more of them on the way."""

    total: int
    show: Progress
    done: int = 0

    def phase(self, note: str, runs: int, planned: int = 0) -> Callable[[int, int], None]:
        """What to call as jobs of a phase end. They take `runs`; the rest of what was planned is kept from before."""
        self.total += max(runs - planned, 0)
        self.done += max(planned - runs, 0)
        before = self.done
        self.done += runs
        self.show(before, self.total, note)
        return lambda done, jobs: self.show(before + runs * done // jobs, self.total, note)


@dataclass(frozen=True)
class Timed(Generic[Made]):
    """What was made, and the seconds of a processor that it took."""

    made: Made
    seconds: float

    @classmethod
    def of(cls, make: Callable[[], Made]) -> Timed[Made]:
        began = time.thread_time()
        made = make()
        return cls(made, time.thread_time() - began)


def mixed(numbers: Iterable[int]) -> list[int]:
    """Long jobs and short ones in turn, always in the same order: then what is done tells how long the rest takes."""
    found = list(numbers)
    random.Random(0).shuffle(found)
    return found
