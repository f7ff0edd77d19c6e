"""What a benchmark is: it measures, and shows what it measured beside its goals. Ratios count, taken in one run."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from dpp2.studies.tables import TextTable

Note = Callable[[str], None]  # hears what is being measured
Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Bench:
    """How a benchmark is asked for."""

    note: Note = field(default=lambda what: None)
    disropt: str = sys.executable  # a Python with DISROPT and mpi4py, for benchmarks that set it beside
    sizes: tuple[int, ...] = ()  # numbers of agents, for benchmarks that take them; none: their own


class Benchmark(ABC, Generic[Measured]):
    sets_disropt_beside: ClassVar[bool] = False
    takes_sizes: ClassVar[bool] = False

    @abstractmethod
    def measure(self, asked: Bench) -> Measured: ...

    @abstractmethod
    def table(self, measured: Measured) -> TextTable: ...

    def document(self, measured: Measured) -> object:
        """What `--json` prints."""
        return measured
