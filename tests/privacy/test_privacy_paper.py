"""Where the paper's privacy claims fail, one test each, with the figures of accountant.py."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpp2.errors import BadInput
from dpp2.privacy import (
    Corollary1Bounds,
    Dpp2Releases,
    Epsilon,
    PaperDecay,
    PaperEpsilon,
    Unsupported,
    c_tilde,
    corollary_1_bounds,
    corollary_1_decay,
    epsilon,
    theorem_3,
)

PAPER = Dpp2Releases(dimension=10, alpha=0.0994, smoothness=5.03, adjacency=1.0, u_e=1.0, u_w=0.994, decay=0.9)


def changed(mechanism: Dpp2Releases, field: str, value: Any) -> Dpp2Releases:
    return replace(mechanism, **{field: value})


def exact(mechanism: Dpp2Releases, rounds: int) -> Epsilon:
    answer = epsilon(mechanism, rounds)
    assert isinstance(answer, Epsilon)
    return answer


def claimed(mechanism: Dpp2Releases, rounds: int) -> PaperEpsilon:
    answer = theorem_3(mechanism, rounds)
    assert isinstance(answer, PaperEpsilon)
    return answer


def bounds_of(mechanism: Dpp2Releases, budget: float) -> Corollary1Bounds:
    answer = corollary_1_bounds(mechanism, budget)
    assert isinstance(answer, Corollary1Bounds)
    return answer


def per_round_cost(mechanism: Dpp2Releases) -> float:
    answer = c_tilde(mechanism)
    assert isinstance(answer, PaperEpsilon)
    assert answer.value is not None
    return answer.value


@pytest.mark.parametrize("decay", [0.5, 0.9, 1.0])
def test_theorem_3_leaves_out_the_round_0_term(decay: float) -> None:
    """Algorithm 1 runs k = 0 … K. Where nothing else is loose (M = 0), exactly √d·δ/u_e is missing."""
    flat = replace(PAPER, smoothness=0.0, decay=decay)
    K = 7
    missing = math.sqrt(10) * flat.adjacency / flat.u_e
    ours, theirs = exact(flat, K + 1).value, claimed(flat, K).value
    assert ours is not None
    assert theirs is not None
    assert ours - theirs == pytest.approx(missing, rel=1e-11)


def test_theorem_3_read_as_K_rounds_from_0_is_loose_but_not_too_small() -> None:
    """Its k-th term is at least our (k−1)-th: shifted by one round, the sum is an upper bound."""
    for decay in (0.1, 0.5, 0.9, 1.0):
        for smoothness in (0.0, 5.03, 9.9):
            m = replace(PAPER, decay=decay, smoothness=smoothness)
            assert exact(m, 20).log10 <= claimed(m, 20).log10 + 1e-12


def test_corollary_1_promises_2_c_and_spends_722_c_over_500_rounds() -> None:
    m = PAPER
    c = per_round_cost(m)
    recipe = corollary_1_decay(m, 500, 2 * c)
    assert isinstance(recipe, PaperDecay)
    assert recipe.decay == pytest.approx(0.99861, abs=5e-6)
    by_theorem_3 = claimed(replace(m, decay=recipe.decay), 500).value
    assert by_theorem_3 is not None
    assert by_theorem_3 / c == pytest.approx(722.4, abs=0.1)
    assert by_theorem_3 / recipe.promised == pytest.approx(361.2, abs=0.1)
    really = exact(replace(m, decay=recipe.decay), 500).value
    assert really is not None
    assert really / c == pytest.approx(720, abs=2)


def test_corollary_1_prints_p_to_the_K_where_the_sum_gives_p_to_the_K_plus_1() -> None:
    p, K = 1.05, 20
    budget_over_c = sum(p**k for k in range(1, K + 1))  # the budget is met with equality
    assert p ** (K + 1) - (1 + budget_over_c) * p + budget_over_c == pytest.approx(0, abs=1e-12)
    assert p**K - (1 + budget_over_c) * p + budget_over_c < -0.1


@settings(deadline=None)
@given(st.floats(0.2, 0.9999), st.integers(1, 400))
def test_no_decay_meets_a_budget_below_K_c(decay: float, K: int) -> None:
    m = replace(PAPER, decay=decay)
    assert claimed(m, K).log10 >= math.log10(K * per_round_cost(m)) - 1e-12


@settings(deadline=None)
@given(
    st.floats(0.01, 3),
    st.floats(0.0, 20),
    st.floats(0.01, 10),
    st.floats(0.05, 20),
    st.floats(0.05, 20),
    st.floats(0.1, 50),
)
def test_corollary_1_with_delta_where_it_belongs_is_equivalent_to_its_own_condition(
    alpha: float, M: float, delta: float, u_e: float, u_w: float, budget: float
) -> None:
    assume(alpha * M < 0.999)
    m = Dpp2Releases(dimension=10, alpha=alpha, smoothness=M, adjacency=delta, u_e=u_e, u_w=u_w, decay=0.9)
    c, bounds = per_round_cost(m), bounds_of(m, budget)
    assume(abs(c / budget - 1) > 1e-9)
    assert (c < budget) == (u_e > bounds.u_e_meant and alpha < bounds.alpha_meant)


def test_corollary_1_as_printed_admits_settings_that_break_its_own_condition() -> None:
    m = Dpp2Releases(dimension=1, alpha=0.1, smoothness=0.1, adjacency=1.0, u_e=1.0, u_w=1.0, decay=0.9)
    bounds = bounds_of(m, 0.5)
    assert m.u_e > bounds.u_e_printed
    assert m.alpha < min(1 / m.smoothness, bounds.alpha_printed)
    assert per_round_cost(m) > 2 * 0.5
    assert isinstance(corollary_1_decay(m, 500, 0.5), Unsupported)


@pytest.mark.parametrize(("decay", "low", "high"), [(0.9, 24.6, 24.75), (0.5, 151.0, 151.7)])
def test_figure_3_spends_an_astronomical_epsilon(decay: float, low: float, high: float) -> None:
    """δ = 1, K = 500: 10^24.7 at r = .9 and 10^151 at r = .5. ε grows like r^{−K}."""
    m = replace(PAPER, decay=decay)
    assert low < exact(m, 500).log10 < high
    assert low < claimed(m, 500).log10 < high
    grown = exact(m, 600).log10 - exact(m, 500).log10
    assert grown == pytest.approx(-100 * math.log10(decay), rel=1e-9)


def test_the_exact_account_answers_where_theorem_3_cannot() -> None:
    steep = replace(PAPER, alpha=0.3)
    answer = theorem_3(steep, 10)
    assert isinstance(answer, Unsupported)
    assert "αM̄ < 1" in answer.reason
    assert exact(steep, 10).value is not None


def test_theorem_3_uses_the_largest_smoothness_of_the_network() -> None:
    modest = replace(PAPER, smoothness=1.0)
    wide = theorem_3(modest, 10, network_smoothness=5.03)
    assert isinstance(wide, PaperEpsilon)
    assert wide.value == claimed(PAPER, 10).value
    assert wide.log10 > claimed(modest, 10).log10


def test_whatever_the_paper_claims_says_that_it_is_the_paper_s() -> None:
    assert "the paper's Theorem 3" in claimed(PAPER, 5).source
    one = c_tilde(PAPER)
    assert isinstance(one, PaperEpsilon)
    assert "the paper's c̃" in one.source
    expected = math.sqrt(10) * (1 / 0.0994 + 1 / 0.994) * 0.0994 / (1 - 0.0994 * 5.03)
    assert one.value == pytest.approx(expected, rel=1e-13)
    recipe = corollary_1_decay(PAPER, 5, 1e6)
    assert isinstance(recipe, PaperDecay)
    assert "the paper's Corollary 1" in recipe.source
    assert "the paper's" in bounds_of(PAPER, 1.0).source


def test_a_claim_beyond_float64_keeps_its_logarithm() -> None:
    huge = claimed(replace(PAPER, decay=0.5), 5000)
    assert huge.value is None
    assert huge.log10 == pytest.approx(5000 * math.log10(2) + 1.3, abs=0.5)


@pytest.mark.parametrize(("field", "value"), [("u_e", 0.0), ("u_w", 0.0), ("decay", 0.0), ("start_adjacency", 1.0)])
def test_theorem_3_outside_its_assumptions_is_unsupported(field: str, value: float) -> None:
    assert isinstance(theorem_3(changed(PAPER, field, value), 5), Unsupported)
    assert isinstance(c_tilde(changed(PAPER, field, value)), Unsupported)
    assert isinstance(corollary_1_decay(changed(PAPER, field, value), 5, 1e6), Unsupported)


def test_theorem_3_needs_a_round_and_corollary_1_needs_two() -> None:
    with pytest.raises(BadInput, match="rounds"):
        theorem_3(PAPER, 0)
    assert isinstance(corollary_1_decay(PAPER, 1, 1e6), Unsupported)
