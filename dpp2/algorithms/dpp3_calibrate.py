"""Which own scale, ratio or number of gradients of DPP³ keeps a budget; every answer goes through the account again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpp2.algorithms.cancelling_noise import LARGEST_RATIO
from dpp2.algorithms.cancelling_scales import own_scale, records_of
from dpp2.algorithms.declared import Calibrated
from dpp2.algorithms.dpp3 import Dpp3Section
from dpp2.algorithms.dpp3_noise import Dpp3Noise
from dpp2.errors import BadInput
from dpp2.privacy.account import Account
from dpp2.privacy.accountant import epsilon
from dpp2.privacy.cancelling import MOST_GRADIENT_ROUNDS
from dpp2.privacy.cancelling_releases import CancellingReleases
from dpp2.privacy.epsilon_value import Epsilon

if TYPE_CHECKING:
    from dpp2.experiment import Experiment

_STEPS = 40  # of a bisection: 12 digits of the ratio's logarithm


def calibrated(experiment: Experiment, budget: float, solve: str) -> Calibrated:
    """Of a resolved experiment."""
    if not (np.isfinite(budget) and budget > 0):
        raise BadInput("epsilon", budget, "a finite number > 0")
    solvers: dict[str, Callable[[Experiment, float], Calibrated]] = {
        "scale": _scale,
        "ratio": _ratio,
        "gradient-rounds": _gradient_rounds,
    }
    if solve not in solvers:
        raise BadInput("solve", solve, f"{', '.join(solvers)}: what dpp3 has")
    return solvers[solve](experiment, budget)


def _parts(experiment: Experiment) -> tuple[Dpp3Section, Dpp3Noise]:
    section, noise = experiment.algorithm, experiment.noise
    assert isinstance(section, Dpp3Section)
    assert isinstance(noise, Dpp3Noise)
    return section, noise


def _spent(experiment: Experiment) -> Epsilon:
    """ε of all gradient rounds."""
    spent = epsilon(_worst(experiment), _parts(experiment)[0].rounds)
    assert isinstance(spent, Epsilon)  # only a δ that is no number has none
    return spent


def _answer(solved: str, experiment: Experiment, budget: float, why_not: str) -> Calibrated:
    section, noise = _parts(experiment)
    spent = _spent(experiment)
    settings = {
        "noise.own": noise.reference,
        "noise.ratio": noise.ratio,
        "algorithm.gradient_rounds": section.G,
        "run.rounds": section.rounds,
    }
    fits = spent.fits(budget)
    return Calibrated(solved, fits, settings, spent, None if fits else f"{why_not}: ε = {spent}")


def _scale(experiment: Experiment, budget: float) -> Calibrated:
    section, noise = _parts(experiment)
    asked = replace(experiment, privacy=experiment.privacy.updated(budget=budget))
    own = own_scale(asked, noise.updated(own=None), experiment.network.graph(), section.G)
    found = replace(experiment, noise=noise.updated(own=own))
    return _answer("scale", found, budget, "no own scale helps")


def _ratio(experiment: Experiment, budget: float) -> Calibrated:
    """The smallest one: ε falls as it grows."""
    _, noise = _parts(experiment)

    def at(ratio: float) -> Experiment:
        return replace(experiment, noise=noise.updated(ratio=ratio, edge=None))

    def fits(ratio: float) -> bool:
        changed = at(ratio)
        return _worst(changed).epsilon_of(_parts(changed)[0].G, changed.privacy.delta) <= budget

    if fits(0.0):
        return _answer("ratio", at(0.0), budget, "")
    if not fits(LARGEST_RATIO):
        return _answer("ratio", at(LARGEST_RATIO), budget, "no ratio helps: even a very large one leaves the own noise")
    low, high = np.log(1e-3), np.log(LARGEST_RATIO)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(float(np.exp(middle))) else (middle, high)
    return _answer("ratio", at(float(np.exp(high))), budget, "")


def _gradient_rounds(experiment: Experiment, budget: float) -> Calibrated:
    """The largest G."""

    def at(G: int) -> Experiment:
        return replace(experiment, algorithm=experiment.algorithm.updated(gradient_rounds=G))

    worst, delta = _worst(experiment), experiment.privacy.delta

    def fits(G: int) -> bool:
        return worst.epsilon_of(G, delta) <= budget

    if not fits(1):
        return _answer("gradient-rounds", at(1), budget, "not even one gradient fits")
    low, high = 1, 2
    while high < MOST_GRADIENT_ROUNDS and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return _answer("gradient-rounds", at(low), budget, "")


def _worst(experiment: Experiment) -> CancellingReleases:
    """The worst-off agent's releases: who has few records may pay more than who is hidden worse."""
    agents, dimension = experiment.network.agents, experiment.objective([0]).dimension
    mechanisms = Account.of(experiment, np.zeros(agents), dimension, records_of(experiment)).mechanisms
    known = [one for one in mechanisms if isinstance(one, CancellingReleases)]
    if not known:
        c = experiment.privacy.colluders
        raise BadInput("privacy.colluders", c, f"fewer, or named sets ({mechanisms[0].why_infinite()})")
    return max(known, key=lambda one: one.cost())
