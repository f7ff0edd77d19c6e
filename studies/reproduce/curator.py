"""The reference of tier three: somebody who is trusted with every gradient, and adds noise once.

    x ← x − α_g ((1/N) Σ_i ∇f_i(x) + n),    the same G, α_g, average and shrinkage as the run that it is compared with
One agent moves the mean by δ/N, so n ~ N(0, (δ/(Nμ))²) with μ = μ(ε, δ_dp)/√G, or Lap(√d·δ·G/(Nε)). Its draws are those
of the run, brought to its scale: what differs between the two is then the method and not the luck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpp2 import Experiment
from dpp2.algorithms.cancelling_scales import records_of
from dpp2.algorithms.declared import GradientSchedule
from dpp2.algorithms.dpp3 import shrunk
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy import Unsupported, gdp
from dpp2.privacy.account import adjacency_of


@dataclass(frozen=True, eq=False)
class Curated:
    x: Array
    gap: float


def curated(experiment: Experiment, own: Array, epsilon: float) -> Curated:
    """What a trusted curator would have made of the same data at this ε; `own` is that noise of the run, (K, N, d)."""
    schedule, (_, N, d), objective = _schedule(experiment), own.shape, experiment.objective()
    noise, variance = _draws(experiment, own, epsilon)
    x, total = np.zeros(d), np.zeros(d)
    G = len(schedule.steps)
    for g, step in enumerate(schedule.steps):
        gradient = objective(np.tile(x, (N, 1)))[1].mean(axis=0)
        x = x - step * (gradient + noise[g])
        total = total + x if g >= schedule.first_averaged else total
    x = total / (G - schedule.first_averaged)
    if schedule.smoothness and schedule.shrinkage:
        shrinkage = schedule.shrinkage * d * variance / (schedule.smoothness**2 * G)
        x = shrunk(x[None], np.zeros((1, d)), shrinkage)[0]
    stationarity = float((objective(np.tile(x, (N, 1)))[1].sum(axis=0) ** 2).sum()) / N
    return Curated(x, stationarity)


def _schedule(experiment: Experiment) -> GradientSchedule:
    schedule = experiment.algorithm.gradient_schedule()
    if schedule is None:
        raise BadInput("algorithm.name", experiment.algorithm.name, "dpp3, which the curator is compared with")
    return schedule


def _draws(experiment: Experiment, drawn: Array, epsilon: float) -> tuple[Array, float]:
    """(G, d), and the variance of a coordinate."""
    schedule = _schedule(experiment)
    network = experiment.algorithm.noise_network(experiment)
    assert not isinstance(network, Unsupported)  # who has such a schedule shares noise
    (_, N, d), G, T = drawn.shape, len(schedule.steps), schedule.mixings
    own = np.array(drawn[: G * T : T]) / network.reference
    delta = adjacency_of(experiment, min(records_of(experiment) or [0]))
    if network.kind == "gaussian":
        scale = delta * math.sqrt(G) / (gdp.mu_at(epsilon, experiment.privacy.delta) * N)
        return own.sum(axis=1) / math.sqrt(N) * scale, scale**2
    scale = math.sqrt(d) * delta * G / (epsilon * N)
    holders = np.flatnonzero(network.own)[: network.quorum]
    return own[:, holders].sum(axis=1) * scale, 2 * scale**2
