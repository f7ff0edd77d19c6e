"""Calibrated answers go back through the accountant and keep the budget, or say why they cannot."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2.errors import BadInput
from dpp2.privacy import Calibration, Dpp2Releases, Epsilon, Releases, Unsupported, calibrate, epsilon
from dpp2.privacy.baselines import StepReleases, TrackingReleases
from dpp2.privacy.calibrate import Unknown
from dpp2.schedule import Schedule

USUAL = Dpp2Releases(dimension=10, alpha=0.1, smoothness=5.0, adjacency=0.01, u_e=1.0, u_w=0.7, decay=0.95)


def changed(mechanism: Dpp2Releases, field: str, value: Any) -> Dpp2Releases:
    return replace(mechanism, **{field: value})


def between(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


mechanisms = st.builds(
    Dpp2Releases,
    dimension=st.integers(1, 50),
    alpha=between(1e-3, 1),
    smoothness=between(1e-3, 20),
    adjacency=between(1e-6, 10),
    u_e=between(1e-3, 1e3),
    u_w=between(1e-3, 1e3),
    decay=st.floats(0.3, 1.0),
)


def answer(
    mechanism: Dpp2Releases, budget: float, solve: Unknown, rounds: int | None = None, published: bool = False
) -> Calibration:
    found = calibrate(mechanism, budget, solve, rounds=rounds, published=published)
    assert isinstance(found, Calibration)
    return found


def spent(mechanism: Releases, rounds: int, published: bool = False) -> Epsilon:
    figure = epsilon(mechanism, rounds, published=published)
    assert isinstance(figure, Epsilon)
    return figure


def keeps(budget: float, figure: Epsilon) -> bool:
    return figure.value is not None and budget * (1 - 1e-9) <= figure.value <= budget


@settings(deadline=None)
@given(mechanisms, between(1e-3, 1e6), st.integers(2, 150), st.booleans())
def test_the_decay_found_spends_the_budget_and_the_float_below_overspends(
    m: Dpp2Releases, budget: float, rounds: int, published: bool
) -> None:
    found = answer(m, budget, "decay", rounds, published)
    assert found.epsilon == spent(found.mechanism, rounds, published)
    if not found.feasible:
        assert not spent(replace(m, decay=1.0), rounds, published).fits(budget)
        return
    assert 0 < found.decay <= 1
    assert keeps(budget, found.epsilon)
    shorter = replace(m, decay=float(np.nextafter(found.decay, 0)))
    assert not spent(shorter, rounds, published).fits(budget)


@settings(deadline=None)
@given(mechanisms, between(1e-3, 1e6), st.integers(1, 150), st.booleans())
def test_the_scale_found_spends_the_budget_with_one_factor_on_both(
    m: Dpp2Releases, budget: float, rounds: int, published: bool
) -> None:
    found = answer(m, budget, "scale", rounds, published)
    assert found.feasible
    assert keeps(budget, spent(found.mechanism, rounds, published))
    assert isinstance(found.mechanism, Dpp2Releases)
    assert (found.mechanism.u_e, found.mechanism.u_w) == (m.u_e * found.factor, m.u_w * found.factor)
    assert found.decay == m.decay


@settings(deadline=None)
@given(mechanisms, between(1e-2, 1e4), st.booleans())
def test_the_rounds_found_fit_and_one_more_does_not(m: Dpp2Releases, budget: float, published: bool) -> None:
    found = calibrate(m, budget, "rounds", published=published, most_rounds=3000)
    assert isinstance(found, Calibration)
    if not found.feasible:
        assert found.epsilon == spent(m, 1, published)
        assert not found.epsilon.fits(budget)
        return
    assert spent(m, found.rounds, published).fits(budget)
    if found.rounds < 3000:
        assert not spent(m, found.rounds + 1, published).fits(budget)
    else:
        assert "3000 rounds" in str(found.reason)


def test_an_infeasible_decay_names_the_smallest_epsilon_that_is_feasible() -> None:
    least = spent(replace(USUAL, decay=1.0), 100)
    found = answer(USUAL, 1.0, "decay", 100)
    assert not found.feasible
    assert found.epsilon == least
    assert f"ε = {least.value:.10g}" in str(found.reason)
    assert least.value is not None
    assert answer(USUAL, least.value, "decay", 100).decay == 1.0


def test_infeasible_rounds_name_what_one_round_spends() -> None:
    found = answer(USUAL, 1e-6, "rounds")
    assert not found.feasible
    assert f"a single round spends ε = {spent(USUAL, 1).value:.10g}" in str(found.reason)


def test_with_one_round_the_decay_does_not_matter_and_the_answer_says_so() -> None:
    found = answer(USUAL, 1.0, "decay", 1)
    assert (found.feasible, found.decay) == (True, 1.0)
    assert "does not matter" in str(found.reason)
    assert not answer(USUAL, 1e-6, "decay", 1).feasible


def test_publishing_makes_the_decay_matter_even_after_one_round() -> None:
    found = answer(USUAL, 1.0, "decay", 1, published=True)
    assert keeps(1.0, found.epsilon)
    assert found.decay < 1


def test_a_budget_that_any_decay_keeps_is_answered_with_the_smallest_float() -> None:
    found = answer(replace(USUAL, adjacency=1e-12), 1e306, "decay", 2)
    assert found.feasible
    assert "smallest decay" in str(found.reason)
    assert found.epsilon.fits(1e306)


@pytest.mark.parametrize("solve", ["decay", "scale"])
@pytest.mark.parametrize("silent", ["u_e", "u_w"])
def test_no_decay_and_no_factor_help_where_there_is_no_noise(solve: Unknown, silent: str) -> None:
    found = answer(changed(USUAL, silent, 0.0), 1.0, solve, 5)
    assert not found.feasible
    assert f"{silent} = 0" in str(found.reason)


def test_a_factor_beyond_float64_is_infeasible_and_says_how_far() -> None:
    found = answer(replace(USUAL, decay=0.5), 1.0, "scale", 5000)
    assert not found.feasible
    assert "10^" in str(found.reason)


def test_ten_thousand_rounds_are_calibrated_to_the_last_digits() -> None:
    for solve in ("decay", "scale"):
        assert keeps(
            1e6, answer(USUAL if solve == "decay" else replace(USUAL, decay=0.9999), 1e6, solve, 10_000).epsilon
        )


def test_outside_the_assumptions_nothing_is_calibrated() -> None:
    assert isinstance(calibrate(replace(USUAL, smoothness=math.inf), 1.0, "decay", rounds=5), Unsupported)


@pytest.mark.parametrize("budget", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_must_be_finite_and_positive(budget: float) -> None:
    with pytest.raises(BadInput, match="epsilon"):
        calibrate(USUAL, budget, "decay", rounds=5)


@pytest.mark.parametrize("rounds", [None, 0])
def test_rounds_are_asked_for_unless_they_are_solved_for(rounds: int | None) -> None:
    with pytest.raises(BadInput, match="rounds"):
        calibrate(USUAL, 1.0, "scale", rounds=rounds)


BASELINES = (
    StepReleases(dimension=10, smoothness=5.03, adjacency=0.1, u_x=1.0, decay=0.9, memory="none", steps=Schedule(0.1)),
    TrackingReleases(dimension=10, alpha=0.01, smoothness=5.03, adjacency=0.1, u_x=2.0, u_y=5.0, decay=0.9),
)


@pytest.mark.parametrize("releases", BASELINES, ids=lambda releases: releases.kind)
@pytest.mark.parametrize("solve", ["scale", "decay", "rounds"])
def test_baselines_are_calibrated_by_their_own_accountants(releases: Releases, solve: Any) -> None:
    """Within the budget and, where a real number is solved for, with nothing of it left."""
    found = calibrate(releases, 20.0, solve, rounds=None if solve == "rounds" else 30)
    assert isinstance(found, Calibration)
    spent = epsilon(found.mechanism, found.rounds)
    assert isinstance(spent, Epsilon)
    assert spent.fits(20.0)
    if solve != "rounds":
        assert spent.value == pytest.approx(20.0, rel=1e-9)
