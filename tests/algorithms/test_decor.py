"""DECOR: x is a function of the messages, so every round releases a gradient, and its account is that of DPP³."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from dpp2 import BadInput, Experiment, Result, run
from dpp2.adversary.attacks.best_linear import BestLinear
from dpp2.adversary.cancelling_game import CancellingGame, play, proven
from dpp2.adversary.findings import Finding, attempt
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth
from dpp2.adversary.views import global_view
from dpp2.algorithms.decor import DecorNoise
from dpp2.arrays import Array
from dpp2.orchestrator import runner
from dpp2.prepared import PreparedRun
from dpp2.privacy import Epsilon, Ledger, Unsupported, calibrate, epsilon
from dpp2.privacy.cancelling_releases import EveryRoundReleases

ROUNDS = 30


def small(**more: object) -> Experiment:
    tables: dict[str, object] = {
        "algorithm.name": "decor",
        "network.topology": "small-world",
        "network.agents": 7,
        "problem.dimension": 3,
        "problem.samples": 6,
        "run.rounds": ROUNDS,
    }
    return Experiment.load(overrides=tables | {key.replace("__", "."): value for key, value in more.items()})


def releases(experiment: Experiment) -> list[EveryRoundReleases]:
    mechanisms = PreparedRun.of(experiment).account().mechanisms
    return [one for one in mechanisms if isinstance(one, EveryRoundReleases)]


def value(spent: Epsilon | Unsupported) -> float:
    assert isinstance(spent, Epsilon)
    assert spent.value is not None
    return spent.value


def test_x_is_a_function_of_the_messages_and_edge_noise_cancels() -> None:
    result = run(small())
    assert result.observation is not None
    assert result.truth is not None
    half, W = np.array(result.observation.x_half), np.eye(7) - np.array(result.observation.P)
    np.testing.assert_allclose(result.truth.x[1:], W @ half[:-1], rtol=0, atol=1e-12 * np.abs(half).max())
    np.testing.assert_allclose(result.x, W @ half[-1], rtol=0, atol=1e-12 * np.abs(half).max())
    edge = np.array(result.truth.edge)
    assert np.abs(edge).max() > np.abs(result.truth.own).max()
    np.testing.assert_allclose(edge.sum(axis=1), 0, atol=1e-12 * np.abs(edge).max())


def by_hand(experiment: Experiment, rounds: int) -> float:
    """ε from the densities: all agents' releases are one Gaussian vector, and a colluder's edges are gone."""
    noise, edges = experiment.noise, experiment.network.graph().edges.tolist()
    assert isinstance(noise, DecorNoise)
    own, edge, N = noise.reference, noise.ratio * noise.reference, experiment.network.agents
    worst = 0.0
    for (gone,) in combinations(range(N), 1):
        honest = [i for i in range(N) if i != gone]
        covariance = own**2 * np.eye(N)
        for i, j in edges:
            if gone not in (i, j):
                difference = np.eye(N)[i] - np.eye(N)[j]
                covariance += edge**2 * np.outer(difference, difference)
        precision = np.linalg.inv(covariance[np.ix_(honest, honest)])
        worst = max(worst, float(precision.diagonal().max()))
    mu = 0.1 * np.sqrt(rounds * worst)  # δ = 0.1
    grid = np.linspace(0, 5, 500_001)
    delta = norm.cdf(-grid / mu + mu / 2) - np.exp(grid) * norm.cdf(-grid / mu - mu / 2)
    return float(grid[np.argmax(delta <= 1e-5)])


@pytest.mark.parametrize("rounds", [1, 7, ROUNDS])
def test_epsilon_is_that_of_the_gaussian_vector_that_everybody_hears(rounds: int) -> None:
    experiment = small().resolve()
    spent = PreparedRun.of(experiment).account().epsilon(rounds)
    assert value(spent) == pytest.approx(by_hand(experiment, rounds), rel=2e-3)


def test_noise_left_open_keeps_the_budget_and_nothing_of_it_is_left() -> None:
    for budget in (0.5, 3.0):
        result = run(small(privacy__budget=budget))
        assert result.rounds == ROUNDS
        assert 0.999 * budget < value(result.privacy.epsilon) <= budget


def test_a_round_costs_the_same_however_long_the_run_will_be() -> None:
    """Otherwise a run that is resumed with more rounds would get them for nothing, or pay twice."""
    fixed = {"noise__own": 1.0}
    (short, *_), (long, *_) = releases(small(**fixed)), releases(small(**fixed, run__rounds=10 * ROUNDS))
    assert short == long
    np.testing.assert_array_equal(short.log_releases(20)[0], long.log_releases(200)[0][:20])
    costs = [value(epsilon(short, K)) for K in (ROUNDS, ROUNDS + 1, 10 * ROUNDS)]
    assert costs == sorted(set(costs))
    assert costs[-1] > 2 * costs[0]


def test_a_resumed_run_pays_for_its_further_rounds(tmp_path: Path) -> None:
    quiet = lambda *_: None  # noqa: E731
    experiment = small(privacy__budget=1.0)
    first = runner.start(experiment, tmp_path / "run", stem="run", force=False, progress=quiet)
    assert first.result.rounds == ROUNDS
    longer = runner.resume(tmp_path / "run", [f"run.rounds={2 * ROUNDS}"], quiet, runner.ClusterShape())
    assert longer.result.rounds == ROUNDS
    assert f"round {ROUNDS} would bring the total" in str(longer.result.privacy.stopped)


def test_a_ledger_keeps_it() -> None:
    mechanism = releases(small())[0]
    ledger = Ledger("0", "data").charge("run", mechanism, 4)
    back = Ledger.from_dict(ledger.to_dict())
    assert back == ledger
    assert back.entries["run"].mechanism == mechanism


def test_scale_and_rounds_can_be_solved_for() -> None:
    mechanism = releases(small(privacy__budget=1.0))[0]
    scale, rounds = (calibrate(mechanism, 2.0, solve=what, rounds=ROUNDS) for what in ("scale", "rounds"))
    assert not isinstance(scale, Unsupported)
    assert not isinstance(rounds, Unsupported)
    assert 1.9 < value(scale.epsilon) <= 2
    assert 2 * ROUNDS < rounds.rounds < 5 * ROUNDS
    assert value(epsilon(mechanism, rounds.rounds + 1)) > 2


def test_more_colluders_cost_more_and_whom_they_cut_off_is_said() -> None:
    spent = [value(PreparedRun.of(small(noise__own=1.0, privacy__colluders=c)).account().epsilon(9)) for c in (0, 1, 2)]
    assert spent[0] < spent[1] < spent[2]
    notes = PreparedRun.of(small(network__topology="star")).account().notes
    assert any("colluding, agent 0 disconnects agents 2, 3" in note for note in notes)


def test_x0_must_be_public() -> None:
    with pytest.raises(BadInput, match="decor needs an x⁰ that is public"):
        small(run__seed="os", run__start="normal").resolve()


def released_gradients(result: Result) -> tuple[Array, Array]:
    """ĝ of the best linear estimate and g, in all rounds but the first."""
    assert result.observation is not None
    assert result.truth is not None
    view = global_view(Observation.of(result.observation), Knowledge.of(result.experiment))
    found = attempt(BestLinear(), view, Truth.of(result.truth, result.experiment))
    assert isinstance(found, Finding)
    assert found.estimate.grad is not None
    return found.estimate.grad[1:], np.array(result.truth.grad)[1:]


def test_the_best_linear_attack_applies_and_is_left_with_the_noise_that_is_accounted_for() -> None:
    """At ε = 1 it errs by more than the gradients; own noise of 10⁻⁹ without edges is the control: it reads them."""
    found, truth = released_gradients(run(small(privacy__budget=1.0)))
    assert np.abs(found - truth).mean() > np.abs(truth).mean()
    found, truth = released_gradients(run(small(noise__own=1e-9, noise__ratio=0.0)))
    assert np.abs(found - truth).max() < 1e-7


def test_the_distinguishing_game_proves_most_of_epsilon_and_no_more() -> None:
    experiment = small(privacy__budget=2.0).resolve()
    game = CancellingGame.of(experiment, [*releases(experiment)], ROUNDS)
    assert not isinstance(game, Unsupported)
    (trials,) = play(game, 20_000, 1, [ROUNDS])
    bound = proven(game, trials, 1 - 1e-6)
    assert 0.7 * game.epsilon < bound.value < game.epsilon
