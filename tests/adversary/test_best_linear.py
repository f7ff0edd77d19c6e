"""The strongest linear attack on DPP³ reaches the floor that ε is made of, and never goes below it."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
import pytest

from dpp2 import Experiment, Result, Simulation, run
from dpp2.adversary.attacks.algebra import mix
from dpp2.adversary.attacks.best_linear import BestLinear, informed, reused_edges
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth, score
from dpp2.adversary.views import global_view
from dpp2.algorithms.base import EdgeKey
from dpp2.algorithms.declared import Heard
from dpp2.algorithms.dpp3 import Dpp3Section
from dpp2.arrays import Array
from dpp2.edge_keys import EdgeSecret
from dpp2.edge_noise import EdgeNoise
from dpp2.prepared import NOBODY, PreparedRun
from dpp2.privacy.correlated import NoiseNetwork, exposures

G, D, VICTIM = 150, 150, 3


def experiment(**more: object) -> Experiment:
    tables: dict[str, object] = {
        "algorithm.name": "dpp3",
        "algorithm.gradient_rounds": G,
        "algorithm.mixings": 3,
        "network.topology": "small-world",
        "network.agents": 12,
        "problem.dimension": D,
        "problem.samples": 5,
        "noise.own": 0.5,
        "noise.ratio": 30.0,
    }
    return Experiment.load(overrides=tables | {key.replace("__", "."): value for key, value in more.items()})


@lru_cache
def played() -> tuple[Result, Array, Array, NoiseNetwork]:
    """A run; of its gradient rounds what was released, the gradients, and who shares noise with whom."""
    result = run(experiment())
    section = result.experiment.algorithm
    assert isinstance(section, Dpp3Section)
    assert result.truth is not None
    released = heard(result)[:: section.T][:G]
    gradients = np.array(result.truth.grad[: G * section.T : section.T])
    return result, released, gradients, section.noise_network(result.experiment)


def heard(result: Result) -> Array:
    assert result.observation is not None
    P = np.array(result.observation.P)
    found = result.experiment.algorithm.recovered(Heard({"v": np.array(result.observation.v)}, partial(mix, P)))
    assert found is not None
    return found.gradient


def handed_over(result: Result, colluders: tuple[int, ...]) -> Array:
    """Noise of the edges between colluders and others, as the others carry it."""
    prepared = PreparedRun.of(experiment())
    scale = 30.0 * 0.5
    edges = [
        EdgeSecret(edge.ends, edge.key, scale)
        for edge in prepared.edge_keys(range(12))
        if set(edge.ends) & set(colluders)
    ]
    noise = EdgeNoise("gaussian", edges, range(12), D)
    return np.stack([noise(g) for g in range(G)])


def neighbours() -> tuple[int, ...]:
    return tuple(PreparedRun.of(experiment()).graph.neighbours(VICTIM))


@pytest.mark.parametrize("who", ["nobody", "one neighbour", "all but one", "all neighbours (control)"])
def test_knowing_all_other_gradients_reaches_the_floor_and_never_beats_it(who: str) -> None:
    result, released, gradients, network = played()
    near = neighbours()
    colluders = {"nobody": (), "one neighbour": near[:1], "all but one": near[1:]}.get(who, near)
    known = handed_over(result, colluders) if colluders else None
    error = (informed(released, gradients, network, colluders, known) - gradients)[:, VICTIM]
    floor = 1 / exposures(network, colluders)[VICTIM]
    measured, noise = float(np.sqrt((error**2).mean())), 1 / np.sqrt(2 * error.size)
    assert measured == pytest.approx(floor, rel=0.02)
    assert measured > floor * (1 - 4 * noise)  # the best linear estimate has no bias: below is luck alone
    if who.endswith("(control)"):
        assert floor == pytest.approx(0.5)  # own noise is all that is left
    else:
        assert floor > 0.7


def test_without_the_joint_noise_a_message_says_far_less() -> None:
    """The attack is worth something: reading one agent's release alone is 30 times worse."""
    _, released, gradients, network = played()
    read = np.sqrt(((released - gradients)[:, VICTIM] ** 2).mean())
    assert read > 15 / exposures(network)[VICTIM]


def test_an_eavesdropper_is_scored_like_every_other_attack() -> None:
    result, *_ = played()
    assert result.observation is not None
    assert result.truth is not None
    observation = Observation.of(result.observation)
    view = global_view(observation, Knowledge.of(result.experiment))
    attack = BestLinear()
    assert attack.needs(view) is None
    estimate = attack.run(view)
    assert estimate.grad is not None
    scored = score(estimate, Truth.of(result.truth), view.agents)
    assert scored.x is not None
    assert scored.x.rounds.max() < 1e-9  # x is no secret
    assert scored.grad is not None
    assert np.nanmin(scored.grad.rounds) > 0.5  # gradients are


def test_two_runs_with_one_edge_key_lose_their_edge_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: keys without a nonce. Their difference has own noise alone; with nonces it has that of all edges."""
    apart = [first_release(seed) for seed in (1, 2)]
    kept = PreparedRun.of(experiment()).edge_keys(range(12))
    monkeypatch.setattr(PreparedRun, "edge_keys", lambda self, owned, met=NOBODY: _at(kept, owned))
    together = [first_release(seed) for seed in (1, 2)]
    assert np.std(reused_edges(*together)) == pytest.approx(0.5 * np.sqrt(2), rel=0.15)
    assert np.std(reused_edges(*apart)) > 20 * np.std(reused_edges(*together))


def _at(keys: list[EdgeKey], owned: object) -> list[EdgeKey]:
    return keys


def first_release(seed: int) -> Array:
    """∇f(0) + n of all agents, on the same data whatever the seed."""
    simulation = Simulation(experiment(run__seed=seed, problem__seed=7, network__seed=1))
    simulation.advance(1)
    return np.asarray(heard(simulation.result())[0])
