"""The algebra of the attacks on random draws: gradients out of a hat, any damping, no noise unless it is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2.adversary.attacks.algebra import Messages, mix, replay
from dpp2.adversary.attacks.fitting import Stretch
from dpp2.adversary.attacks.parameter_free import steps
from dpp2.adversary.attacks.smoother import shrunk
from tests.adversary.attacked import recursion, ring

DRAWS = settings(max_examples=25, deadline=None, derandomize=True)
seeds, dampings = st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 1.0, 4.0])


@DRAWS
@given(seeds, dampings)
def test_telescope_is_exact_without_noise(seed: int, damping: float) -> None:
    _, score = recursion(np.random.default_rng(seed), damping=damping).tried("telescope")
    assert score.x is not None
    assert score.grad is not None
    assert score.eta is not None
    assert score.x.rounds.max() < 1e-12
    assert score.grad.rounds.max() < 1e-11
    assert np.isnan(score.eta.rounds[0])  # D⁰ = 0 hides η⁰
    assert score.eta.rounds[1:].max() < 1e-12


@DRAWS
@given(seeds, dampings)
def test_known_eta_undoes_tier_one_and_leaves_the_noise(seed: int, damping: float) -> None:
    """x̂ = x + w and ĝ = ∇f + e, whatever the noise."""
    run = recursion(np.random.default_rng(seed), damping=damping, noise=1.0)
    view = run.everything
    inside = run.inside(0)
    estimate, _ = run.tried("known-eta", type(view)("neighbour", view.observation, inside, view.agents))
    assert run.truth.w is not None
    assert run.truth.e is not None
    assert estimate.x is not None
    assert estimate.grad is not None
    np.testing.assert_allclose(estimate.x, run.truth.x + run.truth.w, atol=1e-11)
    np.testing.assert_allclose(estimate.grad, run.truth.grad + run.truth.e, atol=1e-10)


@DRAWS
@given(seeds, dampings)
def test_three_rounds_are_enough_without_noise(seed: int, damping: float) -> None:
    """From any three rounds on, not only from the first; the median, since a window may be badly conditioned."""
    _, score = recursion(np.random.default_rng(seed), damping=damping).tried("three-round")
    assert score.x is not None
    assert score.grad is not None
    assert score.eta is not None
    assert np.median(score.x.rounds[1:]) < 1e-9
    assert np.median(score.grad.rounds[1:]) < 1e-9
    assert np.median(score.eta.rounds[1:]) < 1e-9


@DRAWS
@given(seeds, dampings)
def test_seven_vectors_give_the_steps_times_one_plus_damping(seed: int, damping: float) -> None:
    run = recursion(np.random.default_rng(seed), damping=damping)
    found, _ = steps(Messages.of(run.everything))
    np.testing.assert_allclose(np.median(found, axis=0), [(1 + damping) * 0.1, (1 + damping) * 0.05], rtol=1e-7)


@settings(DRAWS, max_examples=5)
@given(seeds, dampings)
def test_smoother_finds_eta_without_noise_from_the_first_round_on(seed: int, damping: float) -> None:
    _, score = recursion(np.random.default_rng(seed), damping=damping, rounds=50).tried("smoother")
    assert score.x is not None
    assert score.eta is not None
    assert score.x.rounds.max() < 1e-9
    assert score.eta.rounds[1:].max() < 1e-9


@DRAWS
@given(seeds, dampings)
def test_derivatives_of_the_residuals_are_those_of_the_recursion(seed: int, damping: float) -> None:
    """Against central differences, in every b and every direction of D."""
    rng = np.random.default_rng(seed)
    n, q, h = 6, 7, 1e-6
    stretch = Stretch(
        rng.standard_normal((n, q)),
        rng.standard_normal((n - 1, q)),
        rng.uniform(0.5, 2, n - 1),
        1 + damping,
        rng.standard_normal(q),
        rng.standard_normal((2, q)),
    )
    b, theta = rng.uniform(0.1, 0.9, n), np.zeros(2)
    _, D = stretch.residuals(b, theta)
    table, vectors = stretch.derivatives(b), np.concatenate([D, stretch.directions])
    for m in range(n + 2):
        step = h * np.eye(n + 2)[m]
        ahead, behind = (stretch.residuals(b + s * step[:n], theta + s * step[n:])[0] for s in (1, -1))
        np.testing.assert_allclose((ahead - behind) / (2 * h), table[:, m, None] * vectors[m], atol=1e-7)


@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_replay_forgets_a_wrong_start(damping: float) -> None:
    """By (τ + η)/(1 + τ) a round, so that listening may begin in mid-run."""
    run = recursion(np.random.default_rng(3), damping=damping, rounds=60)
    assert run.truth.eta is not None
    y, t = run.observation.phases["y"], 1 + damping
    s, D = replay(y, run.truth.eta, t, D=100.0)
    right, _ = replay(y, run.truth.eta, t)
    forgotten = np.prod((damping + run.truth.eta[:-1]) / t)
    assert np.abs(D[-1] - (np.cumsum(right, axis=0)[-2])).max() == pytest.approx(100 * forgotten, rel=1e-3, abs=1e-9)
    assert np.abs(s[-1] - right[-1]).max() < 100 * forgotten + 1e-9


def test_replay_carries_the_last_s_through_a_gap() -> None:
    run = recursion(np.random.default_rng(4), damping=0.0, rounds=40)
    assert run.truth.eta is not None
    y = run.observation.phases["y"].copy()
    y[10, 2] = np.nan
    s, _ = replay(y, run.truth.eta, 1.0)
    assert np.isnan(s[10, 2]).all()
    assert not np.isnan(np.delete(s, 2, axis=1)).any()
    np.testing.assert_allclose(s[-1], run.truth.x[-1], atol=1e-6)


def test_mixing_says_nan_where_a_neighbour_was_not_heard() -> None:
    rows = np.random.default_rng(5).standard_normal((3, 6, 2))
    expected = ring(6) @ rows
    rows[1, 0] = np.nan
    mixed = mix(ring(6), rows)
    unknown = np.isnan(mixed).any(axis=2)
    assert np.argwhere(unknown).tolist() == [[1, 0], [1, 1], [1, 5]]
    np.testing.assert_allclose(mixed[~unknown], expected[~unknown], rtol=1e-14)


def test_shrinking_never_turns_an_estimate_round_and_leaves_good_ones_alone() -> None:
    rng = np.random.default_rng(6)
    truth = rng.standard_normal((2, 50, 10))
    noisy = truth + np.array([3.0, 1e-9])[:, None, None] * rng.standard_normal(truth.shape)
    better = shrunk(noisy, np.array([3.0, 1e-9])[:, None] * np.ones((2, 50)))
    before, after = (
        np.linalg.norm(v - truth, axis=(1, 2)) / np.linalg.norm(truth, axis=(1, 2)) for v in (noisy, better)
    )
    assert after[0] < 1.0 < before[0]
    assert after[1] == pytest.approx(before[1], rel=1e-3)
