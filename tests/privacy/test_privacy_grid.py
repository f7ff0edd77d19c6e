"""What noise on a grid costs, against exact distributions and two worlds played side by side."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2.arrays import Array
from dpp2.grid import grid, largest_carried, to_grid
from dpp2.inversion import TAIL_BITS, Law
from dpp2.privacy import Dpp2Releases
from dpp2.privacy.grid import GridCost, covered_rounds, first_uncovered

LAPLACE = Law("laplace", 20)


def laplace_bins(c: float, reach: int) -> Array:
    """P(rint(c·X) = n) for n = −reach … reach."""
    n = np.arange(1, reach + 1)
    side = np.exp(-n / c) * math.sinh(1 / (2 * c))
    return np.concatenate([side[::-1], [-math.expm1(-1 / (2 * c))], side])


def default(u: float = 1.0, decay: float = 0.9) -> Dpp2Releases:
    """The paper's experiment at δ = 1."""
    return Dpp2Releases(dimension=10, alpha=0.1, smoothness=5.03, adjacency=1.0, u_e=u, u_w=u, decay=decay)


def totals(mechanism: Dpp2Releases, rounds: int, bits: int) -> tuple[float, float]:
    """ε on real numbers, and on the grid."""
    cost, releases = GridCost(mechanism.dimension, Law("laplace", bits)), mechanism.log_releases(rounds)
    return sum(float(np.exp(one).sum()) for one in releases), sum(
        float(np.exp(cost.charged(one)).sum()) for one in releases
    )


# --- one message -------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.floats(2, 60), st.integers(0, 40))
def test_a_shift_by_whole_steps_costs_what_the_real_mechanism_charges(c: float, steps: int) -> None:
    bins = laplace_bins(c, 400)
    loss = np.abs(np.log(bins[steps:]) - np.log(bins[: len(bins) - steps]))
    assert loss.max() <= steps / c * (1 + 1e-9)


@given(st.floats(-50, 50), st.floats(0, 5), st.floats(0.01, 100), st.integers(2, 24))
def test_rounding_moves_two_values_apart_by_at_most_one_step(v: float, a: float, scale: float, bits: int) -> None:
    g = float(grid(scale, bits))
    apart = abs(to_grid(np.array([[v + a]]), g).item() - to_grid(np.array([[v]]), g).item())
    assert apart / scale <= (a / scale + 2.0**-bits) * (1 + 1e-9)


@pytest.mark.parametrize("steps", [0, 1, 5, 20])
@pytest.mark.parametrize("S", [4, 8, 12])
def test_the_finite_tail_costs_no_more_than_its_delta(S: int, steps: int) -> None:
    """A sampler that knows only G ≤ S: its last block has the mass of all that should come after it."""
    H = 8
    c = H / math.log(2)
    whole = laplace_bins(c, 60 * H)
    centre, ends = len(whole) // 2, S * H
    cut = whole.copy()
    outside = np.abs(np.arange(len(whole)) - centre) > ends
    last = ~outside & (np.abs(np.arange(len(whole)) - centre) > ends - H)
    cut[last] += whole[outside].sum() * whole[last] / whole[last].sum()
    cut[outside] = 0.0
    one, other = cut[steps:], cut[: len(cut) - steps]
    t = steps / c
    excess = max(float(np.maximum(a - math.exp(t) * b, 0).sum()) for a, b in ((one, other), (other, one)))
    assert excess <= (1 + math.exp(t)) * 2.0**-S * (1 + 1e-9)


# --- a run -------------------------------------------------------------------------------------------------------


def test_twenty_bits_cost_less_than_one_per_cent_over_500_rounds_in_ten_dimensions() -> None:
    plain, charged = totals(default(), 500, 20)
    assert charged / plain - 1 < 1e-5
    u = totals(default(1.0, 1.0), 500, 20)[0]  # the scale at which 500 rounds without decay spend ε = 1
    plain, charged = totals(default(u, 1.0), 500, 20)
    assert plain == pytest.approx(1.0)
    assert charged == pytest.approx(1.00955, abs=1e-5)


def test_more_noise_never_costs_more() -> None:
    spent = [totals(default(u, 1.0), 50, 20)[1] for u in np.geomspace(0.5, 5, 200)]
    assert spent == sorted(spent, reverse=True)


def test_a_value_that_is_the_same_in_both_worlds_costs_nothing() -> None:
    _, log_w = default().log_releases(3)
    charged = GridCost(10, LAPLACE).charged(log_w)
    assert charged[0] == -np.inf
    assert (charged[1:] > log_w[1:]).all()


def test_without_a_grid_nothing_is_added() -> None:
    cost, releases = GridCost(10, Law("laplace", 0)), default().log_releases(5)
    assert cost.charged(releases[0]) is releases[0]
    assert (cost.per_message, cost.extra(100), cost.log2_delta(releases)) == (0.0, 0.0, -math.inf)


def test_gaussian_shifts_pay_the_root_of_the_dimension() -> None:
    cost = GridCost(16, Law("gaussian", 10))
    assert np.exp(cost.charged_shifts(np.log([0.5]))).item() == pytest.approx(0.5 + 4 * 2**-10)
    assert 0 < cost.extra(100) < 1e-5


def test_delta_adds_up_over_coordinates_and_messages_and_ends_at_one() -> None:
    quiet = GridCost(10, LAPLACE).log2_delta(default(1e6, 1.0).log_releases(500))
    assert quiet == pytest.approx(math.log2(999 * 10 * 2) - TAIL_BITS, abs=1e-4)  # round 0 sends no new x
    assert GridCost(10, LAPLACE).log2_delta(default().log_releases(500)) == 0.0  # beyond any tail
    assert GridCost(10, LAPLACE).log2_delta([np.full(3, -np.inf)]) == -math.inf


# --- coverage ----------------------------------------------------------------------------------------------------


def test_coverage_ends_where_the_largest_value_passes_what_float64_carries() -> None:
    k = covered_rounds(10.0, 1.0, 0.9, LAPLACE, 1000)
    assert k == 191
    assert largest_carried(0.9**k, LAPLACE) <= 10.0 < largest_carried(0.9 ** (k - 1), LAPLACE)
    assert covered_rounds(10.0, 1.0, 1.0, LAPLACE, 1000) == 1000
    assert first_uncovered(np.array([1.0, 1e300]), np.array([1.0, 0.0]), LAPLACE) is None  # no noise: nothing to carry
    assert first_uncovered(np.array([1.0, np.nan]), np.array([1.0, 1.0]), LAPLACE) == 1


# --- where DPP²'s next round must start ---------------------------------------------------------------------------


def excess(start: str, rounds: int = 12) -> tuple[float, float]:
    """Two worlds with the same messages (d = 1, curvature −M, gradients δ apart): how far Δw and Δe, in units of g,
    exceed α·a + g and a + g. The grid is coarse, so that its effect can be seen."""
    rng, trials = np.random.default_rng(0), 20_000
    alpha, M, delta, decay, bits = 0.1, 5.0, 1.0, 0.9, 4
    x, a, before, worst = np.zeros((2, trials)), delta, 0.0, [-np.inf, -np.inf]
    for k in range(rounds):
        scale = 1000.0 * decay**k
        g = float(grid(scale, bits))
        s = to_grid(x[0] + scale * rng.laplace(size=trials), g)
        w = s - to_grid(x, g)
        gradient = -M * x + np.array([[0.0], [delta]])
        apart = np.abs(w[0] - w[1]).max(), np.abs(np.diff(to_grid(gradient, g), axis=0)).max()
        allowed = alpha * before + (g if k else 0.0), a + g
        worst = [max(had, (moved - most) / g) for had, moved, most in zip(worst, apart, allowed, strict=True)]
        shared = scale * rng.normal(size=trials)  # −αq + βPz: the messages determine it
        starts = {"x + w": x + w, "s": s, "s, rounded gradient": s}
        x = starts[start] + shared - alpha * (to_grid(gradient, g) if "rounded" in start else gradient)
        before, a = a, delta + alpha * M * a
    return worst[0], worst[1]


def test_a_round_that_starts_from_s_and_takes_the_bare_gradient_keeps_the_account() -> None:
    assert max(excess("s")) <= 1e-9


def test_a_round_that_starts_from_x_plus_w_breaks_the_account() -> None:
    """The rounding of one round becomes a difference in the next."""
    assert excess("x + w")[0] > 0.9
    assert excess("x + w")[1] > 5


def test_stepping_along_the_rounded_gradient_breaks_the_account_too() -> None:
    """Its rounding enters the next x: ‖Δx‖ ≤ α(a + √d·g), not α·a."""
    assert excess("s, rounded gradient")[1] > 0.5
