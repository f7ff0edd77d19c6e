"""The distinguishing game on DPP³: it comes out as the account says, and finds out an account that says too little."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from dpp2 import Experiment
from dpp2.adversary import game_result as results
from dpp2.adversary.bounds import trade_off
from dpp2.adversary.cancelling_game import CancellingGame, GaussianTradeOff, PureTradeOff, log_density, play, proven
from dpp2.adversary.game_result import GameResult, Prediction, game_result
from dpp2.prepared import PreparedRun
from dpp2.privacy import Unsupported, gdp
from dpp2.privacy.cancelling_releases import CancellingReleases
from dpp2.privacy.pld import laplace_profile


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


def reported(monkeypatch: pytest.MonkeyPatch, variates: int, **more: object) -> GameResult:
    monkeypatch.setattr(results, "_VARIATES", variates)
    asked = experiment(**more)
    found = game_result(PreparedRun.of(asked).account(), asked, asked.run.rounds)
    assert isinstance(found, GameResult)
    return found


def test_a_report_says_how_small_an_understatement_it_would_have_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reported(monkeypatch, 3_000_000)
    assert found.game.epsilon <= 4.0
    assert 1 < found.caught < 1.5
    assert found.bound.value > 1
    assert not found.refuted
    assert isinstance(found.prediction, Prediction)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_an_account_that_understates_by_as_much_as_the_report_says_is_refuted(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the same run, and an account that says a little less than ε/caught."""
    more = {"noise__kind": kind, "noise__quorum": 1} if kind == "laplace" else {}
    honest = reported(monkeypatch, 3_000_000, **more, problem__dimension=1)
    settled = experiment(**more, problem__dimension=1)
    said, cost = honest.game.epsilon, CancellingReleases.cost
    claimed = said / (1.01 * honest.caught)
    factor = claimed / said if kind == "laplace" else gdp.mu_at(claimed, 1e-5) / gdp.mu_at(said, 1e-5)
    monkeypatch.setattr(CancellingReleases, "cost", lambda self: factor * cost(self))
    planted = game_result(PreparedRun.resolved(settled).account(), settled, settled.run.rounds)
    assert isinstance(planted, GameResult)
    assert planted.game.epsilon == pytest.approx(claimed, rel=1e-3)
    assert planted.refuted
    assert not honest.refuted


def test_randomised_response_is_what_a_pure_epsilon_admits() -> None:
    """One release: two lines. Three: the best test counts true answers, by enumeration."""
    alpha, odds = np.linspace(0, 1, 11), np.exp(2.0)
    lines = np.maximum(np.maximum(1 - odds * alpha, (1 - alpha) / odds), 0)
    np.testing.assert_allclose(PureTradeOff(2.0).trade_off(alpha), lines, atol=1e-12)
    p = np.exp(0.5) / (1 + np.exp(0.5))
    answers = [sum(answer) for answer in product((0, 1), repeat=3)]
    positive, negative = (
        sum(q**ones * (1 - q) ** (3 - ones) for ones in answers if (ones >= 2) == is_one)
        for q, is_one in ((1 - p, True), (p, False))
    )
    assert PureTradeOff(1.5, 3).trade_off(np.array([positive]))[0] == pytest.approx(negative)


def test_under_shares_of_laplace_noise_the_sum_does_as_well_as_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lap(s), exactly, whoever colludes: a small understatement is caught, and the pure account keeps its word."""
    found = reported(monkeypatch, 15_000_000, noise__kind="laplace")
    assert isinstance(found.game, CancellingGame)
    assert found.game.shape == 1
    assert found.game.network.quorum > 1
    assert isinstance(found.prediction, Prediction)
    assert found.prediction.agrees
    assert found.prediction.keeps
    assert not found.refuted
    assert np.sqrt(2) < found.caught <= 3  # in two dimensions this pair spends ε/√2


def test_where_several_carry_whole_laplace_noise_their_sum_is_judged_by_its_own_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = reported(monkeypatch, 3_000_000, noise__kind="laplace", noise__quorum=1)
    assert isinstance(found.game, CancellingGame)
    assert found.game.shape == 4
    assert isinstance(found.prediction, Unsupported)
    assert 1 < found.caught < 6


@pytest.mark.parametrize("shape", [1.0, 1.25, 2.0, 4.0])
def test_the_density_of_a_sum_is_that_of_a_difference_of_gamma_variates(shape: float) -> None:
    """f(y) = ∫ γ(x + y) γ(x) dx, as a ratio to f(1): the constant is left out."""

    def convolved(y: float) -> float:
        return float(quad(lambda x: stats.gamma.pdf(x + y, shape) * stats.gamma.pdf(x, shape), 0, np.inf)[0])

    for y in (0.2, 3.0, 8.0):
        found = log_density(np.array([y, -y, 1.0]), shape)
        assert found[0] == found[1]
        assert found[0] - found[2] == pytest.approx(np.log(convolved(y) / convolved(1.0)), abs=1e-6)


def test_shares_that_are_too_small_are_found_out() -> None:
    """Control: three fifths of the noise that was accounted for."""
    made = game(noise__kind="laplace")
    thinner = {"noise__kind": "laplace", "noise__own": made.mechanism.own * 0.6}
    cheated = replace(made, experiment=experiment(**thinner))
    (trials,) = play(cheated, 20_000, 1, [made.gradient_rounds])
    assert not trade_off(trials, 1 - 1e-6).keeps(laplace_profile(made.shift, made.gradient_rounds))
