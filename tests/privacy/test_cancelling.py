"""Costs, budgets and shares of cancelling noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import gammainccinv

from dpp2 import Experiment
from dpp2.errors import BadInput
from dpp2.inversion import Uniforms
from dpp2.keys import Keystream
from dpp2.privacy import gdp
from dpp2.privacy.cancelling import Budget, GradientRelease, grid_of, mean_variance
from dpp2.privacy.cancelling_releases import CancellingReleases
from dpp2.privacy.colluders import WorstCase, worst_case
from dpp2.privacy.correlated import Kind, NoiseNetwork
from dpp2.shares import gamma_parts, standard_share
from tests.privacy.noise_networks import PAPER

KINDS = st.sampled_from(["gaussian", "laplace"])


def budget(kind: Kind, epsilon: float) -> Budget:
    return Budget(epsilon, 1e-5 if kind == "gaussian" else None)


@settings(deadline=None)
@given(KINDS, st.floats(0.01, 50), st.integers(1, 500), st.floats(0.01, 10), st.sampled_from([None, 30, 45]))
def test_own_scale_is_the_smallest_that_keeps_the_budget(
    kind: Kind, epsilon: float, rounds: int, exposure: float, bits: int | None
) -> None:
    release, allowed = GradientRelease(kind, 0.1, 10), budget(kind, epsilon)
    scale = release.own_scale(exposure, allowed, rounds, bits)
    cost = float(release.cost(exposure / scale, grid_of(scale, bits)))
    assert release.epsilon(cost, rounds, allowed.delta) <= epsilon * (1 + 1e-12)
    if bits is None:
        cost = float(release.cost(exposure / (scale * 0.999)))
        assert release.epsilon(cost, rounds, allowed.delta) > epsilon


@settings(deadline=None)
@given(KINDS, st.floats(0.1, 50), st.floats(0.01, 10))
def test_gradient_rounds_are_the_most_that_keep_the_budget(kind: Kind, epsilon: float, cost: float) -> None:
    release, allowed = GradientRelease(kind, 0.1, 10), budget(kind, epsilon)
    G = release.most_gradient_rounds(cost, allowed)
    assert release.epsilon(cost, G, allowed.delta) <= epsilon
    assert release.epsilon(cost, G + 1, allowed.delta) > epsilon


def test_scales_of_the_papers_network_at_epsilon_1() -> None:
    """Any one colluder, δ = 0.1, d = 10: own noise of a seventh of what local noise needs, that is 1/√49."""
    network = NoiseNetwork.of("gaussian", PAPER, np.ones(50), 100.0)
    worst = worst_case(network, 1)
    assert isinstance(worst, WorstCase)
    release, allowed = GradientRelease("gaussian", 0.1, 10), Budget(1.0, 1e-5)
    ours, local = (release.own_scale(exposure, allowed, 20) for exposure in (worst.largest, 1.0))
    assert ours / local == pytest.approx(1 / 7, rel=2e-3)
    assert local == pytest.approx(0.1 * math.sqrt(20) / gdp.mu_at(1.0, 1e-5), rel=1e-12)


def test_shares_of_everybody_are_almost_a_curators_laplace_noise() -> None:
    """q = N − 1 against two holders, at equal ε: half of the variance."""
    own = np.ones(50)
    shares = worst_case(NoiseNetwork.of("laplace", PAPER, own, 100.0, quorum=49), 1)
    assert isinstance(shares, WorstCase)
    assert shares.largest == pytest.approx(1.06)  # the farthest two agents are six edges apart
    curator = 2 / 50**2
    assert mean_variance("laplace", own, 49) * shares.largest**2 / curator == pytest.approx(1.1465, abs=1e-3)
    holders = np.where(np.arange(50) < 2, 1.0, 0.0)
    assert mean_variance("laplace", holders) / curator == pytest.approx(2)
    assert mean_variance("gaussian", own) == pytest.approx(1 / 50)


@given(st.floats(1e-9, 1e9), st.integers(0, 40))
def test_the_grid_is_a_power_of_two_below_its_share_of_the_scale(scale: float, bits: int) -> None:
    grid = grid_of(scale, bits)
    assert math.frexp(grid)[0] == 0.5
    assert grid <= scale * 2.0**-bits < 2 * grid


def test_nothing_released_costs_nothing() -> None:
    assert GradientRelease("laplace", 0.1, 3).epsilon(1.0, 0) == 0
    assert GradientRelease("gaussian", 0.1, 3).epsilon(1.0, 0, 1e-5) == 0


def test_gaussian_noise_has_no_pure_epsilon() -> None:
    with pytest.raises(BadInput, match="no pure ε"):
        GradientRelease("gaussian", 0.1, 3).epsilon(1.0, 5)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_refuses_budgets_that_are_none(epsilon: float) -> None:
    with pytest.raises(BadInput, match="a finite number > 0"):
        Budget(epsilon)


def test_refuses_a_grid_that_costs_more_than_the_budget() -> None:
    with pytest.raises(BadInput, match="a finer grid"):
        GradientRelease("laplace", 0.1, 10).own_scale(1.0, Budget(0.01), 500, bits=4)


@pytest.mark.parametrize("exposure", [0.0, math.inf])
def test_refuses_to_calibrate_for_an_agent_that_nothing_hides(exposure: float) -> None:
    with pytest.raises(BadInput, match="hidden by nothing"):
        GradientRelease("laplace", 0.1, 3).own_scale(exposure, Budget(1.0), 1)


# --- shares ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quorum", [1, 2, 9, 49, 500])
def test_small_parts_of_a_share_agree_with_scipys_inverse(quorum: int) -> None:
    """Far below a step of any grid, on both sides of where the fixed point takes over."""
    upper = Uniforms.of([(Keystream(bytes(32)), 0, 0, 20_000)]).numbers()
    found, wanted = gamma_parts(upper, quorum), gammainccinv(1 / quorum, upper)
    assert np.abs(found - wanted).max() < 1e-16
    seen = (wanted > 1e-200) & (wanted < 2.0**-14)
    assert seen.sum() > (50 if quorum > 1 else 0)
    np.testing.assert_allclose(found[seen], wanted[seen], rtol=quorum * 1e-14)


@pytest.mark.parametrize("quorum", [1, 2, 7, 49])
def test_any_quorum_of_shares_is_laplace(quorum: int) -> None:
    uniforms = Uniforms.of([(Keystream(bytes(range(32))), 3, 0, quorum * 2 * 2000)])
    shares = standard_share(uniforms.reshape(quorum, 2 * 2000), quorum)
    assert shares.shape == (quorum, 2000)
    assert stats.kstest(shares.sum(axis=0), stats.laplace.cdf).pvalue > 1e-3
    assert shares.var() == pytest.approx(2 / quorum, rel=0.2)


def test_shares_of_the_extreme_numbers_are_finite() -> None:
    words, steps = np.array([0, 2**64 - 1, 2**64 - 1, 0], dtype=np.uint64), np.array([80, 1, 1, 80], dtype=np.uint8)
    for quorum in (1, 49, 10**5):
        drawn = standard_share(Uniforms(words, steps), quorum)
        assert np.isfinite(drawn).all()
        np.testing.assert_array_equal(drawn[0], -drawn[1])
    assert standard_share(Uniforms(words, steps), 1)[0] == pytest.approx(80 * math.log(2), rel=1e-12)


def test_a_share_does_not_depend_on_its_neighbours() -> None:
    uniforms = Uniforms.of([(Keystream(bytes(32)), 0, 0, 400)]).reshape(20, 20)
    together = standard_share(uniforms, 49)
    for words, steps, drawn in zip(uniforms.words, uniforms.steps, together, strict=True):
        assert standard_share(Uniforms(words, steps), 49).tobytes() == drawn.tobytes()


@pytest.mark.parametrize(("epsilon", "measured"), [(50.0, 1.5e-4), (60.0, 3.16e-3)])
def test_a_gaussian_tail_is_charged_where_shifts_come_near_its_end(epsilon: float, measured: float) -> None:
    """Drawn were 4e6 variates: so many lie where the other world has none. One coordinate, own noise alone."""
    mu = gdp.mu_at(epsilon, 1e-5)
    releases = CancellingReleases(
        noise="gaussian",
        dimension=1,
        adjacency=mu,
        own=1.0,
        exposure=1.0,
        variates=1,
        precision=0.0,
        gradient_rounds=1,
        mixings=1,
        delta=1e-5,
    )
    assert measured / 1.3 < 2.0 ** releases._log2_tail(1) < 3 * measured
    assert math.isinf(releases.epsilon_of(1, 1e-5))


@pytest.mark.parametrize("scales", [{"noise.ratio": 2e5}, {"noise.own": 1.0, "noise.edge": 1e6}])
def test_scales_too_far_apart_for_the_account_are_refused(scales: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=r"noise\.(ratio|edge) = .*100,000"):
        Experiment.load(overrides={"algorithm.name": "dpp3", **scales}).resolve()
