"""What the tests of attacks share: runs of the product, and runs of the bare recursion with gradients out of a hat."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dpp2 import Experiment, run
from dpp2.adversary.attacks import ATTACKS, Attack, Estimate
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Score, Truth, insider, score
from dpp2.adversary.views import View, global_view
from dpp2.algorithms.dpp2 import Dpp2Section
from dpp2.arrays import Array

BY_NAME: dict[str, Attack] = {attack.name: attack for attack in ATTACKS}
SILENT = {"noise.u_w": 0.0, "noise.u_e": 0.0}
SMALL: dict[str, Any] = {
    "run.rounds": 60,
    "network.topology": "ring",
    "network.agents": 6,
    "problem.dimension": 4,
    "problem.samples": 20,
}


@dataclass(frozen=True, eq=False)
class Attacked:
    """A run as its attackers and its scorer have it."""

    observation: Observation
    knowledge: Knowledge
    truth: Truth
    seconds: float = 0.0

    @property
    def everything(self) -> View:
        return global_view(self.observation, self.knowledge)

    def inside(self, agent: int) -> Knowledge:
        return insider(self.truth, self.knowledge, agent)

    def tried(self, name: str, view: View | None = None) -> tuple[Estimate, Score]:
        view = view or self.everything
        assert BY_NAME[name].needs(view) is None
        estimate = BY_NAME[name].run(view)
        return estimate, score(estimate, self.truth, view.agents, view.observation.first)


def attacked(overrides: dict[str, Any]) -> Attacked:
    """A run of the paper's experiment with these changes."""
    result = run(Experiment.load(overrides=overrides))
    assert result.observation is not None
    assert result.truth is not None
    truth = Truth.of(result.truth, result.experiment)
    return Attacked(Observation.of(result.observation), Knowledge.of(result.experiment), truth, result.seconds)


def small(**overrides: Any) -> Attacked:
    return attacked(SMALL | {key.replace("__", ".", 1): value for key, value in overrides.items()})


@cache
def paper_run(damping: float = 0.0) -> Attacked:
    """N = 50, d = 10, K = 500, M̄ = 5.03, r = 0.9."""
    return attacked({"algorithm.damping": damping})


def ring(agents: int) -> Array:
    """P = I − W with Metropolis weights: a third for each neighbour."""
    identity = np.eye(agents)
    return (2 * identity - np.roll(identity, 1, axis=0) - np.roll(identity, -1, axis=0)) / 3


def recursion(rng: np.random.Generator, *, damping: float, noise: float = 0.0, rounds: int = 12) -> Attacked:
    """The bare recursion of DPP² (damped) under gradients that are just numbers: the algebra must hold for any."""
    alpha, beta, rho, t = 0.1, 0.05, 2.0, 1 + damping
    agents, dimension = 5, 3
    P, eta = ring(agents), rng.uniform(0.05, 0.95, rounds)
    grad, w, e = rng.standard_normal((3, rounds, agents, dimension)) * np.array([1, noise, noise])[:, None, None, None]
    x, y, z = np.empty((3, rounds + 1, agents, dimension))
    x[0], d, q = rng.standard_normal((agents, dimension)), np.zeros((agents, dimension)), np.zeros((agents, dimension))
    for k in range(rounds):
        y[k] = t * (x[k] + w[k]) + (1 - eta[k]) * d
        z[k] = grad[k] + eta[k] * q + rho * P @ y[k] + e[k]
        x[k + 1] = x[k] + w[k] - alpha * (z[k] - e[k]) + beta * P @ z[k]
        d = d + (y[k] - (1 - eta[k]) * d) / t
        q = q + (rho * P @ y[k] - (1 - eta[k]) * q) / t
    scale = np.full(agents, noise / np.sqrt(2))
    section = Dpp2Section(alpha=alpha, beta=beta, rho=rho, damping=damping)
    knowledge = Knowledge(section, {"w": scale, "e": scale}, np.ones(agents))
    observation = Observation.of({"y": y[:-1], "z": z[:-1], "P": P})
    return Attacked(observation, knowledge, Truth(x[:-1], grad, eta, w, e))
