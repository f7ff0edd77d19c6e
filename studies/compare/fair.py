"""The same ε for everybody: how much noise a method needs, by its own account, so that K rounds cost exactly that.

What a message must hide, in units of its noise, is a/f + b when all scales are multiplied by f: a is what the values
move by, b what the grid costs at any scale. Both come from the account of the method. Then, over all messages,
    pure ε                    Σ (a/f + b)
    (ε, δ_dp), Laplace        the same, or ρ + 2√(ρ ln 1/δ_dp) with ρ = ½ Σ (a/f + b)², whichever is less (a pure ε is
                              an ε²/2 of zCDP, and zCDP adds up: Bun and Steinke 2016)
    (ε, δ_dp), Gauss          exact, by μ² = Σ (a/f + b)² (`dpp2.privacy.gdp`)
One bisection finds f. Methods whose own scale is left open solve for it themselves when the experiment is settled.
Adjacency, M_i and dimension belong to the problem and are the same for all methods.

A sampler with finite words leaves a δ_dp of its own, Σ d (1 + e^t) 2^−80 over messages that must hide t scales, for
Gauss and Laplace alike. Of an (ε, δ_dp) it may take `_TAIL`. Where it would take more, as it does at large ε, the run
spends the largest ε′ < ε at which it does not: who keeps ε′ keeps ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpp2 import BadInput, Experiment
from dpp2.arrays import Array
from dpp2.privacy import Unsupported
from dpp2.privacy.releases import Releases
from dpp2.studies.compare.tasks import Track

_NO_PURE = "Gaussian noise has no pure ε"
_NOTHING_TO_HIDE = 1e-9  # a factor where one round releases nothing private: less would be finer than float64 carries
_TAIL = 1e-3  # the share of δ_dp that a sampler may take
_LEAST, _NARROWINGS = 1e-3, 7  # of ε: what is tried where all of it cannot be spent, down to 5 % between two of them
_HUGE = 1e100  # a factor under which nothing but the grid's share is left


@dataclass(frozen=True, eq=False)
class Bounds:
    """What of the problem enters every account: M_i of each agent as declared, d, and δ of the worst-off agent."""

    smoothness: Array
    dimension: int
    adjacency: float


def fitted(experiment: Experiment, epsilon: float, track: Track, bounds: Bounds) -> Experiment | Unsupported:
    """The experiment with the noise that spends ε over its rounds, or as much of it as it can; or why no noise does."""
    whole = _fitted(experiment, epsilon, track, bounds)
    if not isinstance(whole, Unsupported) or not track.delta:
        return whole
    part = _fitted(experiment, _LEAST * epsilon, track, bounds)
    if isinstance(part, Unsupported):
        return whole
    low, high = math.log(_LEAST), 0.0
    for _ in range(_NARROWINGS):
        middle = (low + high) / 2
        tried = _fitted(experiment, math.exp(middle) * epsilon, track, bounds)
        low, high, part = (low, middle, part) if isinstance(tried, Unsupported) else (middle, high, tried)
    return part


def _fitted(experiment: Experiment, epsilon: float, track: Track, bounds: Bounds) -> Experiment | Unsupported:
    """Settled, with all of ε spent."""
    noise = experiment.noise
    asked = replace(experiment, privacy=experiment.privacy.updated(budget=epsilon, delta=track.delta or 1e-5))
    if any(getattr(noise, name) is None for name in noise.scales):
        return _settled(asked, track, bounds)
    noisy = with_noise(asked)
    releases = _releases(noisy, bounds)
    if isinstance(releases, Unsupported):
        return releases
    refused = _refused(releases, noisy.run.rounds, track)
    if refused:
        return refused
    factors = [_factor(one, noisy.run.rounds, epsilon, track) for one in releases]
    if not np.isfinite(factors).all():
        return Unsupported(f"no noise keeps ε = {epsilon:g} over {noisy.run.rounds} rounds")
    factor = max(factors)
    if any(_tail(one.scaled(factor), noisy.run.rounds, track) > _TAIL * track.delta for one in releases):
        return Unsupported(f"at ε = {epsilon:g} the sampler's tail takes more of δ_dp than there is")
    return scale_noise(noisy, factor)


def _settled(asked: Experiment, track: Track, bounds: Bounds) -> Experiment | Unsupported:
    """By a method that solves for its own scale."""
    try:
        settled = asked.algorithm.settled(asked)
    except BadInput as error:  # no own scale keeps this ε
        return Unsupported(str(error))
    releases = _releases(settled, bounds)
    refused = releases if isinstance(releases, Unsupported) else _refused(releases, settled.run.rounds, track)
    return refused or settled


def _tail(one: Releases, rounds: int, track: Track) -> float:
    """δ_dp of Laplace words that are finite; with a pure ε it is beside it, and that of Gauss is in its account."""
    if not track.delta or one.log_ratios(1) is not None:
        return 0.0
    return float(2.0 ** one.log2_delta(rounds))


def spent(experiment: Experiment, track: Track, bounds: Bounds) -> float:
    """ε of the worst-off agent over all rounds, by the account of a fitted experiment."""
    releases = _releases(experiment, bounds)
    if isinstance(releases, Unsupported):
        return math.inf
    return max(_spent(one, experiment.run.rounds, track) for one in releases)


def _releases(experiment: Experiment, bounds: Bounds) -> list[Releases] | Unsupported:
    """What each agent's ε depends on, each kind once; as `Account` has it, without its remarks, which take long."""
    found = experiment.algorithm.accounts(experiment, bounds.dimension, bounds.adjacency, bounds.smoothness)
    return found if isinstance(found, Unsupported) else list(dict.fromkeys(found))


def _refused(releases: Sequence[Releases], rounds: int, track: Track) -> Unsupported | None:
    for one in releases:
        if one.gaussian and not track.delta:
            return Unsupported(_NO_PURE)
        if one.log_ratios(1) is None and (reason := one.unsupported_reason(rounds)):
            return reason
    return None


def _spent(one: Releases, rounds: int, track: Track) -> float:
    exact = one.epsilon_at(rounds, track.delta) if track.delta else None
    return _total(np.exp(np.concatenate(one.log_releases(rounds))), track) if exact is None else exact


def _factor(one: Releases, rounds: int, epsilon: float, track: Track) -> float:
    """The least factor on all scales with which the rounds spend ε; inf where there is none."""
    ratios, grid_ratios = one.log_ratios(rounds), one.scaled(_HUGE).log_ratios(rounds)
    if ratios is not None and grid_ratios is not None:
        return _gaussian_factor(one, (ratios, grid_ratios), rounds, epsilon, track)
    costs = np.concatenate(one.log_releases(rounds))
    with np.errstate(over="ignore"):
        grid = np.exp(np.concatenate(one.scaled(_HUGE).log_releases(rounds)))
        moved = np.exp(costs) - grid
    if not np.isfinite(moved).all():
        return math.inf
    if not moved.any():
        return _NOTHING_TO_HIDE
    return _solved(lambda f: _total(moved / f + grid, track), epsilon)


def _gaussian_factor(one: Releases, logs: tuple[Array, Array], rounds: int, epsilon: float, track: Track) -> float:
    """What the finite tail of the sampler takes is asked for at the end."""
    with np.errstate(over="ignore"):
        grid = np.exp(logs[1])
        moved = np.exp(logs[0]) - grid
    if not np.isfinite(moved).all():
        return math.inf
    extra, mu = one.grid.extra(rounds), _mu_at(epsilon, track.delta)
    factor = _solved(lambda f: float(np.sqrt(((moved / f + grid) ** 2).sum())), mu * (1 - extra / epsilon))
    if not math.isfinite(factor):
        return factor
    found = one.scaled(factor).epsilon_at(rounds, track.delta)
    return factor if found is not None and found <= epsilon * (1 + 1e-9) else math.inf


def _mu_at(epsilon: float, delta: float) -> float:
    from dpp2.privacy import gdp

    return gdp.mu_at(epsilon, delta * (1 - _TAIL))


def _total(costs: Array, track: Track) -> float:
    total = float(costs.sum())
    if not track.delta:
        return total
    rho = float((costs**2).sum()) / 2
    return min(total, rho + 2 * math.sqrt(rho * math.log(1 / (track.delta * (1 - _TAIL)))))


def _solved(cost: Callable[[float], float], target: float) -> float:
    """The least f with cost(f) ≤ target: cost falls with f."""
    if not target > 0 or cost(_HUGE) > target:
        return math.inf
    low, high = -120.0, 200.0  # ln f
    if cost(math.exp(low)) <= target:
        return math.exp(low)
    while high - low > 1e-13 * max(abs(low), abs(high), 1):
        middle = (low + high) / 2
        low, high = (low, middle) if cost(math.exp(middle)) <= target else (middle, high)
    return math.exp(high)


def with_noise(experiment: Experiment) -> Experiment:
    """The same with every scale that is 0 set to 1, but for those whose noise buys no ε."""
    noise = experiment.noise
    buying = [name for name in noise.scales if name not in noise.without_epsilon]
    silent = {name: 1.0 for name in buying if not np.any(getattr(noise, name))}
    return replace(experiment, noise=noise.updated(**silent))


def scale_noise(experiment: Experiment, factor: float) -> Experiment:
    """All scales times one factor."""
    noise = experiment.noise
    scaled = {name: times(getattr(noise, name), factor) for name in noise.scales}
    return replace(experiment, noise=noise.updated(**scaled))


def times(setting: Any, factor: float) -> Any:
    """A setting that is one number, or a list with one per agent, times a factor."""
    return [factor * one for one in setting] if isinstance(setting, list) else factor * setting
