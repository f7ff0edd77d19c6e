"""The checker of the paper's sufficient conditions: each with its two sides; free constants chosen to its favour."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2 import Experiment, run
from dpp2.theory import Condition, conditions
from dpp2.weights import Spectrum

COMPLETE = Spectrum(smallest=0.0, connectivity=1.0, largest=1.0)
WIDE = Spectrum(smallest=0.0, connectivity=0.05, largest=1.5)


def by_name(found: list[Condition]) -> dict[str, Condition]:
    return {condition.name: condition for condition in found}


def test_a_condition_is_strict_and_says_so() -> None:
    assert Condition("a < b", 1.0, 2.0).holds
    assert not Condition("a < b", 2.0, 2.0).holds
    assert str(Condition("a < b", 1.0, 2.0)) == "a < b: 1 < 2 holds"
    assert str(Condition("a < b", 3.0, 2.0)) == "a < b: 3 < 2 fails"


@pytest.mark.parametrize("M", [0.3, 1.0, 5.03, 40.0])
def test_sides_that_have_no_free_constant(M: float) -> None:
    """α < ¼/(M̄ + 21M̄²/2); c̄_α = α/λ̄_G with λ̄_G = α − βλ̲; κ_L = λ̄/λ̲ (paper, "def parameter")."""
    found = by_name(conditions(0.1, 0.05, 10.0, M, WIDE))
    assert found["α < ξ_6/ξ_7"].right == pytest.approx(0.25 / (M + 10.5 * M * M))
    lambda_G = 0.1 - 0.05 * 0.05
    first = found["c̄_α < κ_L/(κ_L − 1)"]
    assert first.left == pytest.approx(0.1 / lambda_G)
    assert first.right == pytest.approx(30 / 29)
    last = found["λ̄_G < ξ_6/(c̄_α ξ_7)"]
    assert last.left == pytest.approx(lambda_G)
    assert last.right == pytest.approx(0.25 / (M + 10.5 * M * M) / (0.1 / lambda_G))


def test_sides_with_the_free_constants_as_the_paper_writes_them() -> None:
    """c̄_θ and γ are read back from their own conditions; the other sides are then recomputed term by term."""
    alpha, beta, rho, M = 0.01, 0.002, 60.0, 0.4
    low, high = 0.5, 1.2
    found = by_name(conditions(alpha, beta, rho, M, Spectrum(0.0, low, high)))
    kappa_G = (alpha - beta * low) / (alpha - beta * high)
    c_alpha = alpha / (alpha - beta * low)
    c_theta, gamma = found["c̄_θ < 1/κ_G"].left, found["γ < c̄_θ/5"].left
    assert 0 < c_theta < 1 / kappa_G
    assert 0 < gamma < c_theta / 5
    xi_1 = rho * high / 2 * (1 / kappa_G - c_theta) - (1 + 3 * M**2 / 4 + M**2 * c_alpha / 2)
    xi_2 = 0.5 * (1 + 1 / gamma) * rho**2 * high + c_theta / 4 + 0.5 * c_theta * rho * high + 11 / 4
    xi_2 += M**2 * (2 / gamma + 0.25 * c_theta * rho * high + 0.5 * c_theta**2)
    xi_3 = c_theta / 2 - 5 * gamma / 2 - 1 / (rho**2 * low**2)
    xi_4, xi_5 = c_theta**2 / 4, 7 * c_theta**2 / 4
    xi_8 = (4 + 3 * M**2 + 2 * M**2 * c_alpha) / (2 * high * (1 / kappa_G - c_theta))
    xi_9 = 1 / math.sqrt(low**2 * (c_theta / 2 - 5 * gamma / 2))
    assert found["λ̄_G < ξ_1/ξ_2"].right == pytest.approx(xi_1 / xi_2)
    root = (-xi_4 + math.sqrt(xi_4**2 + 4 * xi_3 * xi_5)) / (2 * xi_5)
    assert found["λ̄_G < (−ξ_4 + √(ξ_4² + 4ξ_3ξ_5))/(2ξ_5)"].right == pytest.approx(root)
    assert [found["ξ_8 < ρ"].left, found["ξ_9 < ρ"].left] == pytest.approx([xi_8, xi_9])


@given(st.floats(1e-6, 1), st.floats(0.01, 0.99), st.floats(0.1, 1e4), st.floats(1e-3, 100))
@settings(max_examples=15, deadline=None)
def test_conditions_never_fail_to_be_computed(alpha: float, share: float, rho: float, M: float) -> None:
    for eigenvalues in (COMPLETE, WIDE):
        found = conditions(alpha, share * alpha / eigenvalues.largest, rho, M, eigenvalues)
        assert len(found) == 9
        assert not any(math.isnan(side) for c in found for side in (c.left, c.right))
        assert all(c.holds for c in found if c.name in ("c̄_θ < 1/κ_G", "γ < c̄_θ/5"))  # chosen inside, always


def test_conditions_come_with_a_result_and_ignore_damping() -> None:
    """The damped analysis is ours: τ does not appear in the paper's conditions."""
    overrides = ["run.rounds=1", "network.topology=ring", "network.agents=5", "problem.name=quadratic"]
    plain, damped = (run(Experiment.load(overrides=[*overrides, f"algorithm.damping={t}"])) for t in (0, 1))
    assert plain.conditions == damped.conditions
    assert len(plain.conditions) == 9


def test_flat_objectives_have_conditions_too() -> None:
    overrides = ["run.rounds=1", "network.topology=ring", "problem.name=quadratic", "problem.curvature=0.0"]
    assert by_name(run(Experiment.load(overrides=overrides)).conditions)["α < ξ_6/ξ_7"].holds
