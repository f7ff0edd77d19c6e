"""Where runs are made: the objectives, graph and starts of a data set, built once in every process."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dpp2.algorithms.base import EdgeKey
from dpp2.algorithms.cancelling_scales import records_of
from dpp2.arrays import Array, frozen
from dpp2.edge_keys import Hello
from dpp2.embedded import EmbeddedDriver
from dpp2.metrics import measure
from dpp2.prepared import NOBODY, HostedAgents, PreparedRun
from dpp2.privacy.account import adjacency_of
from dpp2.problems.base import Objective
from dpp2.studies.compare.fair import Bounds
from dpp2.studies.compare.tasks import DataSet, Start


@dataclass(frozen=True)
class Outcome:
    """Where a run ended; inf where it got lost. Accuracy is nan where there is none, as for x̄ = 0."""

    gap: float  # Ŵ
    consensus: float  # the part of it that is disagreement
    excess: float  # F(x̄) − F*, F the mean of the f_i
    accuracy: float


LOST = Outcome(math.inf, math.inf, math.inf, math.nan)


class SeededRun(PreparedRun):
    """A run whose edges take their secrets from its name: agreeing on 255 of them takes longer than the run."""

    def edge_keys(self, owned: Sequence[int], met: Mapping[int, Hello] = NOBODY) -> list[EdgeKey]:
        if not self.experiment.algorithm.edge_noise:
            return []
        name = f"{self.run_id} {self.experiment.run.seed} ".encode()
        pairs = enumerate(self.graph.edges.tolist())
        return [EdgeKey((i, j), n, hashlib.sha256(name + b"%d" % n).digest()) for n, (i, j) in pairs]


@dataclass(frozen=True, eq=False)
class Laboratory:
    """A data set, ready to run on."""

    data: DataSet
    prepared: PreparedRun  # the paper's algorithm on it: any other takes its place

    @cached_property
    def objective(self) -> Objective:
        return self.prepared.objective()

    @cached_property
    def bounds(self) -> Bounds:
        """M_i as they are declared, which is the largest for everybody."""
        declared = self.prepared.experiment.privacy.smoothness
        smoothness = self.objective.smoothness if declared is None else np.full(self.agents, declared)
        return Bounds(frozen(smoothness), self.objective.dimension, self.adjacency)

    @property
    def agents(self) -> int:
        return self.prepared.graph.agents

    @property
    def adjacency(self) -> float:
        """δ of the worst-off agent."""
        return adjacency_of(self.prepared.experiment, min(records_of(self.prepared.experiment) or [0]))

    def run(self, prepared: PreparedRun) -> Array | None:
        """x at its end, nothing measured on the way; None where it got lost, or no ε covers it."""
        driver = EmbeddedDriver.of([HostedAgents(prepared, range(self.agents), self.objective)])
        with np.errstate(all="ignore"):
            for k in range(prepared.experiment.run.rounds):
                if not driver.round(k, lambda phase, rows: None, only_covered=True):
                    return None
        x = driver.x[0]
        return x if np.isfinite(x).all() else None

    def gap(self, x: Array | None) -> tuple[float, float]:
        """Ŵ of agents at x, (N, d), and the part of it that is disagreement."""
        if x is None:
            return math.inf, math.inf
        with np.errstate(all="ignore"):
            values, grads = self.objective(x)
            consensus, stationarity, _ = measure([x], [values], [grads])
        gap = consensus + stationarity
        return (gap, consensus) if math.isfinite(gap) else (math.inf, math.inf)

    def judged(self, x: Array | None) -> Outcome:
        """All that is reported of agents that end at x."""
        gap, consensus = self.gap(x)
        if x is None or not math.isfinite(gap):
            return LOST
        mean = x.mean(axis=0)
        accuracy = self.prepared.experiment.problem.report(mean).get("accuracy", math.nan) if mean.any() else math.nan
        return Outcome(gap, consensus, self.total(mean)[0] - self.optimum[0], accuracy)

    def total(self, x: Array) -> tuple[float, Array]:
        """F(x) = (1/N) Σ f_i(x) and its gradient."""
        values, grads = self.objective(np.tile(x, (self.agents, 1)))
        return float(values.mean()), grads.mean(axis=0)

    @cached_property
    def optimum(self) -> tuple[float, Array]:
        """F* and where it is: the best that somebody with all data finds, without privacy."""
        from scipy.optimize import minimize

        d = self.objective.dimension
        starts = [np.zeros(d), *np.random.default_rng(0).standard_normal((3, d))]  # the regulariser is not convex
        options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-10}
        solve: Any = minimize  # whose stubs know no function that returns a gradient beside its value
        found = [solve(self.total, x, jac=True, method="L-BFGS-B", options=options) for x in starts]
        best = min(found, key=lambda one: float(one.fun))
        return float(best.fun), np.asarray(best.x)

    def starts(self, start: Start, seed: int) -> Array:
        """x⁰, the same for every method."""
        run = self.prepared.experiment.run.updated(start=start, seed=seed)
        return self.prepared.again(replace(self.prepared.experiment, run=run)).starts(self.objective.dimension)


@lru_cache(maxsize=8)
def laboratory(data: DataSet) -> Laboratory:
    return Laboratory(data, SeededRun.of(data.experiment()))
