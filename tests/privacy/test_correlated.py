"""The accounts of noise that cancels, against whole joint distributions, closed integrals and linear programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import k0e
from scipy.stats import multivariate_normal

from dpp2.algorithms.chebyshev import Chebyshev
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy import gdp
from dpp2.privacy.correlated import Kind, NoiseNetwork, _to_quorum, covariance, exposures, sensitivity
from tests.privacy.noise_networks import PAPER, networks

TRIANGLE = np.array([[0, 1], [0, 2], [1, 2]])
NODES = np.polynomial.legendre.leggauss(200)
KINDS = st.sampled_from(["gaussian", "laplace"])


# --- Gaussian: the joint distribution itself ------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(networks("gaussian"), st.integers(0, 2**32 - 1))
def test_mu_is_that_of_the_exact_likelihood_ratio(network: NoiseNetwork, seed: int) -> None:
    """The log-likelihood ratio of all releases is N(±μ²/2, μ²): its slope along Σ·(gradient) says how large μ is."""
    rng = np.random.default_rng(seed)
    victim, shift = int(rng.integers(network.agents)), np.zeros(network.agents)
    shift[victim] = 0.1
    worlds = [multivariate_normal(mean, covariance(network)) for mean in (np.zeros(network.agents), shift)]
    released = rng.standard_normal((2, network.agents))
    ratios = [worlds[1].logpdf(point) - worlds[0].logpdf(point) for point in (np.zeros(network.agents), shift)]
    mu = 0.1 * exposures(network)[victim]
    np.testing.assert_allclose(ratios, [-(mu**2) / 2, mu**2 / 2], rtol=1e-6)
    slope = np.linalg.solve(covariance(network), shift)
    difference = worlds[1].logpdf(released) - worlds[0].logpdf(released)
    np.testing.assert_allclose(difference, released @ slope - mu**2 / 2, rtol=1e-6, atol=1e-9)
    assert slope @ covariance(network) @ slope == pytest.approx(mu**2, rel=1e-9)


class WholeRun:
    """Every message of a run on f_i(x) = h_i x²/2 + b_i x, as an affine function of b and of all noises (d = 1)."""

    def __init__(self, network: NoiseNetwork, gradient_rounds: int, mixings: int) -> None:
        N, E = network.agents, len(network.edges)
        B = np.zeros((N, E))
        B[network.edges[:, 0], range(E)], B[network.edges[:, 1], range(E)] = 1, -1
        P = B @ B.T / N
        eigenvalues = np.linalg.eigvalsh(P)
        mixing = Chebyshev(float(eigenvalues[1]), float(eigenvalues[-1]))
        self.width = N + gradient_rounds * (N + E)  # columns: b, then the noises of each gradient round
        self.agents, self.messages = N, []
        curvature = np.diag(np.linspace(-1.0, 4.0, N))
        x, total = np.zeros((N, self.width)), np.zeros((N, self.width))
        for k in range(gradient_rounds):
            noise = np.zeros((N, self.width))
            at = N + k * (N + E)
            noise[:, at : at + N], noise[:, at + N : at + N + E] = np.diag(network.own), B * network.edge
            gradient = curvature @ x + np.eye(N, self.width)
            before = x = x - 0.3 / (1 + k) * (gradient + noise)
            self.messages.append(x)
            x = mixing.first(x, P @ x)
            for weight in mixing.weights(mixings):
                self.messages.append(x)
                before, x = x, mixing.next(weight, x, P @ x, before)
            total = total + x
        self.messages += [total, x]  # the average and x^K are published, too

    def mu(self, victim: int, known: NDArray[np.bool_]) -> float:
        """√(Δᵀ Cov⁺ Δ) of all messages when b of the victim moves by 1; `known` noises have no variance left."""
        stacked = np.concatenate(self.messages)
        A = stacked[:, self.agents :] * ~known
        # Least norm of the noise that explains the shift: what it costs, whatever the rank of the covariance.
        explained, *_ = np.linalg.lstsq(A, stacked[:, victim], rcond=1e-11)
        np.testing.assert_allclose(A @ explained, stacked[:, victim], atol=1e-8)
        return float(np.linalg.norm(explained))


@pytest.mark.parametrize("colluders", [(), (2,), (2, 4)])
@pytest.mark.parametrize("mixings", [1, 5])
def test_mixing_rounds_averages_and_the_result_cost_nothing(mixings: int, colluders: tuple[int, ...]) -> None:
    """All messages of three gradient rounds and their mixings tell exactly what three gradient releases tell."""
    edges = np.array([[0, 1], [0, 2], [1, 3], [2, 3], [3, 4], [0, 4], [4, 5], [5, 1]])
    rng = np.random.default_rng(3)
    network = NoiseNetwork.of("gaussian", edges, rng.uniform(0.5, 2, 6), rng.uniform(1, 5, 8))
    run, rounds = WholeRun(network, 3, mixings), 3
    bad = np.isin(range(6), colluders)
    known = np.tile(np.concatenate([bad, bad[edges].any(axis=1)]), rounds)
    for victim in np.flatnonzero(~bad).tolist():
        mu = exposures(network, colluders)[victim]
        assert run.mu(victim, known) == pytest.approx(gdp.compose([mu] * rounds), rel=1e-7)


def test_all_neighbours_colluding_leave_own_noise_only() -> None:
    network = NoiseNetwork.of("gaussian", TRIANGLE, np.array([2.0, 1.0, 1.0]), 30.0)
    assert exposures(network, [1, 2])[0] == pytest.approx(0.5, rel=1e-15)
    assert exposures(network)[0] < 0.5


def test_without_edges_it_is_local_noise() -> None:
    own = np.array([1.0, 2.0, 4.0])
    for kind in ("gaussian", "laplace"):
        np.testing.assert_allclose(exposures(NoiseNetwork.of(kind, TRIANGLE, own, 0.0)), 1 / own, rtol=1e-15)


def test_strong_edges_hide_everybody_behind_the_whole_network() -> None:
    """μ → δ/(σ√(N−1)) with one colluder: the noise of a trusted curator, up to that one agent."""
    exposure = exposures(NoiseNetwork.of("gaussian", PAPER, np.ones(50), 1e4), [0])[1:]
    np.testing.assert_allclose(exposure, 1 / math.sqrt(49), rtol=1e-6)


# --- Laplace: closed integrals and linear programs ------------------------------------------------------------


def test_triangle_by_brute_force_is_two_thirds_to_13_digits() -> None:
    """One holder (agent 0) and edges, all of scale 3: agent 1 is at distance 1/3 + 1/3.

    Given all releases n, own_0 = Σn, and the noise of the edges is fixed but for a current t around the triangle:
    p(n) = e^(−|Σn|/3) ∫ exp(−(|n_1 + t| + |t| + |n_2 − t|)/3) dt up to a constant, an integral in closed form.
    """

    def log_density(n: Array) -> float:
        # m_01 = a, m_12 = b, m_02 = c: n_1 = b − a, n_2 = −b − c. With b = t: a = t − n_1, c = −t − n_2.
        knots = np.sort([n[1], 0.0, -n[2]])
        return -abs(float(n.sum())) / 3 + _log_integral(knots)

    network = NoiseNetwork.of("laplace", TRIANGLE, np.array([3.0, 0.0, 0.0]), 3.0)
    assert exposures(network)[1] == pytest.approx(2 / 3, rel=1e-15)
    rng = np.random.default_rng(0)
    shift = np.array([0.0, 1.0, 0.0])
    scattered = rng.standard_normal((20_000, 3)) * rng.choice([1.0, 10.0, 1000.0], (20_000, 1))
    ratios = [log_density(n + shift) - log_density(n) for n in scattered]
    assert np.abs(ratios).max() <= 2 / 3 + 1e-12
    far = np.array([500.0, -600.0, -300.0])
    assert abs(log_density(far + shift) - log_density(far)) == pytest.approx(2 / 3, abs=1e-13)


def _log_integral(knots: Array) -> float:
    """ln ∫ exp(−Σ_k |t − knot_k|/3) dt for three sorted knots, piece by piece: slopes −1, −1/3, 1/3, 1."""
    heights = [-float(np.abs(knot - knots).sum()) / 3 for knot in knots]
    top = max(heights)
    inner = sum(
        3 * abs(math.exp(heights[i] - top) - math.exp(heights[i + 1] - top))
        if abs(heights[i] - heights[i + 1]) > 1e-9
        else (knots[i + 1] - knots[i]) * math.exp(heights[i] - top)
        for i in range(2)
    )
    return top + math.log(math.exp(heights[0] - top) + inner + math.exp(heights[2] - top))


def cheapest_flow(network: NoiseNetwork, victim: int) -> float:
    """The least Σ|flow|/s of a unit flow from the victim to ground, as a linear program with both directions."""
    N = network.agents
    columns, prices = [], []
    for (i, j), scale in zip(network.edges, network.edge, strict=True):
        unit = np.zeros(N)
        unit[i], unit[j] = 1, -1
        columns += [unit, -unit]
        prices += [1 / scale] * 2
    for holder in np.flatnonzero(network.own):
        columns += [np.eye(N)[holder], -np.eye(N)[holder]]
        prices += [1 / network.own[holder]] * 2
    if not columns:
        return math.inf
    solved = linprog(prices, A_eq=np.array(columns).T, b_eq=np.eye(N)[victim])
    return float(solved.fun) if solved.status == 0 and solved.fun is not None else math.inf


@settings(deadline=None, max_examples=40)
@given(networks("laplace", holders="some"), st.sets(st.integers(0, 2), max_size=2))
def test_distance_is_the_cheapest_flow(network: NoiseNetwork, colluders: set[int]) -> None:
    found, rest = exposures(network, colluders), network.honest(colluders)
    for victim in set(range(network.agents)) - colluders:
        assert found[victim] == pytest.approx(cheapest_flow(rest, victim), rel=1e-7)


def test_no_path_to_an_honest_holder_is_infinite() -> None:
    network = NoiseNetwork.of("laplace", TRIANGLE, np.array([1.0, 0.0, 0.0]), 2.0)
    assert np.isinf(exposures(network, [0])[1:]).all()
    assert np.isinf(exposures(NoiseNetwork.of("gaussian", TRIANGLE, np.zeros(3), 2.0))).all()


def test_own_noise_at_everybody_does_not_help_in_l1() -> None:
    few, all_ = np.where(np.arange(50) < 2, 1.0, 0.0), np.ones(50)
    one, other = (exposures(NoiseNetwork.of("laplace", PAPER, own, 1e9)) for own in (few, all_))
    np.testing.assert_allclose(one, other, rtol=1e-7)


# --- Laplace in shares ----------------------------------------------------------------------------------------


def test_shares_of_two_agents_by_brute_force() -> None:
    """Two agents, q = 2: each draws Gamma(½) − Gamma(½), whose density is K₀(|x|)/π; the edge has scale 3.

    p(n) = ∫ K₀(|n_0 − m|) K₀(|n_1 + m|) e^(−|m|/3) dm. A unit shift at agent 0 costs at most 1 + 1/3; more
    than 1 is seen.
    """
    network = NoiseNetwork.of("laplace", np.array([[0, 1]]), np.ones(2), 3.0, quorum=2)
    bound = exposures(network)[0]
    assert bound == pytest.approx(4 / 3, rel=1e-15)

    def log_density(n: Array) -> float:
        def joint(m: Array) -> Array:
            one, other = np.abs(n[0] - m), np.abs(n[1] + m)
            return np.asarray(k0e(one) * k0e(other) * np.exp(200 - one - other - np.abs(m) / 3))

        knots = sorted({n[0], -n[1], 0.0})
        return math.log(sum(_integral(joint, *ends) for ends in pairwise([knots[0] - 60, *knots, knots[-1] + 60])))

    scattered = np.random.default_rng(0).normal(0, 3, (40, 2))
    points = np.concatenate([scattered, [[0.0, 0.0], [-1.0, 0.0], [-0.5, 0.0], [30.0, 10.0], [-40.0, 20.0]]])
    ratios = [log_density(n + np.eye(2)[0]) - log_density(n) for n in points]
    assert 1.1 < np.abs(ratios).max() <= bound


def _integral(f: Callable[[Array], Array], low: float, high: float) -> float:
    """∫ f where f may have logarithmic poles at both ends: nodes crowd there (m = low + width·u³(10 − 15u + 6u²))."""
    if high <= low:
        return 0.0
    nodes, weights = NODES
    u = (nodes + 1) / 2
    m = low + (high - low) * u**3 * (10 - 15 * u + 6 * u**2)
    inside = (m > low) & (m < high)
    slope = 30 * u**2 * (1 - u) ** 2
    return float((high - low) / 2 * (weights * slope)[inside] @ f(m[inside]))


def test_a_quorum_of_one_is_the_nearest_holder() -> None:
    own = np.where(np.arange(50) % 7 == 0, 2.0, 0.0)
    one = NoiseNetwork.of("laplace", PAPER, own, 30.0)
    np.testing.assert_allclose(_to_quorum(one), exposures(one), rtol=1e-12)


def test_a_part_without_a_quorum_is_not_hidden() -> None:
    """A path of 4: whoever cuts it leaves parts with less than Lap(s)."""
    path = np.array([[0, 1], [1, 2], [2, 3]])
    network = NoiseNetwork.of("laplace", path, np.ones(4), 10.0, quorum=3)
    np.testing.assert_allclose(exposures(network, [0])[1:], [1.2, 1.1, 1.2], rtol=1e-15)
    assert np.isinf(exposures(network, [1])[[0, 2, 3]]).all()


# --- both -----------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(KINDS, st.data())
def test_more_noise_never_exposes(kind: Kind, data: st.DataObject) -> None:
    """One more edge, or a larger scale anywhere, never raises an exposure; one more colluder never lowers it."""
    network = data.draw(networks(kind, holders="some"))
    before = exposures(network)
    i, j = data.draw(st.tuples(st.integers(0, network.agents - 1), st.integers(0, network.agents - 1)))
    slack = 1 + 1e-9
    if i != j and [min(i, j), max(i, j)] not in network.edges.tolist():
        assert (exposures(network.with_edge((min(i, j), max(i, j)), 2.0)) <= before * slack).all()
    own, edge = network.own.copy(), network.edge.copy()
    own[i] += 1
    edge[j % len(edge)] *= 3
    assert (exposures(NoiseNetwork.of(kind, network.edges, own, edge)) <= before * slack).all()
    after = exposures(network, [i])
    honest = np.arange(network.agents) != i
    assert (after[honest] * slack >= before[honest]).all()
    assert np.isnan(after[i])


@given(KINDS, st.floats(0.01, 100))
def test_exposure_scales_with_the_noise(kind: Kind, factor: float) -> None:
    own = np.linspace(1, 2, 50)
    one = exposures(NoiseNetwork.of(kind, PAPER, own, 5.0))
    np.testing.assert_allclose(
        exposures(NoiseNetwork.of(kind, PAPER, factor * own, factor * 5.0)), one / factor, rtol=1e-9
    )


def test_sensitivity_counts_in_the_norm_of_the_noise() -> None:
    assert sensitivity("gaussian", 0.1, 9) == 0.1
    assert sensitivity("gaussian", 0.1, 9, grid=0.01) == pytest.approx(0.1 + 3 * 0.01)
    assert sensitivity("laplace", 0.1, 9) == pytest.approx(0.3)
    assert sensitivity("laplace", 0.1, 9, grid=0.01) == pytest.approx(0.3 + 9 * 0.01)


def test_refuses_scales_that_are_not_numbers() -> None:
    with pytest.raises(BadInput, match=r"noise\.own"):
        NoiseNetwork.of("gaussian", TRIANGLE, np.array([1.0, -1.0, 1.0]), 1.0)
