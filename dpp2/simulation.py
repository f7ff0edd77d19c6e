"""From an experiment to a result: advance round by round, measure, stop on divergence.

`Simulation` can be advanced in pieces and restored from a snapshot, which is what progress bars and resumed runs need;
`run` does it in one go. Pure: the experiment's own files are read, nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpp2.algorithms.base import Private
from dpp2.arrays import Array
from dpp2.embedded import BLOCK
from dpp2.experiment import Experiment
from dpp2.metrics import measure
from dpp2.prepared import PreparedRun, Secrets
from dpp2.privacy import Epsilon, Ledger, PaperEpsilon, Unsupported
from dpp2.privacy.account import Account
from dpp2.recorder import Recorder
from dpp2.records import Records
from dpp2.stability import HOPELESS, WATCH_EVERY, Divergence, DivergenceDetector
from dpp2.theory import Condition


@dataclass(frozen=True)
class PrivacyReport:
    """What the run cost its worst-off agent, what the paper would say, and what makes either void."""

    epsilon: Epsilon | Unsupported
    paper_epsilon: PaperEpsilon | Unsupported
    stopped: str | None  # why the budget ended the run early
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Result:
    """What a run produced. `x` is x^K, one row per agent; records that were not asked for are None."""

    experiment: Experiment
    run_id: str
    x: Array
    metrics: Records
    observation: Records | None
    truth: Records | None
    divergence: Divergence | None
    conditions: list[Condition]
    report: dict[str, float]
    privacy: PrivacyReport
    seconds: float

    @property
    def diverged(self) -> bool:
        return self.divergence is not None

    @property
    def rounds(self) -> int:
        """Rounds that were run: fewer than asked for when the run diverged."""
        return len(self.metrics.gap) - 1

    @property
    def rounds_per_second(self) -> float:
        return self.rounds / max(self.seconds, 1e-9)


def run(experiment: Experiment | None = None, *, record: bool = True) -> Result:
    """Run an experiment (none: the paper's) in this process and return its result.

    `record=False` keeps neither observation nor truth, for runs too large to write down.

    >>> result = run(Experiment.load(overrides=["network.agents=5", "network.topology=ring", "run.rounds=3"]))
    >>> result.observation.y.shape
    (3, 5, 10)
    """
    simulation = Simulation(experiment or Experiment.load(), record=record)
    simulation.advance(simulation.remaining)
    return simulation.result()


class Simulation:
    """An embedded run that can be advanced in pieces."""

    def __init__(
        self,
        experiment: Experiment,
        *,
        record: bool = True,
        secrets: Secrets | None = None,
        ledgers: Sequence[Ledger] | None = None,
        block: int = BLOCK,
    ) -> None:
        """`ledgers`, one per agent, hold what earlier runs spent on the same data (none: nothing)."""
        self.prepared = PreparedRun.of(experiment, secrets)
        self.experiment = self.prepared.experiment
        self.driver = self.prepared.driver(block)
        section, graph = self.experiment.algorithm, self.prepared.graph
        shape = (self.experiment.run.rounds, graph.agents, self.driver.dimension)
        bytes_per_round = section.round_bytes(graph.degrees, self.driver.dimension)
        truth = record and self.experiment.run.telemetry == "full"
        smoothness = np.concatenate([block.program.objective.smoothness for block in self.driver.blocks])
        self.account = Account.of(self.experiment, smoothness, self.driver.dimension)
        self.bound = float(smoothness.max())
        self.k = 0
        self.allow(ledgers if ledgers is not None else self.fresh_ledgers() if self.account.budget else [])
        spent = epsilon_column(self.account, shape[0])
        self.recorder = Recorder(section, shape, bytes_per_round, spent, truth=truth, observation=record)
        self.detector = DivergenceDetector(
            partial(section.instability, self.driver.gradient, self.prepared.P), self.continued
        )
        self.seconds = 0.0

    @property
    def run_id(self) -> str:
        return self.prepared.secrets.run_id

    @property
    def divergence(self) -> Divergence | None:
        return self.detector.divergence

    def fresh_ledgers(self) -> list[Ledger]:
        """One empty ledger per agent; none where no account is kept."""
        return [Ledger(str(i), self.prepared.data_identity(i)) for i in range(len(self.account.mechanisms))]

    def allow(self, ledgers: Sequence[Ledger]) -> None:
        """Set how far the budget lets this run go: it stops before the round that would exceed it."""
        run_id, wanted = self.run_id, self.experiment.run.rounds
        self.allowance = self.account.allowance(ledgers, run_id, wanted, resumed_at=self.k)

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
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is what divergence looks like; it is reported
            while self.k < last and not self.divergence:
                self._round(self.k)
        self.seconds += time.perf_counter() - began

    def _round(self, k: int) -> None:
        # A function of its own, so that what a round kept private is let go before the next one begins.
        x = self.driver.x
        private = self.driver.round(k, partial(self.recorder.record_sent, k))
        self.recorder.record_private(k, x, private)
        gap = self.recorder.record_metrics(k, x, private, self.driver.each)
        self.k = k + 1
        if k % WATCH_EVERY == 0 or not gap < HOPELESS:
            self.detector.check(self.recorder.columns["gap"], k, x)

    def continued(self, k: int, rounds: int) -> Array:
        """Gaps of `rounds` rounds on trial, from round k on and without noise; the run itself stays where it is."""
        driver, gaps = self.driver.quiet(), np.empty(rounds)
        for step in range(rounds):
            x = driver.x
            private = driver.round(k + step, lambda phase, rows: None)
            consensus, stationarity, _ = measure(x, [p.values for p in private], [p.grad for p in private])
            gaps[step] = consensus + stationarity
        return gaps

    def result(self) -> Result:
        """The result so far. The gap at the last x takes one more gradient, which no round has paid for."""
        x = self.driver.x
        with np.errstate(over="ignore", invalid="ignore"):
            evaluated = [block.program.objective(block.state.x) for block in self.driver.blocks]
            self.recorder.record_metrics(self.k, x, [Private(f, grad, {}, {}) for f, grad in evaluated])
            if not self.divergence:
                self.detector.check(self.recorder.columns["gap"], self.k, x)
        mean = np.concatenate(x).mean(axis=0)
        return Result(
            experiment=self.experiment,
            run_id=self.run_id,
            x=np.concatenate(x),
            metrics=self.recorder.metrics(self.k),
            observation=self.recorder.observation(self.k, self.prepared.P),
            truth=self.recorder.truth(self.k),
            divergence=self.divergence,
            conditions=self.conditions(),
            report=self.experiment.problem.report(mean) if np.isfinite(mean).all() else {},
            privacy=self.privacy(),
            seconds=self.seconds,
        )

    def privacy(self) -> PrivacyReport:
        """The account of the rounds that were run."""
        stopped = self.allowance.reason if self.k == self.allowance.rounds else None
        spent, claimed = self.account.epsilon(self.k), self.account.paper_epsilon(self.k)
        diverged = self.divergence is not None and self.k < self.allowance.rounds
        return PrivacyReport(spent, claimed, stopped, self.account.notes_after(diverged=diverged))

    def conditions(self) -> list[Condition]:
        """Sufficient conditions that the algorithm declares; none where M̄ is not known."""
        section, eigenvalues = self.experiment.algorithm, self.prepared.spectrum
        known = np.isfinite([self.bound, eigenvalues.connectivity]).all()
        return section.conditions(self.bound, eigenvalues) if known else []


def epsilon_column(account: Account, rounds: int) -> Array:
    """ε before each of the rounds 0 … K: nothing at x⁰; inf beyond float64, nan without an account."""
    curve = account.curve(rounds)
    spent = np.full(rounds, np.nan) if isinstance(curve, Unsupported) else curve.values
    return np.concatenate([[0.0], spent])
