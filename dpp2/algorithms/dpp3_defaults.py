"""What DPP³ settles when an experiment is resolved: whatever was left out, from public things as far as there are any.

| setting | default |
| --- | --- |
| run.start | zero: x⁰ must be public |
| mixings, final_mixings | until 2e-4 of the disagreement is left |
| gradient_rounds | 20; with Laplace noise 1, and 3 from ε = 5 on; fewer where run.rounds is given and too few |
| run.rounds | as many as these need |
| alpha | 2/M̄, and 8/M̄ with privacy.clip; 1.5/M̄ for squares under Laplace noise; 0.1 where no M̄ is known |
| smoothness | M̄ = privacy.smoothness, or else the data's, which is remarked |
| noise.holders, noise.quorum | Laplace: everybody, in shares of N − c; where c colluders cut somebody off, a few |
| noise.own | what keeps ε = privacy.budget (none given: 1) at privacy.delta, against privacy.colluders |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpp2.algorithms import cancelling_scales
from dpp2.algorithms.cancelling_scales import affordable, epsilon_target, own_scale, public_start
from dpp2.algorithms.dpp3_noise import Dpp3Noise
from dpp2.privacy.colluders import cuts
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.holders import choose_holders
from dpp2.topology import Graph
from dpp2.weights import edge_weights, network_spectrum

if TYPE_CHECKING:
    from dpp2.algorithms.dpp3 import Dpp3Section
    from dpp2.experiment import Experiment

DISAGREEMENT = 2e-4  # what is left of it after a cycle
_GRADIENTS, _ALPHA = 20, 0.1
_STEPS, _STEPS_CLIPPED = 2.0, 8.0  # α·M̄: clipped gradients are short
_STEPS_SQUARES = 1.5  # a single step of 2/M̄ may end as far behind the answer as it began before it


def settled(experiment: Experiment, section: Dpp3Section) -> Experiment:
    """The experiment with nothing left open."""
    graph = experiment.network.graph()
    section = _with_eigenvalues(experiment, section, graph)
    section = _with_schedule(experiment, section)
    section = _with_step(experiment, section)
    run = experiment.run
    if not run.given("rounds"):
        run = run.updated(rounds=section.rounds)
    run = run.updated(start=public_start(experiment))
    experiment = replace(experiment, run=run, algorithm=section)
    return replace(experiment, noise=_with_scales(experiment, section, graph))


def _with_eigenvalues(experiment: Experiment, section: Dpp3Section, graph: Graph) -> Dpp3Section:
    """Written down, because every agent must mix with the same two numbers to the last bit."""
    if section.connectivity is not None and section.largest is not None:
        return section
    found = network_spectrum(graph, edge_weights(graph, experiment.network.weights))
    low = found.connectivity if found.connectivity > 0 else found.largest * 1e-4  # smaller than it is: mixes slower
    return section.updated(connectivity=section.connectivity or low, largest=section.largest or found.largest)


def _with_schedule(experiment: Experiment, section: Dpp3Section) -> Dpp3Section:
    noise, run = experiment.noise, experiment.run
    assert isinstance(noise, Dpp3Noise)
    laplace = noise.kind == "laplace"
    T = section.mixings or section.chebyshev.steps_to(DISAGREEMENT)
    E = T if section.final_mixings is None else section.final_mixings
    G = section.gradient_rounds or ((1 if epsilon_target(experiment) < 5 else 3) if laplace else _GRADIENTS)
    if run.given("rounds") and not section.given("gradient_rounds", "mixings", "final_mixings"):
        T, E = (T, E) if run.rounds >= T + E else ((run.rounds + 1) // 2, run.rounds // 2)
        G = max(min(G, (run.rounds - E) // T), 1)
    slowdown = (0.0 if laplace else 4.0) if section.slowdown is None else section.slowdown
    return section.updated(mixings=T, final_mixings=E, gradient_rounds=G, slowdown=slowdown)


def _with_step(experiment: Experiment, section: Dpp3Section) -> Dpp3Section:
    M = section.smoothness
    if M is None and experiment.privacy.smoothness is not None:
        M = experiment.privacy.smoothness
    if M is None:
        M = float(experiment.objective().smoothness.max())
        section = section.updated(smoothness_from_data=True)
    M = M if np.isfinite(M) else 0.0  # nobody knows: no shrinkage either
    return section.updated(smoothness=M, alpha=section.alpha or (_steps(experiment) / M if M else _ALPHA))


def _steps(experiment: Experiment) -> float:
    """α·M̄"""
    noise = experiment.noise
    assert isinstance(noise, Dpp3Noise)
    if noise.kind == "laplace" and experiment.problem.steep_everywhere:
        return _STEPS_SQUARES
    return _STEPS if experiment.privacy.clip is None else _STEPS_CLIPPED


def _with_scales(experiment: Experiment, section: Dpp3Section, graph: Graph) -> Dpp3Noise:
    noise = experiment.noise
    assert isinstance(noise, Dpp3Noise)
    if noise.kind == "laplace" and noise.holders is None and not isinstance(noise.own, list):
        noise = _with_holders(noise, graph, experiment.privacy.colluders)
    noise = noise.updated(quorum=noise.quorum or 1)
    return noise if noise.own is not None else noise.updated(own=own_scale(experiment, noise, graph, section.G))


def _with_holders(noise: Dpp3Noise, graph: Graph, colluders: int | list[list[int]]) -> Dpp3Noise:
    N, edge = graph.agents, noise.edge_scales(len(graph.edges))
    c = colluders if isinstance(colluders, int) else max(len({*one}) for one in colluders)
    if noise.quorum is not None or not edge.all():
        return noise.updated(holders=list(range(N)))
    found = cuts(noise.network(graph), c, affordable(graph))
    if not isinstance(found, Unsupported) and not found:
        return noise.updated(holders=list(range(N)), quorum=max(N - c, 1))
    return noise.updated(holders=list(choose_holders(N, graph.edges, 1 / edge, c).holders), quorum=1)


def remarks(experiment: Experiment) -> Iterator[str]:
    """What belongs beside every ε of a run."""
    from dpp2.algorithms.dpp3 import Dpp3Section

    yield from cancelling_scales.remarks(experiment)
    section, rounds = experiment.algorithm, experiment.run.rounds
    assert isinstance(section, Dpp3Section)
    if rounds < section.rounds:
        yield f"run.rounds = {rounds} ends before round {section.rounds}, when all is mixed, averaged and shrunk"
    if section.smoothness_from_data:
        rests = "algorithm.alpha and the shrinkage rest on M̄ of all agents' data"
        yield f"{rests}, which is outside ε: declare privacy.smoothness"
