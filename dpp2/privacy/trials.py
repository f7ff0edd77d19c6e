"""The runs that the planner makes: one without noise to plan around, and short ones to measure what a plan does.

All of them are embedded runs of the experiment, on its own data or on a public surrogate of them. x does not depend on
η, so η = 1 here: a list of η that is shorter than a trial need not stand in the way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpp2.algorithms.declared import TwoTiers
from dpp2.embedded import EmbeddedDriver
from dpp2.experiment import Experiment
from dpp2.metrics import measure
from dpp2.prepared import HostedAgents, PreparedRun, Secrets
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.response import Response, linearise
from dpp2.simulation import Simulation

_SOLVED = 1e-12  # of the first gap: the noise-free run has arrived
_SOLVING = 1000  # rounds that it may take
_PIECE = 50  # rounds between looks
_FIRST_SEED = 0x706C616E  # of the trials; not one that the plan would later be run with


class TrialSettings(NamedTuple):
    """What a plan chooses."""

    rounds: int
    decay: float
    damping: float
    u_w: float
    u_e: float
    alpha: float
    beta: float
    rho: float


def solve(experiment: Experiment) -> Simulation:
    """A run without noise that has `arrived`; failing that the nearest that has not diverged.

    Damping is only there to arrive: τ = 1 suits most networks, the others those where it is too little or too much.
    """
    attempts, own = [], steps_of(experiment)
    for damping in (1.0, 0.3, 3.0, 0.0):
        silent = TrialSettings(_SOLVING, 1.0, damping, 0.0, 0.0, own.alpha, own.beta, own.rho)
        attempt = Simulation(altered(experiment, silent), record=False)
        for _ in range(_SOLVING // _PIECE):
            attempt.advance(_PIECE)
            if arrived(attempt):
                return attempt
        attempts.append(attempt)
    return min(attempts, key=lambda attempt: (attempt.divergence is not None, attempt.gap))


def steps_of(experiment: Experiment) -> TwoTiers:
    """α, β and ρ as the experiment has them."""
    parameters = experiment.algorithm.two_tiers()
    assert parameters is not None  # the planner models no other algorithm
    return parameters


def surrogate(experiment: Experiment, smoothness: float) -> Experiment | Unsupported:
    """The experiment, resolved, on public data of the same size whose gradients are as steep."""
    experiment = experiment.resolve()
    public = experiment.problem.surrogate(experiment.network.agents, smoothness)
    if public is None:
        why = "nobody but its author can say what is public of a Python file"
        return Unsupported(f"there is no public surrogate to plan on: {why}; --on-data looks at the data instead")
    bounds = experiment.privacy.updated(smoothness=None, budget=None)  # the surrogate need not keep them to the digit
    return replace(experiment, problem=public, privacy=bounds).resolve()


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
    experiment, network = solved.experiment, solved.driver
    x = np.concatenate(network.x)
    start = solved.prepared.starts(network.dimension)
    drawn = experiment.run.start == "normal"  # then the expectation is over x⁰ as well
    return linearise(
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


def final_gaps(solved: Simulation, settings: TrialSettings, trials: Iterable[int]) -> Iterator[float]:
    """Ŵ^K of one run per trial, inf where it left float64. The start depends on the trial alone: plans share it."""
    known = [
        HostedAgents(solved.prepared, range(block.rows.start, block.rows.stop), block.program.objective)
        for block in solved.driver.blocks
    ]
    for trial in trials:
        experiment = altered(solved.experiment, settings, trial)
        prepared = replace(solved.prepared, experiment=experiment, secrets=Secrets.of(experiment))
        gap = final_gap(prepared, known, settings.rounds)
        yield gap if math.isfinite(gap) else math.inf


def final_gap(prepared: PreparedRun, known: Sequence[HostedAgents], rounds: int) -> float:
    """Of a run on the objectives that are known already. Only the last gap is measured, and nothing is recorded."""
    driver = EmbeddedDriver.of([replace(part, prepared=prepared) for part in known])
    with np.errstate(over="ignore", invalid="ignore"):  # what diverges is not chosen
        for k in range(rounds):
            driver.round(k, lambda phase, rows: None)
        found = driver.evaluate()
        consensus, stationarity, _ = measure(driver.x, [one.values for one in found], [one.grad for one in found])
    return consensus + stationarity


def altered(experiment: Experiment, settings: TrialSettings, trial: int = 0) -> Experiment:
    """The (resolved) experiment with these settings, and without its budget: a trial must not stop half-way."""
    return replace(
        experiment,
        run=experiment.run.updated(rounds=settings.rounds, seed=_FIRST_SEED + trial, telemetry="none"),
        algorithm=experiment.algorithm.updated(
            alpha=settings.alpha, beta=settings.beta, rho=settings.rho, damping=settings.damping, eta=1.0
        ),
        noise=experiment.noise.updated(u_e=settings.u_e, u_w=settings.u_w, decay=settings.decay),
        privacy=experiment.privacy.updated(budget=None),
    )
