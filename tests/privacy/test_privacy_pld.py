"""Privacy-loss distributions against direct integrals, and always below the pure sum."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad, quad

from dpp2.errors import BadInput
from dpp2.privacy import Dpp2Releases, Epsilon, PrivacyProfile, Unsupported, epsilon, profile, release_sizes
from dpp2.privacy.pld import _deltas, _grouped

USUAL = Dpp2Releases(dimension=10, alpha=0.1, smoothness=5.0, adjacency=0.01, u_e=1.0, u_w=0.7, decay=0.95)


def composed(mechanism: Dpp2Releases, rounds: int, published: bool = False) -> PrivacyProfile:
    found = profile(mechanism, rounds, published=published)
    assert isinstance(found, PrivacyProfile)
    return found


def one_release(size: float, at: float) -> float:
    """δ_dp of Lap(0) against Lap(size), for any real ε."""
    return max(0.0, -math.expm1(at), -math.expm1((at - size) / 2))


def two_releases(first: float, second: float, at: float) -> float:
    """E over the loss L of the first release of δ_dp(ε − L) of the second."""
    kinks = [x for x in ((first - at - second) / 2, (first - at + second) / 2) if 0 < x < first]

    def weighted(x: float) -> float:
        return 0.5 * math.exp(-x) * one_release(second, at - (first - 2 * x))

    inner, _ = quad(weighted, 0, first, points=kinks or None, epsabs=1e-13)
    edges = 0.5 * one_release(second, at - first) + 0.5 * np.exp(-first) * one_release(second, at + first)
    return float(inner + edges)


def test_one_laplace_release_has_its_closed_form() -> None:
    found = composed(replace(USUAL, adjacency=0.5), 1)
    s = np.sqrt(10) * 0.5
    for at in (0.0, 0.3, 1.0, 1.5):
        assert found.delta(at)[0] == pytest.approx(one_release(s, at), rel=1e-9)
    assert found.epsilon(0.1) == pytest.approx(s + 2 * np.log(0.9), rel=1e-9)


def test_two_laplace_releases_agree_with_the_integral() -> None:
    found = composed(replace(USUAL, adjacency=0.3), 1, published=True)
    first, second = release_sizes(replace(USUAL, adjacency=0.3), 1, published=True)
    for at in (0.0, 0.2, 0.7, 1.0):
        exact = two_releases(first, second, at)
        assert exact <= found.delta(at)[0] + 1e-12
        assert found.delta(at)[0] == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("shift", [(0.5, 0.5), (0.9, 0.1), (1.5, 0.7)])
@pytest.mark.parametrize("at", [-0.4, 0.0, 0.6, 0.95])
def test_a_release_in_the_plane_is_dominated_by_the_line_with_its_l1_shift(
    shift: tuple[float, float], at: float
) -> None:
    """The lemma of the module's docstring; the plane's two coordinates are two independent releases."""
    assert two_releases(*shift, at) <= one_release(sum(shift), at) + 1e-12


def test_the_integral_over_the_plane_is_the_one_used_here() -> None:
    a, b, at = 0.9, 0.4, 0.3

    def lost(y: float, x: float) -> float:
        p = 0.25 * np.exp(-abs(x) - abs(y))
        return float(max(0.0, p - np.exp(at) * 0.25 * np.exp(-abs(x - a) - abs(y - b))))

    direct, _ = dblquad(lost, -12, a, -12, 12, epsabs=1e-5)
    assert direct == pytest.approx(two_releases(a, b, at), abs=1e-3)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 25), st.floats(0.001, 0.05), st.floats(0.9, 1.0), st.sampled_from([1e-12, 1e-9, 1e-5, 1e-2]))
def test_never_above_the_pure_sum(rounds: int, adjacency: float, decay: float, delta: float) -> None:
    m = replace(USUAL, adjacency=adjacency, decay=decay)
    pure = epsilon(m, rounds)
    assert isinstance(pure, Epsilon)
    assert pure.value is not None
    found = composed(m, rounds)
    assert 0 <= found.epsilon(delta) <= pure.value == found.pure
    assert found.epsilon(0.0) == pure.value
    assert found.delta(pure.value)[0] == 0


def test_many_small_releases_cost_far_less_than_their_sum() -> None:
    """Nearly Gaussian: the loss variance is Σ s², so ε(1e-5) is near the Gaussian value, not near Σ s."""
    m = replace(USUAL, adjacency=1e-3, decay=1.0)
    found = composed(m, 500)
    spread = np.sqrt((release_sizes(m, 500) ** 2).sum())
    assert found.pure > 3
    assert 3 * spread < found.epsilon(1e-5) < 5 * spread


def test_grouping_a_million_rounds_stays_above_the_sum_it_stands_for() -> None:
    m = replace(USUAL, adjacency=1e-6, decay=1 - 1e-6)
    sizes = release_sizes(m, 1_000_000)
    groups, added = _grouped(sizes)
    assert len(groups) <= 257
    assert sum(n for _, n in groups) <= sizes.size
    stood_for = sum(size * n for size, n in groups) + added
    assert sizes.sum() * (1 - 1e-12) <= stood_for <= 1.1 * sizes.sum()


def test_grouping_is_pessimistic_but_hardly_so() -> None:
    m = replace(USUAL, adjacency=2e-3, decay=0.99)
    sizes = release_sizes(m, 200)
    groups, added = _grouped(sizes)
    assert len(groups) < sizes.size
    squares = sum(size**2 * n for size, n in groups)
    assert (sizes**2).sum() * (1 - 1e-4) <= squares <= (sizes**2).sum() * 1.05
    kept = sum(n for _, n in groups)
    assert kept < sizes.size
    assert sizes[kept:].sum() <= added <= 1.01e-4 * sizes.sum()


def test_what_is_left_out_of_the_distribution_is_added_to_epsilon() -> None:
    found = composed(replace(USUAL, adjacency=2e-3, decay=0.99), 200)
    assert found.added > 0
    assert found.delta(found.epsilon(1e-5))[0] == pytest.approx(1e-5, rel=1e-6)
    assert found.delta(found.epsilon(1e-5) - found.added)[0] > 1.0005e-5


def test_rounding_of_a_hundred_thousand_compositions_never_takes_delta_below_its_allowance() -> None:
    found = composed(replace(USUAL, adjacency=1e-6, decay=1.0), 50_000)
    far_out = found.delta(np.linspace(0.5, 0.9, 20) * found.pure)
    assert (far_out >= found.rounding).all()
    assert found.rounding > 3e-11
    assert found.epsilon(found.rounding / 2) == pytest.approx(found.pure, rel=1e-9)


def test_delta_falls_as_epsilon_grows_and_matches_epsilon_of_delta() -> None:
    found = composed(USUAL, 20)
    grid = np.linspace(0, found.pure, 30)
    deltas = found.delta(grid)
    assert (np.diff(deltas) <= 1e-15).all()
    assert found.delta(grid[::-1]) == pytest.approx(deltas[::-1], abs=0)
    at = found.epsilon(1e-3)
    assert found.delta(at)[0] == pytest.approx(1e-3, rel=1e-3)


def test_the_trade_off_curve_bounds_the_optimal_test_of_one_release() -> None:
    """For one Laplace release the likelihood-ratio test is known: α = e^{−t}/2 gives β = e^{t−s}/2 for 0 ≤ t ≤ s."""
    found = composed(replace(USUAL, adjacency=0.5), 1)
    t = np.linspace(0, found.pure, 7)
    optimal = 0.5 * np.exp(t - found.pure)
    bound = found.trade_off(0.5 * np.exp(-t), points=2001)
    assert (bound <= optimal + 1e-12).all()
    np.testing.assert_allclose(bound, optimal, rtol=1e-3)
    assert found.trade_off(np.array([0.0, 1.0])) == pytest.approx([1.0, 0.0], abs=1e-12)


def test_above_a_pure_sum_of_100_the_answer_is_pure_epsilon_only() -> None:
    for m in (replace(USUAL, adjacency=10.0), replace(USUAL, decay=0.0), replace(USUAL, u_e=0.0)):
        answer = profile(m, 20)
        assert isinstance(answer, Unsupported)
        assert answer.reason.startswith("pure ε only, because")
    assert isinstance(profile(replace(USUAL, adjacency=0.0), 5), Unsupported)


def test_bad_questions_are_refused_in_one_sentence() -> None:
    found = composed(USUAL, 1)
    with pytest.raises(BadInput, match="delta"):
        found.epsilon(1.0)
    with pytest.raises(BadInput, match="epsilon"):
        found.delta(-0.1)
    with pytest.raises(BadInput, match="false_positive"):
        found.trade_off(1.5)
    with pytest.raises(BadInput, match="rounds"):
        profile(USUAL, 0)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.privacy_loss_distribution", None)
    with pytest.raises(BadInput, match="pip install dp-accounting"):
        profile(USUAL, 3)


def test_importing_the_package_does_not_import_the_extra() -> None:
    code = "import sys, dpp2.privacy; sys.exit('dp_accounting' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("adjacency", "rounds"), [(0.01, 1), (0.1, 12), (0.001, 100)])
def test_the_curve_has_the_bits_of_dp_accounting(adjacency: float, rounds: int) -> None:
    found = composed(replace(USUAL, adjacency=adjacency), rounds)
    at = np.linspace(-1.0, found.pure, 57)
    np.testing.assert_array_equal(_deltas(found._distribution, at), found._distribution.get_delta_for_epsilon(at))


def test_no_epsilon_is_too_large_for_the_curve() -> None:
    found = composed(USUAL, 12)
    np.testing.assert_array_equal(found.delta(np.array([1e6, np.inf])), np.repeat(found.delta(found.pure), 2))
