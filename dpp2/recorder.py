"""Writes down what a run does, round by round, into arrays that are allocated once: for all rounds, or for a chunk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpp2.algorithms.base import AlgorithmSection, Private
from dpp2.arrays import Array
from dpp2.metrics import COLUMNS, Map, measure
from dpp2.prepared import PreparedRun
from dpp2.privacy import Unsupported
from dpp2.privacy.account import Account
from dpp2.records import Records
from dpp2.streaming import Keeper, chunk_rounds, streams

if TYPE_CHECKING:
    from dpp2.weights import Matrix


_DENSE_UP_TO = 5000  # agents; a larger P is recorded as a sparse matrix: P_data, P_indices, P_indptr
_SPARSE = ("data", "indices", "indptr")


class Recorder:
    """Observation (what was sent), truth (what was private) and metrics of up to `rounds` rounds.

    Observation and truth are kept apart from the start: whoever attacks is handed the one and never the other. With a
    `window` only so many rounds of them are held at a time, and a keeper (`keep_in`) has those before.
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
        window: int | None = None,
    ) -> None:
        """`epsilon` is spent before each of the rounds 0 … K."""
        self.rounds, self.streamed = shape[0], window is not None
        self.window = self.rounds if window is None else window
        self._keeper: Keeper | None = None
        self._first = self._kept = 0  # the round in the first row of the window; rounds that the keeper has
        self.bytes_per_round = bytes_per_round
        sent = section.phases if observation else ()
        private = ("x", "grad", *section.noises) if truth else ()
        # One allocation for all of them: above a few MB the kernel backs it with huge pages, and a round then does not
        # pay for half a dozen page faults.
        arrays = iter(np.empty((len(sent) + len(private), self.window, *shape[1:])))
        self.sent_arrays = {phase: next(arrays) for phase in sent}
        self.private_arrays = {name: next(arrays) for name in private}
        self.scalars = {name: np.empty(self.rounds) for name in (section.scalars if truth else ())}
        self._epsilon = epsilon
        self._table = np.zeros((self.rounds + 1, len(COLUMNS)))
        self.columns = dict(zip(COLUMNS, self._table.T, strict=True))

    @property
    def bytes_on_disk(self) -> int:
        """Of what the keeper will have got in the end."""
        arrays = (self.sent_arrays | self.private_arrays).values() if self.streamed else ()
        return sum(array.nbytes // self.window * self.rounds for array in arrays)

    @classmethod
    def of(
        cls, prepared: PreparedRun, account: Account, dimension: int, *, record: bool = True, to_disk: bool = False
    ) -> Recorder:
        """For all rounds of a run; the truth is kept where telemetry asks for it.

        `to_disk`: a keeper will be there, so that large records need not be held.
        """
        run, section, graph = prepared.experiment.run, prepared.experiment.algorithm, prepared.graph
        bytes_per_round = section.round_bytes(graph.degrees, dimension)
        record = record and run.records != "none"
        truth = record and run.telemetry == "full"
        spent = _epsilon_column(account, run.rounds)
        shape = (run.rounds, graph.agents, dimension)
        arrays = record * len(section.phases) + truth * (2 + len(section.noises))
        streamed = to_disk and record and streams(run.records, 8 * arrays * math.prod(shape))
        window = chunk_rounds(graph.agents, dimension) if streamed else None
        return cls(section, shape, bytes_per_round, spent, truth=truth, observation=record, window=window)

    def keep_in(self, keeper: Keeper) -> None:
        """Who takes the rounds that the window has no room for."""
        self._keeper = keeper

    def flush(self, k: int) -> None:
        """Rounds 0 … k−1 are with the keeper, if there is one."""
        if self._keeper is not None and k > self._kept:
            if k > self._first:
                self._keeper.write(self._first, self._rows(k - self._first))
            self._keeper.commit(k)
            self._kept = k

    def _row(self, k: int) -> int:
        """Where round k lies in the window, which moves on when it is full."""
        if k - self._first >= self.window:
            assert self._keeper is not None, "whoever records more rounds than the window holds has a keeper"
            if self._kept < self._first + self.window:
                self._keeper.write(self._first, self._rows(self.window))
            self._first += self.window
        return k - self._first

    def _rows(self, count: int) -> dict[str, Array]:
        return {name: array[:count] for name, array in (self.sent_arrays | self.private_arrays).items()}

    def record_sent(self, k: int, phase: str, rows: Array) -> None:
        """A phase of round k, as every channel carried it."""
        if self.sent_arrays:
            self.sent_arrays[phase][self._row(k)] = rows

    def record_private(self, k: int, x: Sequence[Array], private: Sequence[Private]) -> None:
        """What round k kept to itself, block by block."""
        if not self.private_arrays:
            return
        first, row = 0, self._row(k)
        for block, own in zip(x, private, strict=True):
            rows = slice(first, first + len(block))
            for name, value in {"x": block, "grad": own.grad, **own.noise}.items():
                self.private_arrays[name][row, rows] = value
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
        """Rounds 0 … k−1 as a global eavesdropper has them, and P; None where the keeper has them."""
        if self.streamed or not self.sent_arrays:
            return None
        return Records({phase: array[:k] for phase, array in self.sent_arrays.items()} | recorded_weights(P))

    def truth(self, k: int) -> Records | None:
        if self.streamed or not self.private_arrays:
            return None
        return Records({name: array[:k] for name, array in (self.private_arrays | self.scalars).items()})

    def last_sent(self, k: int) -> list[Array]:
        """What was sent in round k−1, the last one."""
        return [array[k - 1 - self._first] for array in self.sent_arrays.values()] if k else []

    def slice(self, first: int, last: int) -> dict[str, Array]:
        """Everything recorded in rounds first … last−1, for a snapshot, but for what the keeper has."""
        arrays = {} if self.streamed else self.sent_arrays | self.private_arrays
        metrics = {f"metrics.{name}": column for name, column in self.columns.items()}
        return {name: array[first:last] for name, array in (arrays | self.scalars | metrics).items()}

    def restore(self, k: int, records: Mapping[str, Array]) -> None:
        """Put back what `slice` gave of rounds 0 … k−1, and of what the keeper has the chunk that is not full."""
        for name, array in self.slice(0, k).items():
            array[...] = records[name]
        if self._keeper is not None:
            self._first, self._kept = k - k % self.window, k
            for name, rows in self._keeper.read(self._first, k).items():
                (self.sent_arrays | self.private_arrays)[name][: len(rows)] = rows

    def take(self, pieces: Iterable[Mapping[str, Array]]) -> None:
        """What nodes have written down, at most a chunk at a time: f_i(x_i), from which metrics follow, among it."""
        first = self._first = self._kept = 0
        for piece in pieces:
            last = first + max(map(len, piece.values()))
            row = self._row(first)
            for name, array in (self.sent_arrays | self.private_arrays).items():
                array[row : row + last - first] = piece[name]
            for name, numbers in self.scalars.items():
                numbers[first:last] = piece[name]
            self._measure(first, last, piece)
            first = last

    def _measure(self, first: int, last: int, piece: Mapping[str, Array]) -> None:
        """Metrics of recorded rounds, where x and the gradients are on record."""
        if "values" not in piece:
            self.record_unmeasured(first, last)
            return
        of_round = zip(range(first, last), piece["x"], piece["values"], piece["grad"], strict=True)
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverged
            for k, x, values, grad in of_round:
                self.record_metrics(k, [x], [Private(values, grad, {}, {})])


def recorded_weights(P: Matrix) -> dict[str, Array]:
    """P as it is written down: by the name of the array."""
    if P.shape[0] <= _DENSE_UP_TO:
        return {"P": P.toarray()}
    return {f"P_{part}": getattr(P, part) for part in _SPARSE}


def _epsilon_column(account: Account, rounds: int) -> Array:
    """ε before each of the rounds 0 … K: nothing at x⁰; inf beyond float64, nan without an account."""
    curve = account.curve(rounds)
    spent = np.full(rounds, np.nan) if isinstance(curve, Unsupported) else curve.values
    return np.concatenate([[0.0], spent])
