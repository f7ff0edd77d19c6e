"""Writes down what a run does, round by round, into arrays that are allocated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpp2.algorithms.base import AlgorithmSection, Private
from dpp2.arrays import Array
from dpp2.metrics import COLUMNS, Map, measure
from dpp2.prepared import PreparedRun
from dpp2.privacy import Unsupported
from dpp2.privacy.account import Account
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
        """`epsilon` is spent before each of the rounds 0 … K."""
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

    @classmethod
    def of(cls, prepared: PreparedRun, account: Account, dimension: int, *, record: bool = True) -> Recorder:
        """For all rounds of a run; the truth is kept where telemetry asks for it."""
        run, section, graph = prepared.experiment.run, prepared.experiment.algorithm, prepared.graph
        bytes_per_round = section.round_bytes(graph.degrees, dimension)
        truth = record and run.telemetry == "full"
        spent = _epsilon_column(account, run.rounds)
        shape = (run.rounds, graph.agents, dimension)
        return cls(section, shape, bytes_per_round, spent, truth=truth, observation=record)

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

    def uncover(self, k: int) -> None:
        """Float64 does not carry the noise of round k: whatever is spent from there on is without bound."""
        self._epsilon[k + 1 :] = np.inf

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
        """Everything recorded in rounds first … last−1, for a snapshot."""
        arrays = self.sent_arrays | self.private_arrays | self.scalars
        metrics = {f"metrics.{name}": column for name, column in self.columns.items()}
        return {name: array[first:last] for name, array in (arrays | metrics).items()}

    def restore(self, k: int, records: Mapping[str, Array]) -> None:
        """Put back what `slice` gave of rounds 0 … k−1; nodes have written down f_i(x_i) instead of metrics."""
        measured = "metrics.gap" in records
        for name, array in self.slice(0, k).items():
            if measured or not name.startswith("metrics."):
                array[...] = records[name]
        if not measured:
            self._measure(k, records.get("values"))

    def _measure(self, rounds: int, values: Array | None) -> None:
        """Metrics of recorded rounds, where x and the gradients are on record."""
        if values is None or not self.private_arrays:
            self.record_unmeasured(0, rounds)
            return
        x, grad = self.private_arrays["x"], self.private_arrays["grad"]
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverged
            for k in range(rounds):
                self.record_metrics(k, [x[k]], [Private(values[k], grad[k], {}, {})])


def _epsilon_column(account: Account, rounds: int) -> Array:
    """ε before each of the rounds 0 … K: nothing at x⁰; inf beyond float64, nan without an account."""
    curve = account.curve(rounds)
    spent = np.full(rounds, np.nan) if isinstance(curve, Unsupported) else curve.values
    return np.concatenate([[0.0], spent])
