"""Writes down what a run does, round by round, into arrays that are allocated once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpp2.algorithms.base import AlgorithmSection, Private
from dpp2.arrays import Array
from dpp2.metrics import COLUMNS, Map, measure
from dpp2.records import Records

if TYPE_CHECKING:
    from dpp2.weights import Matrix


_DENSE_UP_TO = 5000  # agents; a larger P is recorded as a sparse matrix: P_data, P_indices, P_indptr
_SPARSE = ("data", "indices", "indptr")


class Recorder:
    """Observation (what was sent), truth (what was private) and metrics of up to `rounds` rounds.

    Observation and truth are kept apart from the start: whoever attacks is handed the one and never the other.
    """

    def __init__(
        self,
        section: AlgorithmSection,
        shape: tuple[int, int, int],
        bytes_per_round: int,
        epsilon: Array,
        *,
        truth: bool,
        observation: bool,
    ) -> None:
        self.rounds = shape[0]
        self.bytes_per_round = bytes_per_round
        sent = section.phases if observation else ()
        private = ("x", "grad", *section.noises) if truth else ()
        # One allocation for all of them: above a few MB the kernel backs it with huge pages, and a round then does not
        # pay for half a dozen page faults.
        arrays = iter(np.empty((len(sent) + len(private), *shape)))
        self.sent_arrays = {phase: next(arrays) for phase in sent}
        self.private_arrays = {name: next(arrays) for name in private}
        self.scalars = {name: np.empty(self.rounds) for name in (section.scalars if truth else ())}
        self._epsilon = epsilon
        self._table = np.zeros((self.rounds + 1, len(COLUMNS)))
        self.columns = dict(zip(COLUMNS, self._table.T, strict=True))

    def record_sent(self, k: int, phase: str, rows: Array) -> None:
        """A phase of round k, as every channel carried it."""
        if self.sent_arrays:
            self.sent_arrays[phase][k] = rows

    def record_private(self, k: int, x: Sequence[Array], private: Sequence[Private]) -> None:
        """What round k kept to itself, block by block."""
        if not self.private_arrays:
            return
        first = 0
        for block, own in zip(x, private, strict=True):
            rows = slice(first, first + len(block))
            for name, value in {"x": block, "grad": own.grad, **own.noise}.items():
                self.private_arrays[name][k, rows] = value
            first = rows.stop
        for name, number in private[0].scalars.items():
            self.scalars[name][k] = number

    def record_metrics(self, k: int, x: Sequence[Array], private: Sequence[Private], each: Map = map) -> float:
        """The metrics of x^k; returns its gap. Row k describes x^k, so its bytes are those of the round before."""
        consensus, stationarity, objective = measure(x, [p.values for p in private], [p.grad for p in private], each)
        gap = consensus + stationarity
        sent = self.bytes_per_round if k else 0
        self._table[k] = (k, gap, consensus, stationarity, objective, self._epsilon[k], sent)
        return gap

    def record_unmeasured(self, first: int, last: int) -> None:
        """Rows first … last−1, of which nobody knows the x: their metrics are nan, but for what is public."""
        rounds = np.arange(first, last)
        public = {"round": rounds, "epsilon": self._epsilon[first:last], "bytes": (rounds > 0) * self.bytes_per_round}
        for name, column in self.columns.items():
            column[first:last] = public.get(name, np.nan)

    def metrics(self, k: int) -> Records:
        """Rows 0 … k."""
        return Records({name: column[: k + 1] for name, column in self.columns.items()})

    def observation(self, k: int, P: Matrix) -> Records | None:
        """Rounds 0 … k−1 as a global eavesdropper has them, and P."""
        if not self.sent_arrays:
            return None
        dense = P.shape[0] <= _DENSE_UP_TO
        weights = {"P": P.toarray()} if dense else {f"P_{part}": getattr(P, part) for part in _SPARSE}
        return Records({phase: array[:k] for phase, array in self.sent_arrays.items()} | weights)

    def truth(self, k: int) -> Records | None:
        if not self.private_arrays:
            return None
        return Records({name: array[:k] for name, array in (self.private_arrays | self.scalars).items()})

    def slice(self, first: int, last: int) -> dict[str, Array]:
        """Everything recorded in rounds first … last−1, for a checkpoint."""
        arrays = self.sent_arrays | self.private_arrays | self.scalars
        metrics = {f"metrics.{name}": column for name, column in self.columns.items()}
        return {name: array[first:last] for name, array in (arrays | metrics).items()}

    def restore(self, first: int, records: dict[str, Array]) -> None:
        """Put back what `slice` gave."""
        for name, array in self.slice(first, first + len(records["metrics.round"])).items():
            array[...] = records[name]
