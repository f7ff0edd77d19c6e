"""One run of a comparison, as a job that any executor can take: experiment in, curves out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpp2 import BadInput, Experiment, run
from dpp2.arrays import Array
from dpp2.embedded import EmbeddedDriver, in_blocks
from dpp2.metrics import measure
from dpp2.prepared import PreparedRun
from dpp2.privacy import Unsupported
from studies.compare.fair import Bounds, fitted


@dataclass(frozen=True, eq=False)
class Trial:
    """Run an experiment with a seed, its noise fitted to a budget first."""

    experiment: Experiment
    budget: float
    bounds: Bounds
    seed: int


@dataclass(frozen=True, eq=False)
class Curves:
    """A run over its rounds 0 … K: what was reached, what was sent and what was spent until then."""

    gap: Array
    consensus: Array
    stationarity: Array
    bytes: Array  # sent on all channels so far
    epsilon: Array  # of the worst-off agent so far
    complete: bool  # whether it ran to its end; a run that diverges is stopped

    @property
    def final(self) -> float:
        """The last gap; inf where the run got lost."""
        last = float(self.gap[-1])
        return last if self.complete and math.isfinite(last) else math.inf


def final_gap(job: Trial) -> float:
    """The gap that a tuning run ends with; inf for settings that are refused.

    Nothing is measured on the way and nobody watches for divergence: a setting that diverges shows it at its end.
    """
    try:
        network = EmbeddedDriver.of(in_blocks(PreparedRun.of(_seeded(job))))
    except BadInput:  # a factor of the grid that this network or problem does not admit
        return math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(job.experiment.run.rounds):
            network.round(k, lambda phase, rows: None)
        values, grads = zip(*(block.program.objective(block.state.x) for block in network.blocks), strict=True)
        consensus, stationarity, _ = measure(network.x, values, grads)
    gap = consensus + stationarity
    return gap if math.isfinite(gap) else math.inf


def curves(job: Trial) -> Curves:
    """The whole course of a run."""
    result = run(_seeded(job), record=False)
    metrics = result.metrics
    return Curves(
        gap=np.array(metrics.gap),
        consensus=np.array(metrics.consensus),
        stationarity=np.array(metrics.stationarity),
        bytes=np.cumsum(metrics.bytes),
        epsilon=np.array(metrics.epsilon),
        complete=result.rounds == job.experiment.run.rounds,
    )


def _seeded(job: Trial) -> Experiment:
    """The experiment with its noise fitted. Data hang on the problem's seed: a run seed decides start and noise."""
    answer = fitted(job.experiment, job.budget, job.bounds)
    if isinstance(answer, Unsupported):
        raise BadInput("--epsilon", job.budget, f"a budget that some noise keeps ({answer.reason})")
    seeded = answer.experiment.run.updated(seed=job.seed, telemetry="none")
    return replace(answer.experiment, run=seeded)
