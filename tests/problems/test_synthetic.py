"""What the seeded problems promise beyond being smooth: rank, Polyak–Łojasiewicz constants, nonconvexity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2.errors import BadInput
from dpp2.problems import ProblemSection
from dpp2.problems.least_squares import LeastSquares, LeastSquaresSection
from dpp2.problems.sine import Sine, SineSection

Build = Callable[..., ProblemSection]


def least_squares(build: Build, agents: int, **table: object) -> LeastSquares:
    section = build(agents, name="least-squares", **table)
    assert isinstance(section, LeastSquaresSection)
    return section.objective(range(agents), agents)


@pytest.mark.parametrize(("rank", "expected"), [(None, 10), (10, 10), (4, 4), (1, 1)])
def test_rank_of_the_sum(build: Build, rank: int | None, expected: int) -> None:
    objective = least_squares(build, 8, rank=rank)
    hessian = np.einsum("nmi,nmj->ij", objective.a, objective.a) / 20
    assert np.linalg.matrix_rank(hessian, tol=1e-10) == expected


def test_deficient_least_squares_is_polyak_lojasiewicz_without_strong_convexity(build: Build) -> None:
    """‖∇f‖² ≥ 2ν(f − f*) with ν the smallest NON-ZERO eigenvalue, though f is flat along a whole subspace."""
    objective = least_squares(build, 8, rank=4)
    hessian = np.einsum("nmi,nmj->ij", objective.a, objective.a) / 20
    linear = np.einsum("nmi,nm->i", objective.a, objective.b) / 20
    eigenvalues, vectors = np.linalg.eigh(hessian)
    best = np.linalg.pinv(hessian, rcond=1e-10) @ linear

    def total(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, grad = objective(np.tile(x, (8, 1)))
        return float(value.sum()), grad.sum(axis=0)

    lowest, stationary = total(best)
    np.testing.assert_allclose(stationary, 0, atol=1e-10)
    assert total(best + 100 * vectors[:, 0])[0] == pytest.approx(lowest, rel=1e-9)
    nu = eigenvalues[6]  # the seventh of ten: six are zero
    assert eigenvalues[5] < 1e-10 < nu
    for x in np.random.default_rng(0).standard_normal((200, 10)) * 5:
        value, grad = total(x)
        assert grad @ grad >= 2 * nu * (value - lowest) * (1 - 1e-9)


def test_without_noise_all_agents_agree_on_a_solution(build: Build) -> None:
    objective = least_squares(build, 5, noise=0.0)
    planted = np.linalg.lstsq(objective.a[0], objective.b[0], rcond=None)[0]
    value, grad = objective(np.tile(planted, (5, 1)))
    np.testing.assert_allclose(value, 0, atol=1e-20)
    np.testing.assert_allclose(grad, 0, atol=1e-12)
    assert (least_squares(build, 5, noise=0.1)(np.tile(planted, (5, 1)))[0] > 1e-4).all()


def test_least_squares_refuses_a_rank_above_the_dimension(build: Build) -> None:
    with pytest.raises(BadInput, match=r"problem\.rank = 4: expected a whole number from 1 to dimension = 3"):
        build(5, name="least-squares", dimension=3, rank=4)


def sine(build: Build, agents: int, **table: object) -> Sine:
    section = build(agents, name="sine", **table)
    assert isinstance(section, SineSection)
    return section.objective(range(agents), agents)


@pytest.mark.parametrize("agents", [1, 2, 7])
def test_tilts_cancel_over_the_network(build: Build, agents: int) -> None:
    tilts = sine(build, agents, tilt=3.0).tilts
    np.testing.assert_allclose(tilts.sum(axis=0), 0, atol=1e-13)
    assert agents == 1 or (np.linalg.norm(tilts, axis=1) > 1).all()
    np.testing.assert_array_equal(sine(build, agents, tilt=0.0).tilts, 0)


@settings(max_examples=200, deadline=None)
@given(x=st.lists(st.floats(-50, 50), min_size=3, max_size=3))
def test_sine_is_polyak_lojasiewicz(x: list[float]) -> None:
    """‖∇f‖² ≥ 2ν (f − f*) with ν = N/32 and f* = 0, the known constant of x² + 3 sin² x."""
    agents = 4
    objective = SineSection(seed=1, dimension=3).objective(range(agents), agents)
    value, grad = objective(np.tile(x, (agents, 1)))
    total = grad.sum(axis=0)
    assert total @ total >= 2 * (agents / 32) * value.sum() * (1 - 1e-9) - 1e-12


def test_sine_constant_on_a_grid_and_no_other_stationary_point() -> None:
    x = np.linspace(-12, 12, 240_001)
    x = x[x != 0]
    value, grad = Sine(np.zeros((len(x), 1)))(x[:, None])
    assert (grad[:, 0] ** 2 / (2 * value)).min() > 1 / 32
    assert (grad[:, 0] * x > 0).all()


def test_sine_is_not_convex(build: Build) -> None:
    """Curvature −4 at π/2: the middle of a chord lies above the chord, in the sum and for each agent."""
    objective = sine(build, 5)
    a, b = np.full((5, 10), np.pi / 2 - 0.5), np.full((5, 10), np.pi / 2 + 0.5)
    middle, ends = objective((a + b) / 2)[0], (objective(a)[0] + objective(b)[0]) / 2
    assert (middle > ends + 1).all()
