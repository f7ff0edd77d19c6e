"""The smoother on small runs: what it gains, what it needs, where it stays silent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.views import local_view, neighbour_view
from tests.adversary.attacked import BY_NAME, Attacked, recursion, small


def test_x_is_hidden_by_the_noise_on_the_gradient_alone() -> None:
    """x̂^{k+1} = s^k + i_k is off by αe^k, however large w is: ten times the w noise changes nothing after round 0."""
    once = small(network__agents=20).tried("smoother")[1]
    tenfold = small(network__agents=20, noise__u_w=10.0).tried("smoother")[1]
    assert once.x is not None
    assert tenfold.x is not None
    assert np.median(tenfold.x.rounds[1:20]) < 2 * np.median(once.x.rounds[1:20])


def test_without_noise_on_x_the_noise_on_gradients_is_removed() -> None:
    """u_w = 0: every residual is αe, so that ê ≈ e and most of the noise comes off, though it never decays."""
    run = small(noise__u_w=0.0, noise__decay=1.0, network__agents=20, problem__dimension=10)
    _, score = run.tried("smoother")
    assert score.grad is not None
    assert run.truth.e is not None
    floor = np.linalg.norm(run.truth.e, axis=(1, 2)) / np.linalg.norm(run.truth.grad, axis=(1, 2))
    assert np.median(floor[:-1]) > 1
    assert np.median(score.grad.rounds[:-1] / floor[:-1]) < 0.2


def test_constant_noise_keeps_gradients_hidden() -> None:
    """The negative control: nothing decays, and the shrunk estimate is about as good as no observation."""
    _, score = small(noise__decay=1.0, noise__u_w=20.0, noise__u_e=20.0).tried("smoother")
    assert score.grad is not None
    assert np.median(score.grad.rounds) > 0.5


def test_agents_with_little_noise_give_away_eta_for_all() -> None:
    """One agent sends without noise; weighing by noise makes the others' η as good as its own."""
    quiet = [0.0] + [2.0] * 5
    uneven = small(noise__u_w=quiet, noise__u_e=quiet, noise__decay=1.0, problem__dimension=10).tried("smoother")[1]
    even = small(noise__u_w=2.0, noise__u_e=2.0, noise__decay=1.0, problem__dimension=10).tried("smoother")[1]
    assert uneven.eta is not None
    assert even.eta is not None
    assert np.median(uneven.eta.rounds[1:]) < 1e-6
    assert np.median(even.eta.rounds[1:]) > 1e-3


def test_round_0_hides_its_eta() -> None:
    estimate, _ = small().tried("smoother")
    assert estimate.eta is not None
    assert np.isnan(estimate.eta[0])
    assert not np.isnan(estimate.eta[1:]).any()


@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_it_can_join_late(damping: float) -> None:
    run = small(run__rounds=160, algorithm__damping=damping)
    phases = {phase: rows[60:] for phase, rows in run.observation.phases.items()}
    late = Attacked(replace(run.observation, phases=phases, first=60), run.knowledge, run.truth)
    _, joined = late.tried("smoother")
    _, throughout = run.tried("smoother")
    assert joined.x is not None
    assert throughout.x is not None
    assert np.median(joined.x.rounds[-40:]) < 10 * np.median(throughout.x.rounds[-40:])


def test_it_uses_an_eta_that_it_is_given() -> None:
    """A curious neighbour on a complete graph: x̂ without w, where replay alone leaves w in."""
    run = small(network__topology="complete")
    view = neighbour_view(run.observation, run.inside(2), 2)
    _, smoothed = run.tried("smoother", view)
    _, replayed = run.tried("known-eta", view)
    assert smoothed.eta is not None
    assert smoothed.x is not None
    assert replayed.x is not None
    assert smoothed.eta.rounds.max() == 0
    assert np.median(smoothed.x.rounds) < 0.3 * np.median(replayed.x.rounds)


def test_a_local_tap_is_enough() -> None:
    run = small(problem__dimension=10, run__rounds=120)
    _, score = run.tried("smoother", local_view(run.observation, run.knowledge, 3))
    assert score.x is not None
    assert score.grad is not None
    assert np.median(score.x.rounds[100:]) < 1e-2
    assert np.median(score.grad.rounds[100:]) < 1e-1


def test_hidden_noise_scales_are_done_without() -> None:
    run = recursion(np.random.default_rng(1), damping=0.0, rounds=60)
    known = run.knowledge
    ignorant = Knowledge(known.algorithm)
    _, score = Attacked(run.observation, ignorant, run.truth).tried("smoother")
    assert score.x is not None
    assert score.x.rounds.max() < 1e-8


def test_it_says_what_it_lacks() -> None:
    run = small(problem__dimension=1)
    view = local_view(run.observation, run.knowledge, 0)
    assert str(BY_NAME["smoother"].needs(view)).startswith("needs at least five coordinates")
    short = {phase: rows[:2] for phase, rows in run.observation.phases.items()}
    brief = Attacked(replace(run.observation, phases=short), run.knowledge, run.truth).everything
    assert BY_NAME["smoother"].needs(brief) == "needs three rounds in a row, not 2"
