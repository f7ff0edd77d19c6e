"""Curves of the page: few points, and nothing lost that somebody would look for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dpp2 import Experiment
from dpp2.adversary.attacks import ATTACKS, Attack, Estimate
from dpp2.adversary.findings import Finding
from dpp2.adversary.scoring import Errors, Stretch
from dpp2.adversary.verdicts import best
from dpp2.page.account import spent
from dpp2.page.controls import PRESETS
from dpp2.page.played import play
from dpp2.prepared import PreparedRun
from dpp2.privacy.accountant import cumulative
from dpp2.privacy.epsilon_value import Curve
from dpp2.thinning import chosen


@pytest.mark.parametrize("most", [4, 5, 25, 300])
@pytest.mark.parametrize("count", [0, 1, 3, 7, 26, 301, 4000])
def test_thinned_curves_keep_their_ends_and_their_peaks(count: int, most: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    found = chosen(values, most)
    assert len(found) <= most
    assert np.all(np.diff(found) > 0)
    if count:
        assert (found[0], found[-1]) == (0, count - 1)
        assert {int(values.argmin()), int(values.argmax())} <= set(found.tolist())


def test_rounds_without_a_number_do_not_hide_those_with_one() -> None:
    values = np.full(1000, np.nan)
    values[[500, 501]] = [3.0, 7.0]
    assert {500, 501} <= set(chosen(values, 20).tolist())


def test_epsilon_that_goes_up_in_steps_is_told_at_every_step() -> None:
    experiment = Experiment.load(overrides=PRESETS["Tier three"].overrides()).resolve()
    account = PreparedRun.of(experiment).account()
    curve = cumulative(account.mechanisms[0], 462)
    assert isinstance(curve, Curve)
    rises = np.flatnonzero(curve.log10[1:] > curve.log10[:-1]) + 1
    assert 2 < len(rises) < 100
    document = spent(account, 462, None, 333)
    assert {*rises.tolist(), *(rises + 1).tolist(), 333} <= set(document.rounds)
    row = [curve.log10[k - 1] for k in document.rounds]
    assert document.agents[0] == pytest.approx(row)


def test_what_one_lucky_round_tells_is_a_glimpse_and_the_table_opens_there() -> None:
    state = json.loads(play({**PRESETS["Damped"].query(), "agents": "50"}))["overheard"]
    assert state["verdict"].startswith(f"Glimpsed in round {state['named']}:")
    assert state["guesses"][state["closest"]["x"]]["round"] == state["named"]
    assert state["quick"] is True
    paper = json.loads(play({}))["overheard"]
    assert paper["verdict"].startswith("Overheard and undone")
    assert paper["named"] is None


def test_the_tier_three_preset_is_the_experiment_that_is_shipped() -> None:
    preset, _ = PRESETS["Tier three"].experiment()
    assert preset.resolve().digest == Experiment.load("experiments/tier-three.toml").resolve().digest


def test_attacks_that_are_alike_at_the_end_are_told_apart_by_the_whole_run() -> None:
    slow, fast = (one for one in ATTACKS if one.name in ("three-round", "parameter-free"))
    late = finding(slow, [1.0] * 80 + [1.00e-9] * 20)
    early = finding(fast, [1e-5] * 80 + [1.05e-9] * 20)
    for order in ([late, early], [early, late]):
        found = best(order, "x")
        assert found is not None
        assert found.finding is early


@pytest.mark.parametrize(
    ("close", "glimpsed"), [([40], True), ([40, 41], True), ([40, 60, 80], True), ([40, 41, 42], False)]
)
def test_a_glimpse_is_what_does_not_last_for_three_rounds(close: list[int], glimpsed: bool) -> None:
    errors = np.ones(100)
    errors[close] = 0.05
    found = best([finding(ATTACKS[1], errors.tolist())], "x")
    assert found is not None
    assert found.recovered
    assert found.glimpsed("x") is glimpsed


def finding(attack: Attack, errors: list[float]) -> Finding:
    rounds = np.array(errors)
    k = int(rounds.argmin())
    closest = Stretch(k, k, float(rounds[k]))
    scored = Errors(rounds, None, float(np.median(rounds[-10:])), {}, closest)
    return Finding(attack, "an eavesdropper", Estimate(attack.name), {"x": scored})
