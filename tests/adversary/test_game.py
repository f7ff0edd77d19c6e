"""The distinguishing game: real rounds, the noises that they imply, and bounds that never exceed the accountant's."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2 import BadInput
from dpp2.adversary import game as games
from dpp2.adversary.bounds import clopper_pearson, lower_bound, trade_off
from dpp2.adversary.game import Game, Judge, Pair, play, predicted
from dpp2.algorithms.base import Doubles
from dpp2.algorithms.dpp2 import Dpp2
from dpp2.arrays import Array
from dpp2.privacy import Dpp2Releases, Unsupported, epsilon, profile

SURE = 1 - 1e-6


def game(
    rounds: int, spent: float, dimension: int = 1, damping: float = 0.0, smoothness: float = 5.03, bits: int = 20
) -> Game:
    """A game whose accountant says ε = `spent`, and a little more on a grid."""
    unit = Dpp2Releases(
        dimension=dimension, alpha=0.1, smoothness=smoothness, adjacency=0.1, u_e=1.0, u_w=1.0, decay=0.9
    )
    total = epsilon(unit, rounds)
    assert not isinstance(total, Unsupported)
    assert total.value is not None
    scale = total.value / spent
    return Game(replace(unit, u_e=scale, u_w=scale, bits=bits), rounds, damping=damping)


def real_run(program: Dpp2, columns: slice, b: Array, rounds: int) -> list[tuple[Array, Array]]:
    """One trial by itself: the round program of the two agents in d dimensions, answered with P by hand."""
    P = np.array([[0.5, -0.5], [-0.5, 0.5]])
    w, e = program.w, program.e
    program.w, program.e = (Doubles(lambda k, draw=draw: draw(k)[:, columns]) for draw in (w, e))  # type: ignore[misc]
    program.objective = Pair(5.03, b)
    state, heard = program.start(np.zeros((2, len(b)))), []
    for k in range(rounds):
        round_ = program.round(state, k)
        y = next(round_).rows
        z = round_.send(P @ y).rows
        with pytest.raises(StopIteration) as done:
            round_.send(P @ z)
        state = done.value.value[0]
        heard.append((y, z))
    return heard


@pytest.mark.parametrize("damping", [0.0, 0.7])
def test_trials_played_together_are_real_runs_of_single_trials(damping: float) -> None:
    played, key, coins = game(6, 2.0, dimension=3, damping=damping, bits=0), bytes(32), np.array([True, False, True])
    network = games._driver(played, coins, key)
    together = []
    for k in range(played.rounds):
        sent: dict[str, Array] = {}
        network.round(k, sent.__setitem__)
        together.append((sent["y"], sent["z"]))
    for trial, coin in enumerate(coins):
        columns = slice(3 * trial, 3 * trial + 3)
        (block,) = games._driver(played, coins, key).blocks
        assert isinstance(block.program, Dpp2)
        alone = real_run(block.program, columns, np.full(3, coin * 0.1 / math.sqrt(3)), played.rounds)
        for (y, z), (y1, z1) in zip(together, alone, strict=True):
            np.testing.assert_allclose(y[:, columns], y1, rtol=0, atol=1e-10)
            np.testing.assert_allclose(z[:, columns], z1, rtol=0, atol=1e-10)


@pytest.mark.parametrize("damping", [0.0, 1.5])
def test_log_ratio_is_that_of_the_noise_really_drawn_and_the_shift_that_the_accountant_bounds(damping: float) -> None:
    played, coins = game(8, 3.0, dimension=2, damping=damping), np.array([True, False])
    network, m = games._driver(played, coins, bytes(32)), played.mechanism
    judge, expected, shift_x = Judge(played, 2), np.zeros(4), 0.0
    sign = np.repeat([1.0, -1.0], 2)  # with b = 1 the other world's noises are shifted one way, with b = 0 the other
    for k in range(played.rounds):
        sent: dict[str, Array] = {}
        (private,) = network.round(k, sent.__setitem__)
        judge.hear(k, sent["y"], sent["z"], private.scalars["eta"])
        shift_e = m.adjacency / math.sqrt(2) + m.smoothness * shift_x  # a_k/√d
        for name, u, shift in (("e", m.u_e, shift_e), ("w", m.u_w, -shift_x)):
            noise = np.asarray(private.noise[name])[games.VICTIM]
            expected += sign * (np.abs(noise + sign * shift) - np.abs(noise)) / (u * m.decay**k)
        shift_x = m.alpha * shift_e
    # The judge works on rounded values: 2^−20 for each of 64 numbers; and rounds its result to four decimals.
    np.testing.assert_allclose(judge.total.reshape(2, 2).sum(axis=1), expected.reshape(2, 2).sum(axis=1), atol=64e-6)
    np.testing.assert_allclose(judge.log_ratios(), judge.total.reshape(2, 2).sum(axis=1), atol=5.1e-5)


@settings(deadline=None, max_examples=15)
@given(
    rounds=st.integers(1, 12),
    spent=st.floats(0.1, 40.0),
    dimension=st.integers(1, 4),
    damping=st.floats(0.0, 3.0),
    smoothness=st.floats(0.0, 20.0),
)
def test_no_log_ratio_exceeds_the_accountants_epsilon(
    rounds: int, spent: float, dimension: int, damping: float, smoothness: float
) -> None:
    played = game(rounds, spent, dimension, damping, smoothness)
    rounding = 5e-5  # on the grid, ratios are rounded to four decimals
    assert np.abs(play(played, 500, seed=1).log_ratios).max() <= spent + rounding + 2e-9


@pytest.mark.parametrize("damping", [0.0, 1.0])
@pytest.mark.parametrize("spent", [0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_short_runs_prove_most_of_epsilon_and_never_more(rounds: int, spent: float, damping: float) -> None:
    for seed in range(2):
        bound = lower_bound(play(game(rounds, spent, damping=damping), 100_000, seed), SURE)
        assert 0.7 * spent <= bound.value <= spent


@pytest.mark.parametrize(("rounds", "dimension"), [(20, 1), (20, 4)])
def test_long_runs_follow_the_predicted_trade_off(rounds: int, dimension: int) -> None:
    played = game(rounds, 5.0, dimension)
    trials = play(played, 40_000, seed=3)
    curve, expected, bound = trade_off(trials, 0.999), predicted(played), profile(played.mechanism, rounds)
    assert not isinstance(expected, Unsupported)
    assert not isinstance(bound, Unsupported)
    assert curve.agrees(expected)
    assert curve.keeps(bound)
    assert 0 < lower_bound(trials, SURE).value <= 5.0
    # The band can tell: a mechanism with four fifths of the noise predicts another curve.
    m = played.mechanism
    other = predicted(replace(played, mechanism=replace(m, u_e=0.8 * m.u_e, u_w=0.8 * m.u_w)))
    assert not isinstance(other, Unsupported)
    assert not curve.agrees(other)


def test_a_leaking_mechanism_is_caught() -> None:
    """Accounted at twice the noise that was played, a short run proves more than that account admits."""
    played = game(1, 2.0)
    assert lower_bound(play(played, 20_000, seed=5), SURE).value > 1.0


def test_positive_curvature_spends_less_than_half() -> None:
    """The worst case needs curvature −M; the sum of a_k with +M instead shows how much rests on it."""
    m = game(100, 1.0).mechanism
    negative, positive, log = 0.0, 0.0, []
    for k in range(100):
        negative, positive = m.adjacency + m.alpha * 5.03 * negative, m.adjacency - m.alpha * 5.03 * positive
        log.append((negative, positive, m.decay**-k))
    spent = [sum(entry[i] * entry[2] for entry in log) for i in (0, 1)]
    assert 0.3 < spent[1] / spent[0] < 0.5


def test_games_repeat_with_their_seed_and_differ_without_it() -> None:
    one, again, other = (play(game(2, 1.0), 3000, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.log_ratios, again.log_ratios)
    assert not np.array_equal(one.log_ratios, other.log_ratios)
    assert abs(one.coins.mean() - 0.5) < 0.05


def test_pieces_do_not_decide_how_many_trials_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(games, "_COLUMNS", 7)
    assert len(play(game(1, 1.0, dimension=3), 20, seed=1).coins) == 20
    assert len(play(game(1, 1.0, dimension=30), 3, seed=1).coins) == 3


def test_long_and_noiseless_runs_are_cut_or_refused() -> None:
    m = Dpp2Releases(dimension=10, alpha=0.1, smoothness=5.03, adjacency=0.1, u_e=1.0, u_w=1.0, decay=0.9)
    cut = games.longest(Game(m, 500))
    assert isinstance(cut, Game)
    assert 10 < cut.rounds < 30
    assert cut.epsilon <= 50
    only_round_0 = games.longest(Game(replace(m, decay=0.0), 500))
    assert isinstance(only_round_0, Game)
    assert only_round_0.rounds == 1
    refused = games.longest(Game(replace(m, u_e=0.0), 500))
    assert isinstance(refused, Unsupported)
    assert "told apart with certainty" in refused.reason
    assert isinstance(games.longest(Game(replace(m, smoothness=math.inf), 500)), Unsupported)
    with pytest.raises(BadInput, match="finite ε"):
        play(Game(replace(m, u_e=0.0), 3), 10, seed=1)
    with pytest.raises(BadInput, match="trials = 0"):
        play(Game(m, 3), 0, seed=1)


def test_the_first_round_can_be_played_without_noise_on_x() -> None:
    """Round 0 sends x⁰, which does not depend on the objective; from round 1 on u_w = 0 would give it away."""
    m = replace(game(1, 2.0).mechanism, u_w=0.0)
    first = games.longest(Game(m, 10))
    assert isinstance(first, Game)
    assert first.rounds == 1
    assert 1.7 < lower_bound(play(first, 20_000, seed=1), SURE).value <= 2.0


def test_clopper_pearson_covers_at_its_level() -> None:
    """For every true rate the binomial tail at the bound is at most the level: the definition, summed exactly."""
    level, tries = 0.01, 40
    low, high = clopper_pearson(np.arange(tries + 1), tries, level)
    assert low[0] == 0.0
    assert high[-1] == 1.0
    for rate in (0.03, 0.2, 0.5, 0.9):
        weights = np.array([math.comb(tries, n) * rate**n * (1 - rate) ** (tries - n) for n in range(tries + 1)])
        assert weights[low > rate].sum() <= level
        assert weights[high < rate].sum() <= level
