"""The distinguishing game on DPP³: it comes out as the account says, and finds out an account that says too little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from adversary import game_result as results
from adversary.bounds import trade_off
from adversary.cancelling_game import CancellingGame, GaussianTradeOff, play, proven
from adversary.game_result import GameResult, Prediction, game_result
from dpp2 import Experiment
from dpp2.prepared import PreparedRun
from dpp2.privacy import Unsupported
from dpp2.privacy.cancelling_releases import CancellingReleases


def experiment(**more: object) -> Experiment:
    tables: dict[str, object] = {
        "algorithm.name": "dpp3",
        "algorithm.gradient_rounds": 3,
        "algorithm.mixings": 2,
        "network.topology": "complete",
        "network.agents": 5,
        "problem.dimension": 2,
        "problem.samples": 5,
        "privacy.budget": 4.0,
    }
    return Experiment.load(overrides=tables | {key.replace("__", "."): value for key, value in more.items()}).resolve()


def game(**more: object) -> CancellingGame:
    asked = experiment(**more)
    releases = [one for one in PreparedRun.of(asked).account().mechanisms if isinstance(one, CancellingReleases)]
    made = CancellingGame.of(asked, releases, asked.run.rounds)
    assert isinstance(made, CancellingGame)
    return made


def test_the_exact_test_does_as_well_as_predicted_and_no_better_than_the_account() -> None:
    """The logarithms of the ratios are N(±μ²/2, μ²), with one colluder whose edges are known."""
    made = game()
    assert len(made.colluders) == 1
    (trials,) = play(made, 40_000, 1, [3])
    for coin, sign in ((True, 1), (False, -1)):
        found = trials.log_ratios[trials.coins == coin]
        spread = made.mu / np.sqrt(len(found))
        assert found.mean() == pytest.approx(sign * made.mu**2 / 2, abs=5 * spread)
        assert found.std() == pytest.approx(made.mu, rel=0.03)
    curve = trade_off(trials, 1 - 1e-6)
    assert curve.agrees(GaussianTradeOff(made.mu))
    assert proven(made, trials, 1 - 1e-6).value < made.epsilon


def test_an_account_that_understates_is_found_out() -> None:
    """Control: half of the noise that was accounted for. What the game proves is more than the account claims."""
    made = game()
    quiet = experiment(noise__own=made.mechanism.own / 2)
    (trials,) = play(
        replace(made, experiment=quiet, network=game(noise__own=made.mechanism.own / 2).network), 40_000, 1, [3]
    )
    assert proven(made, trials, 1 - 1e-6).value > made.epsilon
    assert not trade_off(trials, 1 - 1e-6).keeps(GaussianTradeOff(made.mu))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_a_report_says_how_small_an_understatement_it_would_have_caught(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_VARIATES", 3_000_000)
    asked = experiment(noise__kind=kind, noise__quorum=1) if kind == "laplace" else experiment()
    found = game_result(PreparedRun.of(asked).account(), asked, asked.run.rounds)
    assert isinstance(found, GameResult)
    assert found.game.epsilon <= 4.0
    assert 1 < found.caught < 4
    assert found.bound.value > 1
    assert isinstance(found.prediction, Prediction if kind == "gaussian" else Unsupported)
