"""From an experiment to a result: advance round by round, measure, stop on divergence.

`Simulation` can be advanced in pieces and restored from a snapshot, which is what progress bars and resumed runs need;
`run` does it in one go. Pure: the experiment's own files are read, nothing is written.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpp2.algorithms.base import Private
from dpp2.algorithms.dpp2 import Dpp2Section
from dpp2.arrays import Array
from dpp2.embedded import BLOCK
from dpp2.experiment import Experiment
from dpp2.recorder import Recorder
from dpp2.records import Records
from dpp2.setting import Secrets, Setting
from dpp2.stability import Divergence, Watch
from dpp2.theory import Condition, conditions


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
        block: int = BLOCK,
    ) -> None:
        self.setting = Setting.of(experiment, secrets)
        self.experiment = self.setting.experiment
        self.network = self.setting.network(block)
        section, graph = self.experiment.algorithm, self.setting.graph
        shape = (self.experiment.run.rounds, graph.agents, self.network.dimension)
        bytes_per_round = len(section.phases) * 2 * len(graph.edges) * self.network.dimension * 8
        truth = record and self.experiment.run.telemetry == "full"
        self.recorder = Recorder(section, shape, bytes_per_round, truth=truth, observation=record)
        self.watch = Watch(partial(section.instability, self.network.gradient, self.setting.P))
        self.k = 0
        self.seconds = 0.0

    @property
    def divergence(self) -> Divergence | None:
        return self.watch.divergence

    @property
    def remaining(self) -> int:
        """Rounds still to run; none once the run has diverged."""
        return 0 if self.divergence else self.experiment.run.rounds - self.k

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
                k, x = self.k, self.network.x
                private = self.network.round(k, partial(self.recorder.sent, k))
                self.recorder.kept(k, x, private)
                self.recorder.measured(k, x, private)
                self.k = k + 1
                self.watch.look(self.recorder.columns["gap"], k, x)
        self.seconds += time.perf_counter() - began

    def result(self) -> Result:
        """The result so far. The gap at the last x takes one more gradient, which no round has paid for."""
        x = self.network.x
        with np.errstate(over="ignore", invalid="ignore"):
            evaluated = [block.program.objective(block.state.x) for block in self.network.blocks]
            self.recorder.measured(self.k, x, [Private(f, grad, {}, {}) for f, grad in evaluated])
            if not self.divergence:
                self.watch.look(self.recorder.columns["gap"], self.k, x, at_end=True)
        mean = np.concatenate(x).mean(axis=0)
        return Result(
            experiment=self.experiment,
            run_id=self.setting.secrets.run_id,
            x=np.concatenate(x),
            metrics=self.recorder.metrics(self.k),
            observation=self.recorder.observation(self.k, self.setting.P),
            truth=self.recorder.truth(self.k),
            divergence=self.divergence,
            conditions=self.conditions(),
            report=self.experiment.problem.report(mean) if np.isfinite(mean).all() else {},
            seconds=self.seconds,
        )

    def conditions(self) -> list[Condition]:
        """The paper's sufficient conditions for this run; none for other algorithms or where M̄ is not known."""
        section, eigenvalues = self.experiment.algorithm, self.setting.spectrum
        bound = max(float(block.program.objective.smoothness.max()) for block in self.network.blocks)
        if not isinstance(section, Dpp2Section) or not np.isfinite([bound, eigenvalues.connectivity]).all():
            return []
        return conditions(section.alpha, section.beta, section.rho, bound, eigenvalues)
