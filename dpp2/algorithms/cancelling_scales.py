"""What algorithms with noise that cancels between neighbours settle alike: own scales, x⁰, accounts and remarks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpp2.algorithms.cancelling_noise import CancellingNoise
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy.account import adjacency_of
from dpp2.privacy.baselines import Unaccounted
from dpp2.privacy.cancelling import Budget, GradientRelease
from dpp2.privacy.cancelling_releases import CancellingReleases, rounded_up, worst_exposures
from dpp2.privacy.colluders import Cut, alone, cuts
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.releases import Releases
from dpp2.problems.base import Sampled
from dpp2.topology import Graph

if TYPE_CHECKING:
    from dpp2.experiment import Experiment

_SLACKS = (1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 0.1)  # of ε, for what tails take of δ_dp: the first that does
_SHOWN = 3  # cuts


def epsilon_target(experiment: Experiment) -> float:
    """ε that noise left open is solved for."""
    return experiment.privacy.budget or 1.0


def public_start(experiment: Experiment) -> str:
    """x⁰ must be public: x is a function of the messages only then."""
    run, name = experiment.run, experiment.algorithm.name
    if not run.given("start"):
        return "zero"
    if run.start == "normal" and not isinstance(run.seed, int):
        raise BadInput(
            "run.start", run.start, f'"zero" or a file where run.seed is "os": {name} needs an x⁰ that is public'
        )
    return run.start


def own_scale(experiment: Experiment, noise: CancellingNoise, graph: Graph, gradient_rounds: int) -> float:
    """The smallest own scale that keeps ε; where the worst case is too dear to find, as if everybody else colluded."""
    if noise.edge is not None:
        raise BadInput("noise.edge", noise.edge, "noise.own beside it: what is solved for keeps noise.ratio")
    network = noise.updated(own=1.0).network(graph).in_units()
    worst = worst_exposures(network, experiment.privacy.colluders)
    units = alone(network) if isinstance(worst, Unsupported) else _known(worst.exposure)
    if not np.isfinite(units).all():
        return 1.0  # nothing hides somebody, at any scale: the account says ∞
    moved = [adjacency_of(experiment, records) for records in records_of(experiment) or [0] * graph.agents]
    return max(
        _own_scale(experiment, noise, graph, gradient_rounds, delta=delta, unit=rounded_up(unit))
        for delta, unit in hardest(zip(moved, units.tolist(), strict=True))
    )


def hardest(agents: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (δ_i, exposure) those that no other agent exceeds in both: whoever is moved most may be hidden best.

    >>> hardest([(0.1, 1.0), (0.4, 0.2), (0.1, 0.5), (0.4, 0.2)])
    [(0.4, 0.2), (0.1, 1.0)]
    """
    found: list[tuple[float, float]] = []
    for delta, unit in sorted(set(agents), reverse=True):
        if not found or unit > found[-1][1]:
            found.append((delta, unit))
    return found


def _own_scale(
    experiment: Experiment, noise: CancellingNoise, graph: Graph, gradient_rounds: int, *, delta: float, unit: float
) -> float:
    """For an agent whose gradient moves by δ, hidden by `unit` at own scale 1."""
    dimension, delta_dp, target = (
        experiment.objective([0]).dimension,
        experiment.privacy.delta,
        epsilon_target(experiment),
    )
    release = GradientRelease(noise.law, delta, dimension)
    precision = rounded_up(noise.updated(own=1.0).precision(graph, dimension))
    for left in (target * (1 - slack) - gradient_rounds * precision for slack in _SLACKS):
        if left <= 0:
            break
        own = release.own_scale(unit, Budget(left, delta_dp), gradient_rounds, noise.grid or None)
        checked = CancellingReleases(
            noise=noise.law, dimension=dimension, adjacency=delta, own=own, exposure=unit,
            bits=noise.grid, variates=noise.variates(graph), precision=precision, gradient_rounds=gradient_rounds,
            mixings=1, delta=delta_dp,
        )  # fmt: skip
        if checked.epsilon_of(gradient_rounds, delta_dp) <= target:
            return own
    raise BadInput("privacy.budget", target, _no_scale(target - gradient_rounds * precision))


def _known(exposures: Array) -> Array:
    """What was not computed for an agent is taken to be as bad as the worst."""
    return np.nan_to_num(exposures, nan=np.nanmax(exposures), posinf=np.inf)


def _no_scale(left: float) -> str:
    """`left`: of the budget, for the gradients."""
    if left <= 0:
        return "an ε that leaves room for what the grid costs; noise.grid may be too coarse"
    ends = "noise that is drawn from 80 bits ends at 10.28 σ, and the missing tail alone costs more than privacy.delta"
    return f"a smaller ε, a larger privacy.delta or more gradient rounds: {ends}"


def records_of(experiment: Experiment) -> list[int] | None:
    """m_i of every agent where `privacy.clip` makes δ of it. An exchange does not change it, so it is public."""
    if experiment.privacy.clip is None:
        return None
    objective = experiment.objective()
    assert isinstance(objective, Sampled)  # `privacy.clip` takes no other
    return [int(count) for count in objective.sample_counts()]


def weak_cuts(experiment: Experiment) -> list[Cut]:
    """Sets of colluders that cut somebody off, the worst first, each with an edge that would help."""
    noise, colluders = experiment.noise, experiment.privacy.colluders
    assert isinstance(noise, CancellingNoise)
    if not isinstance(colluders, int) or not colluders:
        return []
    graph = experiment.network.graph()
    found = cuts(noise.network(graph), colluders, affordable(graph))
    return [] if isinstance(found, Unsupported) else [_bridged(cut, graph.agents) for cut in found[:_SHOWN]]


def _bridged(cut: Cut, agents: int) -> Cut:
    """With an edge that would help; which one helps most, `dpp2 privacy colluders` says."""
    apart = {*cut.colluders, *cut.agents}
    other = next((agent for agent in range(agents) if agent not in apart), None)
    if other is None:
        return cut
    near = cut.agents[0]
    return replace(cut, edge=(min(near, other), max(near, other)))


def affordable(graph: Graph) -> int:
    """Sets of colluders that may be tried for cuts: a second or so."""
    return int(1e7 / (graph.agents + len(graph.edges) + 1000))


def accounts(
    experiment: Experiment, dimension: int, adjacency: float, kind: type[CancellingReleases], **schedule: int
) -> list[Releases]:
    """What each agent's ε depends on, against the colluders of the run; `schedule`: which rounds release gradients."""
    noise, privacy, graph = experiment.noise, experiment.privacy, experiment.network.graph()
    assert isinstance(noise, CancellingNoise)
    worst = worst_exposures(noise.network(graph).in_units(), privacy.colluders)
    if isinstance(worst, Unsupported):
        return [Unaccounted(reason=worst.reason)] * graph.agents
    variates, precision = noise.variates(graph), rounded_up(noise.precision(graph, dimension))
    exposures = [rounded_up(exposure) for exposure in _known(worst.exposure).tolist()]
    shared = {  # one for all agents that are hidden alike: ledgers ask about it once
        exposure: kind(
            noise=noise.law,
            dimension=dimension,
            adjacency=adjacency,
            own=noise.reference,
            exposure=exposure,
            bits=noise.grid,
            variates=variates,
            precision=precision,
            delta=privacy.delta,
            **schedule,
        )
        for exposure in set(exposures)
    }
    return [shared[exposure] for exposure in exposures]


def remarks(experiment: Experiment) -> Iterator[str]:
    """What belongs beside every ε of a run."""
    privacy, noise = experiment.privacy, experiment.noise
    assert isinstance(noise, CancellingNoise)
    c = privacy.colluders
    who = f"any {c} colluding {'agent' if c == 1 else 'agents'}" if isinstance(c, int) else "the named colluders"
    if noise.law == "gaussian":
        yield f"ε is that of (ε, δ_dp) at δ_dp = {privacy.delta:g}, against {who}; over several runs both add up"
    else:
        yield f"ε is pure, against {who}"
    for cut in weak_cuts(experiment):
        yield f"{cut}: only their own noise hides them, or nothing does"
