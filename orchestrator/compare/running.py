"""One run of a comparison, as a job that any executor can take: experiment in, curves out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpp2 import BadInput, Experiment, run
from dpp2.arrays import Array
from dpp2.privacy import Unsupported
from orchestrator.compare.fair import Bounds, fitted


@dataclass(frozen=True, eq=False)
class Job:
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
    diverged: bool

    @property
    def final(self) -> float:
        """The last gap; inf where the run got lost."""
        last = float(self.gap[-1])
        return math.inf if self.diverged or not math.isfinite(last) else last


def final_gap(job: Job) -> float:
    """The gap that a tuning run ends with; inf for settings that are refused."""
    try:
        return curves(job).final
    except BadInput:  # a factor of the grid that this network or problem does not admit
        return math.inf


def curves(job: Job) -> Curves:
    """The run itself. Data hang on the problem's seed: another run seed is another start and other noise."""
    answer = fitted(job.experiment, job.budget, job.bounds)
    if isinstance(answer, Unsupported):
        raise BadInput("--epsilon", job.budget, f"a budget that some noise keeps ({answer.reason})")
    seeded = answer.experiment.run.updated(seed=job.seed, telemetry="none")
    result = run(replace(answer.experiment, run=seeded), record=False)
    metrics = result.metrics
    return Curves(
        gap=np.array(metrics.gap),
        consensus=np.array(metrics.consensus),
        stationarity=np.array(metrics.stationarity),
        bytes=np.cumsum(metrics.bytes),
        epsilon=np.array(metrics.epsilon),
        diverged=result.diverged,
    )
