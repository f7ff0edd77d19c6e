"""The accountant against an evaluation in 60 digits, its limits, and what it refuses to answer."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2.errors import BadInput
from dpp2.privacy import (
    MOST_ROUNDS,
    Curve,
    Dpp2Releases,
    Epsilon,
    Unsupported,
    add_up,
    cumulative,
    epsilon,
    largest_rounds,
    per_round,
    publish_term,
)

USUAL = Dpp2Releases(dimension=10, alpha=0.1, smoothness=5.0, adjacency=0.1, u_e=1.0, u_w=0.7, decay=0.95)


def changed(mechanism: Dpp2Releases, field: str, value: Any) -> Dpp2Releases:
    return replace(mechanism, **{field: value})


def between(low: float, high: float) -> st.SearchStrategy[float]:
    """Log-uniform, so that every order of magnitude is tried."""
    return st.floats(math.log(low), math.log(high)).map(math.exp)


mechanisms = st.builds(
    Dpp2Releases,
    dimension=st.integers(1, 50),
    alpha=between(1e-3, 2),
    smoothness=st.one_of(st.just(0.0), between(1e-3, 20)),
    adjacency=between(1e-6, 10),
    u_e=between(1e-3, 1e3),
    u_w=between(1e-3, 1e3),
    decay=st.floats(0.3, 1.0),
    start_adjacency=st.one_of(st.just(0.0), between(1e-3, 1)),
)


def spent(mechanism: Dpp2Releases, rounds: int, published: bool = False) -> Epsilon:
    answer = epsilon(mechanism, rounds, published=published)
    assert isinstance(answer, Epsilon)
    return answer


def in_sixty_digits(m: Dpp2Releases, rounds: int, published: bool = False) -> mpmath.mpf:
    """accountant.py, by the recursion as it is written there."""
    with mpmath.workdps(60):
        delta, alpha, M, r = (mpmath.mpf(v) for v in (m.adjacency, m.alpha, m.smoothness, m.decay))
        moved, shrunk, total = mpmath.mpf(m.start_adjacency), mpmath.mpf(1), mpmath.mpf(0)
        for _ in range(rounds):
            a = delta + M * moved
            total += moved / (m.u_w * shrunk) + a / (m.u_e * shrunk)
            moved, shrunk = alpha * a, shrunk * r
        if published:
            total += moved / (m.u_w * shrunk)
        return mpmath.sqrt(m.dimension) * total


@pytest.mark.parametrize("smoothness", [0.0, 5.0, 9.999999, 10.0, 10.000001, 25.0])
@pytest.mark.parametrize("decay", [0.01, 0.9, 0.9999, 1.0])
@pytest.mark.parametrize("start", [0.0, 0.3])
def test_agrees_with_sixty_digits_below_at_and_above_alpha_M_equal_to_one(
    smoothness: float, decay: float, start: float
) -> None:
    m = replace(USUAL, smoothness=smoothness, decay=decay, start_adjacency=start)
    for rounds in (1, 2, 7, 120):
        for published in (False, True):
            exact = in_sixty_digits(m, rounds, published)
            assert spent(m, rounds, published).value == pytest.approx(float(exact), rel=2e-13)


@pytest.mark.parametrize(("smoothness", "decay"), [(5.0, 0.999), (10.0, 1.0), (10.0, 0.5), (11.0, 0.9)])
def test_agrees_with_sixty_digits_over_ten_thousand_rounds(smoothness: float, decay: float) -> None:
    m = replace(USUAL, smoothness=smoothness, decay=decay)
    with mpmath.workdps(60):
        exact = float(mpmath.log10(in_sixty_digits(m, 10_000)))
    answer = spent(m, 10_000)
    assert answer.log10 == pytest.approx(exact, rel=1e-13)
    assert (answer.value is None) == (exact > math.log10(1.797e308))


@settings(deadline=None)
@given(mechanisms, st.integers(1, 40), st.booleans())
def test_agrees_with_sixty_digits_anywhere(m: Dpp2Releases, rounds: int, published: bool) -> None:
    assert spent(m, rounds, published).value == pytest.approx(float(in_sixty_digits(m, rounds, published)), rel=1e-12)


@settings(deadline=None)
@given(mechanisms, st.integers(1, 60), st.sampled_from(["u_e", "u_w", "decay"]), st.floats(1.0, 3.0))
def test_more_noise_never_costs_more(m: Dpp2Releases, rounds: int, which: str, factor: float) -> None:
    more = changed(m, which, min(1.0, m.decay * factor) if which == "decay" else getattr(m, which) * factor)
    assert spent(more, rounds).log10 <= spent(m, rounds).log10 + 1e-12


@settings(deadline=None)
@given(mechanisms, st.integers(0, 60), st.floats(1.0, 3.0))
def test_more_rounds_and_wider_adjacency_never_cost_less(m: Dpp2Releases, rounds: int, factor: float) -> None:
    assert spent(m, rounds).log10 < spent(m, rounds + 1).log10
    assert spent(m, rounds).log10 <= spent(m, rounds, published=True).log10 <= spent(m, rounds + 1).log10 + 1e-12
    wider = replace(m, adjacency=m.adjacency * factor)
    assert spent(m, rounds + 1).log10 <= spent(wider, rounds + 1).log10 + 1e-12


@settings(deadline=None)
@given(mechanisms, st.integers(1, 200))
def test_the_curve_ends_at_the_total_and_its_steps_are_the_rounds(m: Dpp2Releases, rounds: int) -> None:
    curve, steps = cumulative(m, rounds), per_round(m, rounds)
    assert isinstance(curve, Curve)
    assert isinstance(steps, Curve)
    assert curve.values[-1] == spent(m, rounds).value
    np.testing.assert_allclose(np.cumsum(steps.values), curve.values, rtol=1e-12)
    np.testing.assert_allclose(10**curve.log10, curve.values, rtol=1e-10)


def test_a_million_rounds_neither_overflow_nor_take_a_second() -> None:
    for decay in (1.0, 0.999999, 0.5, 1e-300):
        for smoothness in (5.0, 10.0, 11.0):
            m = replace(USUAL, decay=decay, smoothness=smoothness)
            begin = time.process_time()
            answer = spent(m, 1_000_000)
            assert time.process_time() - begin < 1.0
            assert math.isfinite(answer.log10)
    huge = replace(USUAL, decay=0.5)
    assert spent(huge, 1_000_000).value is None
    assert spent(huge, 1_000_000).log10 == pytest.approx(301_029.4, abs=1)
    curve = cumulative(huge, 1_000_000)
    assert isinstance(curve, Curve)
    assert np.isfinite(curve.log10).all()
    assert curve.log10[-1] == pytest.approx(spent(huge, 1_000_000).log10, rel=1e-12)


def test_round_0_costs_root_d_delta_over_u_e_and_nothing_for_w() -> None:
    assert spent(USUAL, 1).value == pytest.approx(math.sqrt(10) * 0.1 / 1.0, rel=1e-15)
    assert spent(replace(USUAL, u_w=1e-9, decay=0.0), 1) == spent(USUAL, 1)


def test_a_start_that_may_differ_adds_its_own_term_and_raises_a_0() -> None:
    m = replace(USUAL, start_adjacency=0.2)
    assert spent(m, 1).value == pytest.approx(math.sqrt(10) * ((0.1 + 5 * 0.2) / 1.0 + 0.2 / 0.7), rel=1e-14)


def test_publishing_costs_the_w_term_of_the_round_that_would_have_followed() -> None:
    term = publish_term(USUAL, 3)
    assert isinstance(term, Epsilon)
    a_2 = 0.1 * (1 + 0.5 + 0.25)
    assert term.value == pytest.approx(math.sqrt(10) * 0.1 * a_2 / (0.7 * 0.95**3), rel=1e-13)
    assert spent(USUAL, 3, published=True).value == pytest.approx(add_up([spent(USUAL, 3), term]).value, rel=1e-14)


def test_decay_0_means_noise_in_round_0_only() -> None:
    m = replace(USUAL, decay=0.0)
    assert spent(m, 1) == spent(USUAL, 1)
    after = spent(m, 2)
    assert (after.log10, after.value) == (math.inf, None)
    assert "decay = 0" in str(after.reason)


@pytest.mark.parametrize(("silent", "rounds"), [("u_e", 1), ("u_w", 2)])
def test_no_noise_is_an_infinite_epsilon_with_its_reason(silent: str, rounds: int) -> None:
    bare = spent(changed(USUAL, silent, 0.0), rounds)
    assert (bare.log10, bare.value) == (math.inf, None)
    assert f"{silent} = 0" in str(bare.reason)
    assert str(bare) == "∞"


def test_no_rounds_cost_nothing() -> None:
    assert spent(USUAL, 0) == Epsilon(-math.inf, 0.0)


def test_a_tiny_epsilon_never_reads_as_zero() -> None:
    tiny = spent(replace(USUAL, adjacency=1e-200, u_e=1e200, u_w=1e200), 1)
    assert tiny.log10 == pytest.approx(-399.5)
    assert tiny.value is not None
    assert tiny.value > 0


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("smoothness", math.inf, "Lipschitz"),
        ("smoothness", math.nan, "Lipschitz"),
        ("adjacency", 0.0, "adjacency"),
        ("adjacency", -1.0, "adjacency"),
        ("adjacency", math.inf, "adjacency"),
        ("start_adjacency", math.nan, "start_adjacency"),
    ],
)
def test_outside_the_assumptions_the_answer_is_a_reason_and_never_a_number(field: str, value: float, word: str) -> None:
    m = changed(USUAL, field, value)
    for answer in (epsilon(m, 5), cumulative(m, 5), per_round(m, 5), publish_term(m, 5), largest_rounds(m, 1.0, 5)):
        assert isinstance(answer, Unsupported)
        assert word in answer.reason
        assert str(answer).startswith("unsupported, because")


@pytest.mark.parametrize(
    ("field", "value"),
    [("dimension", 0), ("dimension", True), ("alpha", 0.0), ("u_e", -1.0), ("u_w", math.nan), ("decay", 1.5)],
)
def test_what_is_no_mechanism_at_all_is_bad_input_that_names_the_field(field: str, value: float) -> None:
    with pytest.raises(BadInput, match=field):
        changed(USUAL, field, value)


@pytest.mark.parametrize("rounds", [-1, 2.5, MOST_ROUNDS + 1])
def test_impossible_rounds_are_bad_input(rounds: int) -> None:
    with pytest.raises(BadInput, match="rounds"):
        epsilon(USUAL, rounds)


@settings(deadline=None)
@given(mechanisms, between(1e-3, 1e6), st.integers(1, 300), st.booleans())
def test_largest_rounds_is_the_last_count_that_fits(m: Dpp2Releases, budget: float, most: int, published: bool) -> None:
    found = largest_rounds(m, budget, most, published=published)
    assert isinstance(found, int)
    assert found == 0 or spent(m, found, published).fits(budget)
    assert found == most or not spent(m, found + 1, published).fits(budget)


def test_sums_beyond_float64_are_added_in_logarithms() -> None:
    huge = spent(replace(USUAL, decay=0.5), 5000)
    both = add_up([huge, huge])
    assert both.value is None
    assert both.log10 == pytest.approx(huge.log10 + math.log10(2), rel=1e-12)
