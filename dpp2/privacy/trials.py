"""The runs that the planner makes: one without noise to plan around, and short ones to measure what a plan does.

All of them are embedded runs of the experiment itself, with its own data. x does not depend on η, so η = 1 here: a list
of η that is shorter than a trial need not stand in the way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpp2.experiment import Experiment
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.response import Response, linearise
from dpp2.simulation import Simulation, run

_SOLVED = 1e-12  # of the first gap: the noise-free run has arrived
_SOLVING = 1000  # rounds that it may take
_PIECE = 50  # rounds between looks
_FIRST_SEED = 0x706C616E  # of the trials; not one that the plan would later be run with


class TrialSettings(NamedTuple):
    """What a plan chooses."""

    rounds: int
    damping: float
    u_e: float
    u_w: float
    decay: float


def solve(experiment: Experiment) -> Simulation:
    """A run without noise that has `arrived`; failing that the nearest that has not diverged.

    Damping is only there to arrive: τ = 1 suits most networks, the others those where it is too little or too much.
    """
    attempts = []
    for damping in (1.0, 0.3, 3.0, 0.0):
        silent = TrialSettings(_SOLVING, damping, u_e=0.0, u_w=0.0, decay=1.0)
        attempt = Simulation(altered(experiment, silent), record=False)
        for _ in range(_SOLVING // _PIECE):
            attempt.advance(_PIECE)
            if arrived(attempt):
                return attempt
        attempts.append(attempt)
    return min(attempts, key=lambda attempt: (attempt.divergence is not None, attempt.gap))


def arrived(attempt: Simulation) -> bool:
    return attempt.gap <= _SOLVED * float(attempt.recorder.columns["gap"][0])


def too_steep(solved: Simulation, smoothness: float) -> Unsupported | None:
    """An M that the data exceed guarantees nothing. Where no M_i is known, the declared bound has to be believed."""
    steepest = max(float(block.program.objective.smoothness.max()) for block in solved.driver.blocks)
    if steepest > smoothness * (1 + 1e-9):
        return Unsupported(f"smoothness is {smoothness:g}, and the gradient of one agent needs {steepest:.6g}")
    return None


def response_of(solved: Simulation) -> Response:
    """The experiment linearised where its noise-free run ended."""
    experiment, network, parameters = solved.experiment, solved.driver, solved.experiment.algorithm.two_tiers()
    assert parameters is not None  # the planner models no other algorithm
    x = np.concatenate(network.x)
    start = solved.prepared.starts(network.dimension)
    drawn = experiment.run.start == "normal"  # then the expectation is over x⁰ as well
    return linearise(
        (parameters.alpha, parameters.beta, parameters.rho),
        solved.prepared.P.toarray(),
        network.gradient,
        x.mean(axis=0),
        np.zeros_like(start) if drawn else start,
        1.0 if drawn else 0.0,
    )


def common_gap(solved: Simulation) -> float:
    """Ŵ of agents that all stay at 0: (1/N)‖Σ_i ∇f_i(0)‖². It takes no message, and so no privacy."""
    x = np.concatenate(solved.driver.x)
    total = solved.driver.gradient(np.zeros_like(x)).sum(axis=0)
    return float(total @ total) / len(x)


def final_gaps(experiment: Experiment, settings: TrialSettings, trials: Iterable[int]) -> Iterator[float]:
    """Ŵ^K of one run per trial, inf where it diverged. The start depends on the trial alone: plans share it."""
    for trial in trials:
        result = run(altered(experiment, settings, trial), record=False)
        gap = float(result.metrics.gap[-1])
        yield math.inf if result.diverged or not math.isfinite(gap) else gap


def altered(experiment: Experiment, settings: TrialSettings, trial: int = 0) -> Experiment:
    """The (resolved) experiment with these settings, and without its budget: a trial must not stop half-way."""
    return replace(
        experiment,
        run=experiment.run.updated(rounds=settings.rounds, seed=_FIRST_SEED + trial, telemetry="none"),
        algorithm=experiment.algorithm.updated(damping=settings.damping, eta=1.0),
        noise=experiment.noise.updated(u_e=settings.u_e, u_w=settings.u_w, decay=settings.decay),
        privacy=experiment.privacy.updated(budget=None),
    )
