"""Who sees what: everything a view holds came over its channels, and everything that did is in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpp2 import BadInput
from dpp2.adversary.observation import Observation
from dpp2.adversary.views import View, global_view, local_view, neighbour_view, partial_view
from tests.adversary.attacked import Attacked, paper_run, small


@pytest.fixture(scope="module")
def run() -> Attacked:
    return small()


def heard(view_or_observation: View | Observation) -> list[int]:
    observation = view_or_observation.observation if isinstance(view_or_observation, View) else view_or_observation
    return np.flatnonzero(observation.heard.any(axis=0)).tolist()


def test_global_sees_all(run: Attacked) -> None:
    view = global_view(run.observation, run.knowledge)
    assert view.agents == (0, 1, 2, 3, 4, 5)
    assert len(view.observation.channels) == 12
    assert view.knowledge.eta is None


def test_local_sees_the_victim_and_its_neighbours_and_one_row_of_P(run: Attacked) -> None:
    view = local_view(run.observation, run.knowledge, 0)
    assert view.agents == (0,)
    assert heard(view) == [0, 1, 5]
    assert sorted(map(tuple, view.observation.channels.tolist())) == [(0, 1), (0, 5), (1, 0), (5, 0)]
    assert np.isnan(view.observation.P[1:]).all()
    np.testing.assert_array_equal(view.observation.P[0], run.observation.P[0])


def test_neighbour_sees_what_it_receives_and_is_after_the_others(run: Attacked) -> None:
    view = neighbour_view(run.observation, run.inside(2), 2)
    assert view.agents == (1, 3)
    assert heard(view) == [1, 2, 3]
    assert view.observation.channels.tolist() == [[1, 2], [3, 2]]
    assert view.knowledge.own is not None
    np.testing.assert_array_equal(view.knowledge.own.x, run.truth.x[:, 2])
    assert not hasattr(view.knowledge.own, "eta")


def test_neighbour_needs_its_own_state(run: Attacked) -> None:
    with pytest.raises(BadInput, match="its own rows"):
        neighbour_view(run.observation, run.knowledge, 2)
    with pytest.raises(BadInput, match="its own rows"):
        neighbour_view(run.observation, run.inside(3), 2)


def test_partial_hears_a_sender_on_any_of_its_channels() -> None:
    run = paper_run()
    view = partial_view(run.observation, run.knowledge, 0.1, seed=4)
    assert len(view.observation.channels) == 51
    assert set(view.agents) == set(view.observation.channels[:, 0].tolist())
    assert 20 < len(view.agents) < 50
    again = partial_view(run.observation, run.knowledge, 0.1, seed=4)
    other = partial_view(run.observation, run.knowledge, 0.1, seed=5)
    assert again.agents == view.agents != other.agents
    np.testing.assert_array_equal(again.observation.channels, view.observation.channels)


def test_half_of_the_channels_is_nearly_everybody() -> None:
    run = paper_run()
    assert len(partial_view(run.observation, run.knowledge).agents) >= 48


def test_nothing_is_invented_about_channels_that_were_not_tapped(run: Attacked) -> None:
    """A tap that heard agent 0 on one channel only: a view at agent 1's door does not get it from elsewhere."""
    tapped = replace(run.observation, channels=np.array([[0, 5], [1, 0], [1, 2]]))
    view = local_view(tapped, run.knowledge, 1)
    assert heard(view) == [1]
    assert view.observation.channels.tolist() == [[1, 0], [1, 2]]


def test_views_leave_the_observation_as_it_was(run: Attacked) -> None:
    before = run.observation.phases["y"].copy()
    local_view(run.observation, run.knowledge, 0)
    partial_view(run.observation, run.knowledge, 0.2)
    np.testing.assert_array_equal(run.observation.phases["y"], before)


@pytest.mark.parametrize("agent", [-1, 6])
def test_agents_that_do_not_exist_are_refused(run: Attacked, agent: int) -> None:
    with pytest.raises(BadInput, match="a whole number from 0 to 5"):
        local_view(run.observation, run.knowledge, agent)
    with pytest.raises(BadInput, match="a whole number from 0 to 5"):
        run.inside(agent)


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5])
def test_fractions_are_checked(run: Attacked, fraction: float) -> None:
    with pytest.raises(BadInput, match="above 0 and at most 1"):
        partial_view(run.observation, run.knowledge, fraction)


# --- what each of them finds --------------------------------------------------------------------------------


def test_a_local_tap_breaks_tier_one_from_the_victims_coordinates_alone() -> None:
    """η, x and, after replaying its neighbours, the gradient of one agent of the paper's run: 10 numbers a message."""
    run = paper_run()
    _, score = run.tried("three-round", local_view(run.observation, run.knowledge, 7))
    assert score.agents == (7,)
    assert score.x is not None
    assert score.grad is not None
    assert score.eta is not None
    assert np.median(score.eta.rounds[200:320]) < 1e-8
    assert np.median(score.x.rounds[200:320]) < 1e-5
    assert np.median(score.grad.rounds[200:320]) < 1e-4


def test_a_curious_neighbour_has_x_plus_noise_from_the_first_message_on() -> None:
    run = small(noise__grid=0)  # on a grid it is x, rounded, plus noise
    estimate, _ = run.tried("known-eta", neighbour_view(run.observation, run.inside(2), 2))
    assert estimate.x is not None
    assert run.truth.w is not None
    for agent in (1, 3):
        np.testing.assert_allclose(estimate.x[:, agent], (run.truth.x + run.truth.w)[:, agent], atol=1e-11)
    assert np.isnan(estimate.x[:, [0, 2, 4, 5]]).all()
    assert estimate.grad is None  # of no neighbour are all neighbours heard on a ring


def test_a_curious_neighbour_has_the_gradients_of_who_shares_its_neighbours() -> None:
    run = small(network__topology="complete", noise__grid=0)
    estimate, _ = run.tried("known-eta", neighbour_view(run.observation, run.inside(2), 2))
    assert estimate.grad is not None
    assert run.truth.e is not None
    others = [0, 1, 3, 4, 5]
    np.testing.assert_allclose(estimate.grad[:, others], (run.truth.grad + run.truth.e)[:, others], atol=1e-9)


def test_a_partial_tap_finds_x_of_senders_whose_neighbours_it_misses() -> None:
    """η comes from those who can be followed, and undoes the mixing of all who are heard."""
    run = paper_run()
    view = partial_view(run.observation, run.knowledge, 0.3, seed=1)
    estimate, score = run.tried("three-round", view)
    assert estimate.x is not None
    assert score.x is not None
    assert 0 < np.isnan(estimate.x[250]).any(axis=1).sum() == 50 - len(view.agents)
    assert np.median(score.x.rounds[200:320]) < 1e-5
