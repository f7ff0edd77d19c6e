"""The same ε for everybody: how much noise a method needs, by its own accountant, so that K rounds cost no more.

ε is proportional to 1/(the noise scales), so one factor on all of them meets any budget exactly. A scale of 0 would
spend ε = ∞; it is set to 1 first. Adjacency, M_i and dimension belong to the problem and are the same for all methods.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpp2 import Experiment
from dpp2.arrays import Array, frozen
from dpp2.privacy import Epsilon, Unsupported, calibrate
from dpp2.privacy.account import Account


@dataclass(frozen=True, eq=False)
class Bounds:
    """What of the problem enters every account: M_i of each agent, and d."""

    smoothness: Array
    dimension: int

    @classmethod
    def of(cls, experiment: Experiment) -> Bounds:
        """Of a resolved experiment; this builds its objectives."""
        agents, bound = experiment.network.agents, experiment.privacy.feature_bound
        problem = experiment.problem if bound is None else experiment.problem.bounded(bound)
        objective = problem.objective(range(agents), agents)
        return cls(frozen(objective.smoothness), objective.dimension)


@dataclass(frozen=True)
class Fitted:
    """An experiment whose rounds fit the budget, and what they spend."""

    experiment: Experiment
    epsilon: Epsilon


def fitted(experiment: Experiment, budget: float, bounds: Bounds) -> Fitted | Unsupported:
    """The experiment with the least noise that keeps its rounds within the budget, or why no noise does."""
    rounds, noisy = experiment.run.rounds, with_noise(experiment)
    account = Account.of(noisy, bounds.smoothness, bounds.dimension)
    if account.unsupported_reason:
        return account.unsupported_reason
    factors = []
    for mechanism in account.distinct:
        answer = calibrate(mechanism, budget, "scale", rounds=rounds)
        if isinstance(answer, Unsupported):
            return answer
        if not answer.feasible:
            return Unsupported(answer.reason or "no noise keeps the budget")
        factors.append(answer.factor)
    scaled = scale_noise(noisy, max(factors))
    spent = Account.of(scaled, bounds.smoothness, bounds.dimension).epsilon(rounds)
    assert isinstance(spent, Epsilon)  # the same accountant has just answered
    if not spent.fits(budget):
        return Unsupported(f"no noise that float64 holds keeps ε ≤ {budget:g}: {spent}")
    return Fitted(scaled, spent)


def with_noise(experiment: Experiment) -> Experiment:
    """The same with every scale that is 0 set to 1, but for those whose noise buys no ε."""
    noise = experiment.noise
    buying = [name for name in noise.scales if name not in noise.without_epsilon]
    silent = {name: 1.0 for name in buying if not np.any(getattr(noise, name))}
    return replace(experiment, noise=noise.updated(**silent))


def scale_noise(experiment: Experiment, factor: float) -> Experiment:
    """All scales times one factor."""
    noise = experiment.noise
    return replace(
        experiment, noise=noise.updated(**{name: times(getattr(noise, name), factor) for name in noise.scales})
    )


def times(setting: Any, factor: float) -> Any:
    """A setting that is one number, or a list with one per agent, times a factor."""
    return [factor * one for one in setting] if isinstance(setting, list) else factor * setting
