"""From an experiment to a result: advance round by round, measure, stop on divergence.

`Simulation` can be advanced in pieces and restored from a snapshot, which is what progress bars and resumed runs need;
`dpp2.run` does it in one go. Pure: the experiment's own files are read, nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dpp2.algorithms.base import AlgorithmSection
from dpp2.arrays import Array, within
from dpp2.budget import RunBudget
from dpp2.embedded import BLOCK, EmbeddedDriver, QuietRun, in_blocks
from dpp2.experiment import Experiment
from dpp2.prepared import PreparedRun
from dpp2.privacy import Ledger
from dpp2.privacy.account import Account
from dpp2.privacy.ledger import Allowance
from dpp2.recorder import Recorder
from dpp2.records import Records
from dpp2.result import PrivacyReport, Result
from dpp2.stability import HOPELESS, Divergence, DivergenceDetector

if TYPE_CHECKING:
    from dpp2.weights import Matrix


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Where a run stands after `k` rounds, and what was recorded in the rounds since … k−1."""

    k: int
    since: int
    digest: str  # of the experiment
    seconds: float
    diverged: bool
    state: Mapping[str, Array]  # every state variable over all agents
    watched: Mapping[str, Array]  # what the detector of divergence remembers
    records: Mapping[str, Array]
    uncovered: int | None = None  # the first round whose noise float64 did not carry
    data: str = ""  # digest of the data that came from outside; empty where there are none, or nobody here knows them


class Simulation:
    """An embedded run that can be advanced in pieces, and that goes on from any snapshot of itself."""

    def __init__(
        self,
        experiment: Experiment | PreparedRun,
        *,
        record: bool = True,
        ledgers: Sequence[Ledger] | None = None,
        block: int = BLOCK,
        to_disk: bool = False,
    ) -> None:
        """`ledgers`, one per agent, hold what earlier runs spent on the same data (none: nothing).

        `to_disk`: `recorder.keep_in` will be told who keeps records that are too large to be held.
        """
        self.prepared = experiment if isinstance(experiment, PreparedRun) else PreparedRun.of(experiment)
        self.experiment = self.prepared.experiment
        hosted = in_blocks(self.prepared, block)
        self.budget = RunBudget(hosted, self.run_id)
        unspent = self.budget.fresh_ledgers() if self.account.budget else []
        self.budget.allow(unspent if ledgers is None else ledgers)
        self.driver = EmbeddedDriver.of(hosted)
        self._data = "".join(block.data_digest.hex() for block in hosted)
        self.recorder = Recorder.of(self.prepared, self.account, self.driver.dimension, record=record, to_disk=to_disk)
        self._largest = self.experiment.run.largest
        algorithm = self.experiment.algorithm
        self.detector = DivergenceDetector(_Watched(algorithm, self.driver, self.prepared.P), algorithm.period)
        self._when_uncovered: Callable[[RunBudget], None] = lambda budget: None
        self.k, self.seconds = 0, 0.0
        start = np.sum([rows.sum(axis=0) for rows in self.driver.x], axis=0) / self.prepared.graph.agents
        self.experiment.problem.check_report(start)

    @property
    def run_id(self) -> str:
        return self.prepared.run_id

    @property
    def account(self) -> Account:
        return self.budget.account

    @property
    def allowance(self) -> Allowance:
        return self.budget.allowance

    @property
    def divergence(self) -> Divergence | None:
        return self.detector.divergence

    @property
    def remaining(self) -> int:
        """Rounds still to run; none once the run has diverged or the budget is used up."""
        return 0 if self.divergence else max(self.allowance.rounds - self.k, 0)

    @property
    def gap(self) -> float:
        """The gap that was measured last."""
        return float(self.recorder.columns["gap"][max(self.k - 1, 0)])

    def advance(self, rounds: int) -> None:
        """Run up to this many further rounds, fewer if the run ends or diverges."""
        began = time.perf_counter()
        last = self.k + min(rounds, self.remaining)
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # overflow is what divergence looks like; it is reported
                while self.k < min(last, self.allowance.rounds) and not self.divergence:
                    try:
                        self._round(self.k)
                    except _TooLarge:
                        self.convict()
        finally:
            self.budget.k = self.k
            self.seconds += time.perf_counter() - began

    def convict(self) -> None:
        """The next round would send more than `run.largest_value`: nobody runs it, here or over a network."""
        why = f"what round {self.k} would send exceeds run.largest_value = {self._largest:.4g}"
        self.detector.convict(max(self.k - 1, 0), self.driver.x, why)  # found after the last round that was run

    def _sent(self, k: int, phase: str, rows: Array) -> None:
        if not within(rows, self._largest):
            raise _TooLarge
        self.recorder.record_sent(k, phase, rows)

    def _round(self, k: int) -> None:
        # A function of its own, so that what a round kept private is let go before the next one begins.
        x = self.driver.x
        strict = self.budget.stops_uncovered
        private = self.driver.round(k, partial(self._sent, k), only_covered=strict)
        if not self.driver.covered and self.budget.uncovered is None:
            self.budget.k = k
            self._uncover(k)
            self._when_uncovered(self.budget)
        if not private:
            return
        self.recorder.record_private(k, x, private)
        gap = self.recorder.record_metrics(k, x, private, self.driver.each)
        self.k = k + 1
        if k % self.detector.every == 0 or not gap < HOPELESS:
            self.detector.check(self.recorder.columns["gap"], k, x)

    def tell_uncovered(self, told: Callable[[RunBudget], None]) -> None:
        """Whoever keeps accounts hears at once of a round that is not covered."""
        self._when_uncovered = told

    def _uncover(self, k: int) -> None:
        self.budget.uncover(k)
        self.recorder.uncover(k)

    def snapshot(self, since: int = 0) -> Snapshot:
        """Where the run stands, with the records of rounds `since` … k−1. What it does not hold is with the keeper."""
        self.recorder.flush(self.k)
        return Snapshot(
            k=self.k,
            since=since,
            digest=self.experiment.digest,
            seconds=self.seconds,
            diverged=self.divergence is not None,
            state=Records(self.driver.state()),
            watched=Records(self.detector.state()),
            records=Records(self.recorder.slice(since, self.k)),
            uncovered=self.budget.uncovered,
            data=self._data,
        )

    def restore(self, snapshot: Snapshot, pieces: Iterable[Mapping[str, Array]] | None = None) -> None:
        """Stand where a snapshot of this run was taken. If nodes have run it, `pieces` are their records, in order."""
        self.driver.restore(snapshot.state)
        if snapshot.watched:
            self.detector.restore(snapshot.watched)
        self.k = self.budget.k = snapshot.k
        if snapshot.uncovered is not None:
            self._uncover(snapshot.uncovered)
        if pieces is None:
            self.recorder.restore(snapshot.k, snapshot.records)
        else:
            self.recorder.take(pieces)
        self.seconds = snapshot.seconds

    def result(self) -> Result:
        """The result so far. The gap at the last x takes one more gradient, which no round has paid for."""
        x = self.driver.x
        with np.errstate(over="ignore", invalid="ignore"):
            self.recorder.record_metrics(self.k, x, self.driver.evaluate())
            if not self.divergence:
                self.detector.check(self.recorder.columns["gap"], self.k, x)
        mean = np.concatenate(x).mean(axis=0)
        return Result(
            experiment=self.experiment,
            run_id=self.run_id,
            x=np.concatenate(x),
            metrics=self.recorder.metrics(self.k),
            observation=self.recorder.observation(self.k, self.prepared.P) or Records({}),
            truth=self.recorder.truth(self.k) or Records({}),
            divergence=self.divergence,
            conditions=self.prepared.conditions(self.driver.smoothness),
            report=self.experiment.problem.report(mean) if np.isfinite(mean).all() else {},
            privacy=self._privacy(),
            seconds=self.seconds,
        )

    def _privacy(self) -> PrivacyReport:
        """The account of the rounds that were run."""
        uncovered = self.budget.stops_uncovered and self.budget.uncovered is not None  # nodes end some rounds apart
        stopped = self.allowance.reason if uncovered or self.k == self.allowance.rounds else None
        spent, claimed = self.account.epsilon(self.k), self.account.paper_epsilon(self.k)
        diverged = self.divergence is not None and self.k < self.allowance.rounds
        return PrivacyReport(spent, claimed, stopped, self.account.notes_after(diverged=diverged))


class _TooLarge(Exception):
    """A round wants to send numbers beyond the bound."""


@dataclass(frozen=True, eq=False)
class _Watched:
    """What the detector of divergence asks of an embedded run."""

    section: AlgorithmSection
    driver: EmbeddedDriver
    P: Matrix

    def trial(self, k: int) -> QuietRun:
        return QuietRun(self.driver, k)

    def spectral_radius(self, x: Array) -> float:
        return self.section.spectral_radius(self.driver.gradient, self.P, x)

    def instability(self, x: Array, k: int) -> Divergence | None:
        return self.section.instability(self.driver.gradient, self.P, x, k)
