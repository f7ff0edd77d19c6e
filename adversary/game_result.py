"""The distinguishing game as played for one run: which agent, how many rounds and trials, and what came of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpp2.adversary.bounds import Curve, LowerBound, TradeOff, lower_bound, trade_off
from dpp2.adversary.cancelling_game import CancellingGame, GaussianTradeOff, PureTradeOff, proven
from dpp2.adversary.cancelling_game import play as play_cancelling
from dpp2.adversary.game import Game, longest, play_and_stop, predicted
from dpp2.adversary.understatement import smallest_caught
from dpp2.algorithms.base import AlgorithmSection
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.experiment import Experiment
from dpp2.privacy import Epsilon, PrivacyProfile, Unsupported, epsilon, gdp, profile
from dpp2.privacy.account import Account
from dpp2.privacy.cancelling_releases import CancellingReleases
from dpp2.privacy.pld import laplace_profile

CONFIDENCE = 1 - 1e-6
_WORK = 40_000_000  # trials × rounds × dimensions: a few seconds
_MOST_TRIALS, _FEWEST_TRIALS = 100_000, 1_000
_VARIATES = 100_000_000  # of own and edge noise: some ten seconds
_NO_CURVE = "no exact curve is known where several agents carry whole Laplace noise of their own"
_SEED = 1
_STOPS = 12  # numbers of rounds at which the bound is taken
_CURVE = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 240)])


@dataclass(frozen=True, eq=False)
class Prediction:
    """The least false-negative rates at `false_positive`: for this pair, and by the account for any pair."""

    false_positive: Array
    pair: Array
    account: Array
    agrees: bool  # the measured band contains the pair's curve
    keeps: bool  # no measured point beats what the account admits


@dataclass(frozen=True, eq=False)
class GameResult:
    """What was played and what it proves."""

    game: Game | CancellingGame
    trials: int
    stops: tuple[int, ...]
    bounds: tuple[LowerBound, ...]  # one per stop, each at its own confidence
    trade_off: TradeOff
    prediction: Prediction | Unsupported
    refuted: bool  # the account claims less than was proven
    caught: float  # an ε understated by this factor, or more, would have been found out

    @property
    def bound(self) -> LowerBound:
        """The strongest, which holds for the whole run, since more rounds only ever tell more.

        It is that of the last stop: the best of several would need a confidence for choosing it.
        """
        return self.bounds[-1]


def game_result(account: Account, experiment: Experiment, rounds: int) -> GameResult | Unsupported:
    """Play for the agent whose ε is largest."""
    section = experiment.algorithm
    cancelling = [one for one in account.mechanisms if isinstance(one, CancellingReleases)]
    if cancelling:
        return _cancelling_result(experiment, cancelling, rounds)
    game = _game(account, section, rounds)
    if isinstance(game, Unsupported):
        return game
    trials = min(_WORK // (game.rounds * game.mechanism.dimension), _MOST_TRIALS)
    stops = np.unique(np.geomspace(1, game.rounds, _STOPS).round().astype(int)).tolist()
    played = play_and_stop(game, trials, _SEED, stops)
    curve = trade_off(played[-1], CONFIDENCE)
    bounds = tuple(lower_bound(one, CONFIDENCE) for one in played)
    caught = smallest_caught(curve, lambda factor: _claimed(game, factor), game.epsilon, bounds[-1].value)
    prediction = _prediction(game, curve)
    beaten = isinstance(prediction, Prediction) and not prediction.keeps
    refuted = beaten or bounds[-1].value > game.epsilon
    return GameResult(game, trials, tuple(stops), bounds, curve, prediction, refuted, caught)


def _claimed(game: Game, factor: float) -> PrivacyProfile | Unsupported:
    """What the account says of so many times the noise."""
    try:
        return profile(game.mechanism.scaled(factor), game.rounds)
    except BadInput as missing:  # dp-accounting is an extra
        return Unsupported(f"needs {missing.accepted}")


def _cancelling_result(
    experiment: Experiment, releases: list[CancellingReleases], rounds: int
) -> GameResult | Unsupported:
    game = CancellingGame.of(experiment, releases, rounds)
    if isinstance(game, Unsupported):
        return game
    trials = min(_VARIATES // game.work, _MOST_TRIALS)
    if trials < _FEWEST_TRIALS:
        return Unsupported(f"{_FEWEST_TRIALS:,} trials of {game.work:,} variates each would take too long")
    stops = np.unique(np.geomspace(1, game.gradient_rounds, _STOPS).round().astype(int)).tolist()
    played = play_cancelling(game, trials, _SEED, stops)
    curve = trade_off(played[-1], CONFIDENCE)
    bounds = tuple(proven(game, one, CONFIDENCE) for one in played)
    shown = tuple((g - 1) * game.mechanism.mixings + 1 for g in stops)
    caught = smallest_caught(curve, lambda factor: _claimed_by(game, factor), game.epsilon, bounds[-1].value)
    refuted = bounds[-1].value > game.epsilon or not curve.keeps(_claimed_by(game, 1.0))
    return GameResult(game, trials, shown, bounds, curve, _exact_prediction(game, curve), refuted, caught)


def _claimed_by(game: CancellingGame, factor: float) -> Curve:
    """What an account admits that says ε/factor."""
    if game.gaussian:
        return GaussianTradeOff(gdp.mu_at(game.epsilon / factor, game.mechanism.delta))
    return PureTradeOff(game.epsilon / factor, game.gradient_rounds)


def _sum_curve(game: CancellingGame) -> Curve | Unsupported:
    if game.shape != 1:
        return Unsupported(_NO_CURVE)
    try:
        return laplace_profile(game.shift, game.gradient_rounds)
    except BadInput as missing:  # dp-accounting is an extra
        return Unsupported(f"needs {missing.accepted}")


def _exact_prediction(game: CancellingGame, curve: TradeOff) -> Prediction | Unsupported:
    pair = GaussianTradeOff(game.mu) if game.gaussian else _sum_curve(game)
    if isinstance(pair, Unsupported):
        return pair
    account = _claimed_by(game, 1.0)
    rates = (pair.trade_off(_CURVE), account.trade_off(_CURVE))
    return Prediction(_CURVE, *rates, agrees=curve.agrees(pair), keeps=curve.keeps(account))


def _game(account: Account, section: AlgorithmSection, rounds: int) -> Game | Unsupported:
    if account.unsupported_reason:
        return account.unsupported_reason
    releases, parameters = section.worst_pair(account.distinct), section.two_tiers()
    if isinstance(releases, Unsupported):
        return releases
    assert parameters is not None  # whose worst pair is known
    worst = max(releases, key=lambda m: _log10(epsilon(m, rounds)))
    game = longest(Game(worst, rounds, parameters.beta, parameters.rho, parameters.damping))
    if isinstance(game, Unsupported):
        return game
    affordable = _WORK // (_FEWEST_TRIALS * worst.dimension)
    if affordable < 1:
        return Unsupported(f"{_FEWEST_TRIALS:,} trials in {worst.dimension:,} dimensions would take too long")
    return replace(game, rounds=min(game.rounds, affordable))


def _prediction(game: Game, curve: TradeOff) -> Prediction | Unsupported:
    try:
        pair, account = predicted(game), profile(game.mechanism, game.rounds)
    except BadInput as missing:  # dp-accounting is an extra
        return Unsupported(f"needs {missing.accepted}")
    for one in (pair, account):
        if isinstance(one, Unsupported):
            return one
    assert isinstance(pair, PrivacyProfile)
    assert isinstance(account, PrivacyProfile)
    rates = (pair.trade_off(_CURVE), account.trade_off(_CURVE))
    return Prediction(_CURVE, *rates, agrees=curve.agrees(pair), keeps=curve.keeps(account))


def _log10(spent: Epsilon | Unsupported) -> float:
    return spent.log10 if isinstance(spent, Epsilon) else math.inf
