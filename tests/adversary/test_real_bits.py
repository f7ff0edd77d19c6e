"""The optimal test on real bits: doubles give certainty at any ε, the grid keeps the account."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpp2.adversary.bounds import Coins, Trials, lower_bound
from dpp2.adversary.real_bits import log_ratios
from dpp2.arrays import Array
from dpp2.grid import GridNoise
from dpp2.inversion import Law
from dpp2.keys import NoiseStream, seed_key
from dpp2.privacy.grid import GridCost

D, TRIALS = 4, 20_000


def played(epsilon: float, bits: int) -> tuple[Coins, Array]:
    """Coins and log-ratios of one message each: a value of 0.3, or ε/d more in every coordinate; u = 1."""
    coins, ones = np.random.default_rng(3).random(TRIALS) < 0.5, np.ones(TRIALS)
    values = np.full((TRIALS, D), 0.3), np.full((TRIALS, D), 0.3 + epsilon / D)
    true = np.where(coins[:, None], values[1], values[0])
    where = [seed_key(2)] * TRIALS, "e", range(TRIALS), D
    if bits:
        sent = GridNoise(*where, (ones, ones), Law("laplace", bits)).add(0, true)
    else:
        sent = true + np.asarray(NoiseStream(*where, ones, ones)(0))
    return coins, log_ratios(sent, values[::-1], 1.0, bits).sum(axis=1)


@pytest.mark.parametrize("epsilon", [0.03, 1.0])
def test_doubles_give_the_coin_away_with_certainty(epsilon: float) -> None:
    coins, ratios = played(epsilon, 0)
    told = np.isinf(ratios)
    assert told.mean() > 0.99
    assert ((ratios[told] > 0) == coins[told]).all()


@pytest.mark.parametrize("bits", [3, 8, 20])
@pytest.mark.parametrize("epsilon", [0.03, 1.0])
def test_on_the_grid_no_message_says_more_than_the_account_charges(epsilon: float, bits: int) -> None:
    _, ratios = played(epsilon, bits)
    assert np.isfinite(ratios).all()
    assert np.abs(ratios).max() <= epsilon + GridCost(D, Law("laplace", bits)).per_message


def test_what_the_game_proves_on_the_grid_is_below_the_account() -> None:
    coins, ratios = played(1.0, 20)
    proven = lower_bound(Trials(coins, np.round(ratios, 9)), 1 - 1e-6)
    assert 0.1 < proven.value <= 1.0 + GridCost(D, Law("laplace", 20)).per_message


def test_ratios_are_those_of_the_bins() -> None:
    """A shift of one grid step, at the centre and beside it."""
    c = math.ceil(2**4 * math.log(2)) / math.log(2)
    g = 2.0**-4
    at = np.array([0.0, 5 * g, -3 * g])
    found = log_ratios(at, (np.zeros(3), np.full(3, g)), 1.0, 4)
    centre = math.log(-math.expm1(-1 / (2 * c))) - math.log(math.exp(-1 / c) * math.sinh(1 / (2 * c)))
    np.testing.assert_allclose(found, [centre, -1 / c, 1 / c], rtol=1e-12)
