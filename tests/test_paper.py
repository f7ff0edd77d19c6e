"""The paper, fact by fact: "Distributed Nonconvex Optimization with Double Privacy Protection and Exact Convergence".

Each test cites what it checks by the paper's own name: Algorithm 1, its lemmas and theorems, and equations by
their LaTeX labels ("yk new" … "qk+1 new" are the noisy updates, "xk+1 final" and "qk+1 final" the equivalent form,
"def G" the matrix G, "def hatWk" the gap, "def parameter" and "range …" the sufficient region). "modes.py" marks
what the paper does not say: where its iteration fails, and the damped variant (τ > 0) that repairs it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2 import BadInput, Experiment, Result, Simulation
from dpp2.algorithms.modes import Mode, StepParameters
from dpp2.arrays import Array
from dpp2.prepared import PreparedRun
from dpp2.theory import conditions
from dpp2.weights import Spectrum, check_step, spectrum
from tests.core.programs import SILENT, assert_close, fit, host, matrix, normal, problem, trace

STEPS: dict[str, Any] = {"alpha": 0.1, "beta": 0.05, "rho": 10.0}  # the paper's
NOISY = {"u_w": 1.0, "u_e": 0.7, "decay": 0.9}
DAMPING = pytest.mark.parametrize("damping", [0.0, 0.5, 2.0])


def some_run(damping: float, rounds: int = 30, **settings: Any) -> Any:
    """Nine agents on a 3 × 3 grid with the nonconvex sine objectives, full noise, η uniform unless set."""
    section = problem("sine", 9, dimension=3)
    defaults = {**STEPS, "damping": damping, "noise": NOISY | {"grid": 0}}  # the paper's equations, not rounded
    return trace(matrix("grid", 9), section, normal(9, 3), rounds, **(defaults | settings))


def run_of(rounds: int, **overrides: Any) -> Result:
    """An experiment without records; `network__agents=5` sets network.agents."""
    named = {key.replace("__", ".", 1): value for key, value in overrides.items()}
    simulation = Simulation(Experiment.load(overrides={"run.rounds": rounds, **named}), record=False)
    simulation.advance(rounds)
    return simulation.result()


def gaps(rounds: int, **overrides: Any) -> Array:
    result = run_of(rounds, **overrides)
    assert not result.diverged
    return result.metrics.gap


def rate(gap: Array, first: int, floor: float = 1e-20) -> tuple[float, float]:
    """Slope and R² of log gap against k, from round `first` down to the floor of floating point.

    Modes turn as they shrink or grow, so the envelope is fitted: the largest of every ten rounds.
    """
    below = np.flatnonzero(gap < floor)
    last = int(below[0]) if below.size else len(gap)
    tens = (last - first) // 10
    assert tens >= 5, "too few rounds to fit"
    envelope = gap[first : first + 10 * tens].reshape(tens, 10).max(axis=1)
    return fit(10 * np.arange(tens), np.log(envelope))


@cache
def paper() -> PreparedRun:
    """The paper's experiment, resolved: `dpp2 run` without a file."""
    return PreparedRun.of(Experiment.load())


def linear_map(P: Any, curvature: Sequence[float], damping: float, **steps: Any) -> Array:
    """The matrix of one noise-free round on (x, q), read off the product's own round column by column.

    f_i = ½c_i x² makes the round linear, and η = 1 keeps d out of it.
    """
    n = len(curvature)
    section = problem("quadratic", n, dimension=1, curvature=list(curvature), spread=0.0)
    network = host(P, section, np.zeros((n, 1)), damping=damping, eta=1.0, **steps)
    columns = []
    for unit in np.eye(2 * n):
        network.restore({"x": unit[:n, None], "d": np.zeros((n, 1)), "q": unit[n:, None]})
        network.round(0, lambda phase, rows: None)
        columns.append(np.concatenate([network.state()["x"], network.state()["q"]])[:, 0])
    return np.array(columns).T


def radius(T: Array) -> float:
    return float(np.abs(np.linalg.eigvals(T)).max())


# --- section II: the network ----------------------------------------------------------------------------------


def test_assumption_3_L_is_symmetric_psd_with_null_space_the_consensus() -> None:
    """Assumption 3 ("assumption GL") for P of the paper's network, measured on the matrix itself."""
    P = paper().P.toarray()
    np.testing.assert_array_equal(P, P.T)
    eigenvalues = np.linalg.eigvalsh(P)
    np.testing.assert_allclose(P @ np.ones(50), 0, atol=1e-14)
    assert abs(eigenvalues[0]) < 1e-14
    assert eigenvalues[1] > 0.04


def test_P_is_neighbour_sparse() -> None:
    """Section III-A: p_ij = 0 unless i = j or {i, j} is an edge."""
    P, edges = paper().P.toarray(), paper().graph.edges
    linked = np.eye(50, dtype=bool)
    linked[edges[:, 0], edges[:, 1]] = linked[edges[:, 1], edges[:, 0]] = True
    np.testing.assert_array_equal(P != 0, linked)


# --- section III: the algorithm -------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [1.0, 1.0001, 9.4])
def test_def_G_refuses_beta_from_alpha_over_lambda_max_on(share: float) -> None:
    """Eq. "def G": G = αI − βL ≻ 0 needs 0 < β < α/λ_1(L); the refusal says by which factor it is missed."""
    largest = paper().spectrum.largest
    with pytest.raises(BadInput, match=rf"positive definite; this is {share:.3g} times that bound") as refused:
        check_step(0.1, share * 0.1 / largest, paper().spectrum)
    assert refused.value.field == "algorithm.beta"
    G = 0.1 * np.eye(50) - share * 0.1 / largest * paper().P.toarray()
    assert np.linalg.eigvalsh(G)[0] < 1e-15


def test_def_G_accepts_beta_just_below_the_bound() -> None:
    """Eq. "def G": the bound is strict and tight."""
    beta = 0.1 / paper().spectrum.largest * (1 - 1e-9)
    check_step(0.1, beta, paper().spectrum)
    assert np.linalg.eigvalsh(0.1 * np.eye(50) - beta * paper().P.toarray())[0] > 0


def test_plain_laplacian_of_the_papers_graph_is_refused() -> None:
    """Section III-A offers "a graph Laplacian"; on its own graph λ_max ≈ 18.8, and β = .05 is 9.4 times too large."""
    with pytest.raises(BadInput, match=r"λ_max\(P\) = 0\.1/18\.8\d* .* this is 9\.4\d* times that bound"):
        PreparedRun.of(Experiment.load(overrides=["network.weights=plain"]))


def test_lines_6_to_10_of_algorithm_1() -> None:
    """Algorithm 1 (eqs. "yk new" … "qk+1 new"), every line on a recorded run of the product."""
    t, P = some_run(0.0), matrix("grid", 9)
    eta = t.eta[:, None, None]
    x, d, q = t.x[:-1], t.d[:-1], t.q[:-1]
    assert ((t.eta > 0) & (t.eta < 1)).all()
    Ly, Lz = (np.array([P @ rows for rows in sent]) for sent in (t.y, t.z))
    assert_close(t.y, x + (1 - eta) * d + t.w, 1e-14)
    assert_close(t.z, t.grad + eta * q + 10 * Ly + t.e, 1e-14)
    assert_close(t.x[1:], x + t.w - 0.1 * (t.z - t.e) + 0.05 * Lz, 1e-14)
    assert_close(t.d[1:], eta * d + t.y, 1e-14)
    assert_close(t.q[1:], eta * q + 10 * Ly, 1e-14)


@DAMPING
def test_q_is_rho_L_d(damping: float) -> None:
    """Eq. "variable transformation": q^k = ρLd^k for every k, damped or not."""
    t, P = some_run(damping), matrix("grid", 9)
    assert np.abs(t.q).max() > 1
    for d, q in zip(t.d, t.q, strict=True):
        assert_close(q, 10 * (P @ d))


@DAMPING
def test_d_sums_the_noisy_iterates(damping: float) -> None:
    """From "yk new" and "qk+1 new": d^{k+1} = d^k + x^k + w^k. Damping keeps it (modes.py)."""
    t = some_run(damping)
    assert_close(t.d[1:], t.d[:-1] + t.x[:-1] + t.w)
    assert_close(t.d[1:], np.cumsum(t.x[:-1] + t.w, axis=0))


@DAMPING
def test_z_contains_no_eta(damping: float) -> None:
    """z^k = ∇f(x^k) + ρP(d^k + (1+τ)(x^k + w^k)) + e^k, which for τ = 0 is ∇f(x^k) + ρPd^{k+1} + e^k: tier one
    does nothing to z (algorithms/dpp2.py; the paper, section III-A, says it hides the gradients)."""
    t, P = some_run(damping), matrix("grid", 9)
    mixed = t.d[:-1] + (1 + damping) * (t.x[:-1] + t.w)
    assert_close(t.z, t.grad + np.array([10 * (P @ rows) for rows in mixed]) + t.e)
    if damping == 0:
        assert_close(t.z, t.grad + np.array([10 * (P @ rows) for rows in t.d[1:]]) + t.e)


@DAMPING
@pytest.mark.parametrize("eta", [0.01, 0.5, 1.0])
def test_x_and_z_do_not_depend_on_eta_but_y_does(damping: float, eta: float) -> None:
    """Section III-A: "the randomness of η^k has no impact on the update of x" — same noise, other η, same x and z."""
    drawn, fixed = some_run(damping), some_run(damping, eta=eta)
    np.testing.assert_array_equal(drawn.w, fixed.w)
    np.testing.assert_array_equal(drawn.e, fixed.e)
    for name in ("x", "d", "q", "z"):
        assert_close(getattr(fixed, name), getattr(drawn, name))
    assert np.abs(fixed.y[5:] - drawn.y[5:]).max() > 0.1


@DAMPING
def test_y_of_round_0_goes_out_unmixed(damping: float) -> None:
    """Line 2 of Algorithm 1 (d^0 = 0) makes y^0 = (1+τ)(x^0 + w^0): no η protects the first message."""
    t = some_run(damping, rounds=1)
    np.testing.assert_array_equal(t.y[0], (1 + damping) * (t.x[0] + t.w[0]))


@DAMPING
def test_both_forms_are_equivalent(damping: float) -> None:
    """Eqs. "xk+1 final", "qk+1 final" (with 1+τ before ρL): two variables, no η, the same trajectory as Algorithm 1."""
    t = some_run(damping, rounds=60)
    P, section = matrix("grid", 9).toarray(), problem("sine", 9, dimension=3)
    objective, G = section.objective(range(9), 9), 0.1 * np.eye(9) - 0.05 * P
    x, q = t.x[0], np.zeros_like(t.x[0])
    for k in range(60):
        pushed = 10 * P @ (x + t.w[k])
        gradient = objective(x)[1]
        x = x + t.w[k] - G @ (gradient + q + (1 + damping) * pushed) + 0.05 * P @ t.e[k]
        q = q + pushed
        assert_close(t.x[k + 1], x, 1e-11)
        assert_close(t.q[k + 1], q, 1e-11)


def test_tier_one_off_sends_x_plus_w_itself() -> None:
    """Section III-A with η ≡ 1: nothing is mixed into y."""
    t = some_run(0.0, eta=1.0)
    np.testing.assert_array_equal(t.y, t.x[:-1] + t.w)


def test_tier_two_off_is_the_noise_free_algorithm() -> None:
    """Eqs. "tildeyk" … "qk+1 original": u = 0 leaves w = e = 0, and x^{k+1} = x^k − Gz^k."""
    t, P = some_run(0.0, noise=SILENT), matrix("grid", 9)
    assert not t.w.any()
    assert not t.e.any()
    assert_close(t.x[1:], t.x[:-1] - np.array([0.1 * z - 0.05 * (P @ z) for z in t.z]), 1e-14)


def test_noise_has_the_scale_u_r_to_the_k_of_each_agent() -> None:
    """Section III-B, "Generation of perturbations": w_i^k ~ Lap(u_{w,i} r_i^k), and e likewise; E|Lap(θ)| = θ."""
    u_w, u_e, decay = [0.0, 1.0, 3.0], [2.0, 0.0, 1.0], [0.5, 0.9, 1.0]
    section, x0 = problem("quadratic", 3, dimension=4000), np.zeros((3, 4000))
    t = trace(matrix("path", 3), section, x0, 4, **STEPS, noise={"u_w": u_w, "u_e": u_e, "decay": decay, "grid": 0})
    for drawn, u in ((t.w, u_w), (t.e, u_e)):
        for k in range(4):
            expected = np.array(u) * np.array(decay) ** k
            np.testing.assert_allclose(np.abs(drawn[k]).mean(axis=1), expected, rtol=0.05)


def test_decay_0_is_noise_in_round_0_only() -> None:
    """Fig. 1's r = 0: 0^0 = 1, so the first round is noisy and no other."""
    t = some_run(0.0, noise={"u_w": 1.0, "u_e": 1.0, "decay": 0.0})
    assert (np.abs(t.w[0]) > 0).all()
    assert (np.abs(t.e[0]) > 0).all()
    assert not t.w[1:].any()
    assert not t.e[1:].any()


# --- section IV: convergence ----------------------------------------------------------------------------------


def test_gap_is_consensus_plus_stationarity() -> None:
    """Eq. "def hatWk": Ŵ = ‖x − x̄‖² + (1/N)‖Σ∇f_i(x_i)‖², at x^0 … x^K, against its definition."""
    simulation = Simulation(Experiment.load(overrides={"run.rounds": 20, "network.agents": 12, "problem.samples": 9}))
    simulation.advance(20)
    result = simulation.result()
    assert result.truth is not None
    x = np.concatenate([result.truth.x, result.x[None]])
    away = x - x.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(result.metrics.consensus, (away**2).sum(axis=(1, 2)), rtol=1e-12)
    stationarity = (result.truth.grad.sum(axis=1) ** 2).sum(axis=1) / 12
    np.testing.assert_allclose(result.metrics.stationarity[:-1], stationarity, rtol=1e-12)
    np.testing.assert_array_equal(result.metrics.gap, result.metrics.consensus + result.metrics.stationarity)


def test_lemma_2_noise_is_summable_once_the_dimension_is_counted() -> None:
    """Lemma 2 ("D1w+D2e lemma") bounds E Σ‖w^k‖² by 2Nū²/(1−r²). Coordinate-wise noise has E‖w^k‖² = 2Nd u²r^{2k}:
    the factor d is missing, and with it the sum is met to within sampling error."""
    result = Simulation(Experiment.load(overrides=["run.rounds=150"]))
    result.advance(150)
    truth = result.result().truth
    assert truth is not None
    papers_bound = 2 * 50 / (1 - 0.9**2)
    for noise in (truth.w, truth.e):
        total = float((noise**2).sum())
        assert total == pytest.approx(10 * papers_bound, rel=0.1)
        assert total > papers_bound


def test_theorem_1_running_average_falls_as_1_over_K_without_polyak_lojasiewicz() -> None:
    """Theorem 1: (1/K)Σ Ŵ^k = O(1/K). Separable logistic data have no minimiser and violate P-Ł: the gap itself
    falls like a power of k, not linearly, and its running average with slope −1 in log–log.

    (τ = 1: the data are flat in most directions, where τ = 0 damps nothing, see the tests of modes.py.)
    """
    table = {"problem__samples": 1, "problem__lambda": 0.0, "problem__smoothness": 1.0}
    gap = gaps(
        3000,
        network__topology="ring",
        network__agents=6,
        algorithm__damping=1.0,
        noise__u_w=0.0,
        noise__u_e=0.0,
        **table,
    )
    k = np.arange(1, len(gap) + 1)
    average = np.cumsum(gap) / k
    slope, straight = fit(np.log(k[100:]), np.log(average[100:]))
    assert -1.1 < slope <= -0.9
    assert straight > 0.999
    power, as_power = fit(np.log(k[100:]), np.log(gap[100:]))
    _, as_exponential = fit(k[100:], np.log(gap[100:]))
    assert -2.2 < power < -1.8
    assert as_power > 0.999 > 0.95 > as_exponential


@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_theorem_1_on_the_papers_nonconvex_problem_with_noise(damping: float) -> None:
    """Theorem 1 with decaying noise, on the paper's logistic loss with nonconvex regulariser (20 agents)."""
    gap = gaps(500, network__agents=20, algorithm__damping=damping)
    k = np.arange(1, len(gap) + 1)
    slope, straight = fit(np.log(k[250:]), np.log(np.cumsum(gap)[250:] / k[250:]))
    assert -1.1 < slope <= -0.9
    assert straight > 0.99


PL_PROBLEMS: dict[str, dict[str, Any]] = {
    "quadratic": {"problem__name": "quadratic"},
    "rank-deficient least squares": {"problem__name": "least-squares", "problem__rank": 4},
    "nonconvex sine": {"problem__name": "sine"},
}
PL_CASES = [("quadratic", 0.0), ("quadratic", 1.0), ("rank-deficient least squares", 1.0), ("nonconvex sine", 0.0)]


@pytest.mark.parametrize(("name", "damping"), [*PL_CASES, ("nonconvex sine", 1.0)])
@pytest.mark.parametrize("u", [0.0, 1.0])
def test_theorem_2_linear_rate_under_polyak_lojasiewicz(name: str, damping: float, u: float) -> None:
    """Theorem 2: under P-Ł the gap falls linearly, with and without noise: log Ŵ is a straight line in k."""
    ring = {"network__topology": "ring", "network__agents": 10}
    gap = gaps(500, algorithm__damping=damping, noise__u_w=u, noise__u_e=u, **ring, **PL_PROBLEMS[name])
    slope, straight = rate(gap, first=60)
    assert slope < -0.03
    assert straight > 0.99


@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_theorem_2_linear_rate_is_the_spectral_radius(damping: float) -> None:
    """On quadratics the linear rate of Theorem 2 is known exactly: the gap falls by radius² a round."""
    ring = {"network__topology": "ring", "network__agents": 6}
    problem_ = {"problem__name": "quadratic", "problem__dimension": 4}
    gap = gaps(900, algorithm__damping=damping, noise__u_w=0.0, noise__u_e=0.0, **ring, **problem_)
    T = linear_map(matrix("ring", 6), [1.0] * 6, damping, **STEPS)
    moduli = np.sort(np.abs(np.linalg.eigvals(T)))
    assert moduli[-1] == pytest.approx(1)  # the consensus part of q, which the algorithm never leaves zero
    slope, straight = rate(gap, first=150 if damping == 0 else 20)
    assert slope == pytest.approx(2 * math.log(moduli[-2]), rel=0.04)
    assert straight > 0.99


def test_theorem_2_no_faster_than_the_noise_decays() -> None:
    """Theorem 2's rate (1−ζ) is at least r̄² ("range zeta 6"): slow noise, here r = .97, sets the slope 2 log r."""
    ring = {"network__topology": "ring", "network__agents": 10, "problem__name": "quadratic"}
    gap = gaps(700, algorithm__damping=1.0, noise__decay=0.97, **ring)
    slope, straight = rate(gap, first=60)
    assert slope == pytest.approx(2 * math.log(0.97), rel=0.03)
    assert straight > 0.99


def test_exact_convergence_under_decaying_noise_and_its_floor() -> None:
    """The remark after Theorem 2: no error is left. In floating point: the gap of the paper's experiment (τ = 1)
    falls below 1e-10 and goes on to a floor near 1e-28, which rises slowly because d^k grows linearly with k."""
    gap = gaps(2400, algorithm__damping=1.0)
    assert gap[300] < 1e-10
    floor = [float(gap[first : first + 400].mean()) for first in range(400, 2400, 400)]
    assert floor[0] > 1e-29
    assert floor[-1] < 1e-26
    assert floor[-1] > 2 * floor[0]
    slope, _ = fit(np.log(np.arange(600, 2600, 400)), np.log(floor))
    assert 0.5 < slope < 2.5  # between growth with √k and k of an amplitude


# --- section IV: the sufficient region ------------------------------------------------------------------------


def test_range_alpha_of_the_papers_experiment_is_9_24e_minus_4() -> None:
    """Eq. "range alpha": α < ξ_6/ξ_7 = ¼/(M̄ + 21M̄²/2) = 9.24e-4 at M̄ = 5.03, where the paper uses 0.1."""
    found = {c.name: c for c in conditions(**STEPS, smoothness=5.03, eigenvalues=paper().spectrum)}
    condition = found["α < ξ_6/ξ_7"]
    assert condition.right == pytest.approx(0.25 / (5.03 + 10.5 * 5.03**2), rel=1e-12)
    assert f"{condition.right:.2e}" == "9.24e-04"
    assert condition.left == 0.1
    assert not condition.holds


def test_missing_the_sufficient_region_never_refuses_a_run() -> None:
    """Eqs. "range rho" … "range alpha" fail for the paper's own experiment, which runs all the same."""
    result = run_of(3)
    assert sum(not c.holds for c in result.conditions) >= 5
    assert result.rounds == 3


INSIDE: dict[str, float] = {"alpha": 3.0e-4, "beta": 1.0e-4, "rho": 100.0}
ONE = Spectrum(smallest=0.0, connectivity=1.0, largest=1.0)  # of P = I − 11ᵀ/3 on three agents


def test_sufficient_region_is_not_empty() -> None:
    """Lemma 1 claims well-posedness: for M̄ = 3 on the complete graph there are parameters that meet everything."""
    found = conditions(**INSIDE, smoothness=3.0, eigenvalues=ONE)
    assert len(found) == 9
    assert all(c.holds for c in found)


# --- modes.py: where the paper's iteration fails, and the damped one -------------------------------------------

CURVATURES = [-1.0, -1.0, 3.0]  # f_1 = f_2 = −x²/2, f_3 = 3x²/2: the sum x²/2 is smooth and P-Ł
COUNTEREXAMPLE: dict[str, Any] = {
    "network__topology": "complete",
    "network__agents": 3,
    "problem__name": "quadratic",
    "problem__dimension": 1,
    "problem__curvature": CURVATURES,
    "problem__spread": 0.0,
    "noise__u_w": 0.0,
    "noise__u_e": 0.0,
}


@given(
    st.floats(-3, 6),
    st.floats(0.01, 0.5),
    st.floats(0.05, 0.95),
    st.floats(0.1, 30),
    st.sampled_from([0.0, 0.3, 1.0, 4.0]),
    st.integers(1, 4),
)
@settings(max_examples=40, deadline=None)
def test_determinant_on_a_mode(h: float, alpha: float, share: float, rho: float, damping: float, which: int) -> None:
    """modes.py: on a mode with eigenvalue λ and curvature h one round has determinant 1 − G_λ(h + τρλ) and trace
    2 − G_λ(h + (1+τ)ρλ)."""
    P = matrix("path", 5)
    values, vectors = np.linalg.eigh(P.toarray())
    lam, v = values[which], vectors[:, which]
    beta = share * alpha / values[-1]
    T = linear_map(P, [h] * 5, damping, alpha=alpha, beta=beta, rho=rho)
    basis = np.kron(np.eye(2), v[:, None])
    mode = basis.T @ T @ basis
    np.testing.assert_allclose(T @ basis, basis @ mode, atol=1e-10)  # the mode is invariant
    G = alpha - beta * lam
    assert np.linalg.det(mode) == pytest.approx(1 - G * (h + damping * rho * lam), abs=1e-10)
    assert np.trace(mode) == pytest.approx(2 - G * (h + (1 + damping) * rho * lam), abs=1e-10)
    assert Mode(h, lam).growth(StepParameters(alpha, beta, rho, damping)) == pytest.approx(radius(mode), abs=1e-7)


@given(st.floats(-2, 5), st.floats(0.5, 40), st.sampled_from([0.0, 0.5, 2.0]), st.sampled_from([0.98, 1.02]))
@settings(max_examples=40, deadline=None)
def test_stability_of_a_mode(h: float, rho: float, damping: float, load: float) -> None:
    """modes.py: a mode is stable exactly when h > −τρλ and G_λρλ(1+2τ) + 2G_λh < 4; here λ = 1 and β = α/2."""
    denominator = rho * (1 + 2 * damping) + 2 * h
    if denominator < 0.1 or abs(h + damping * rho) < 1e-2:
        return
    alpha = 2 * (4 * load / denominator)  # G_λ = α/2 puts the load at 4 · load
    growth = Mode(h, 1.0).growth(StepParameters(alpha, alpha / 2, rho, damping))
    stable = h > -damping * rho and load < 1
    assert (growth < 1) == stable


def test_counterexample_diverges_at_the_predicted_rate() -> None:
    """Against Theorems 1 and 2, outside their region (ρ = 10, α = .1, β = .05): disagreement grows by √1.05 a round."""
    P = matrix("complete", 3)
    np.testing.assert_allclose(P.toarray(), np.eye(3) - np.ones((3, 3)) / 3, atol=1e-15)
    T = linear_map(P, CURVATURES, 0.0, **STEPS)
    assert radius(T) == pytest.approx(math.sqrt(1.05), abs=1e-10)
    section = problem("quadratic", 3, dimension=1, curvature=CURVATURES, spread=0.0)
    t = trace(P, section, np.array([[1.0], [-1.0], [0.5]]), 600, **STEPS)
    disagreement = np.linalg.norm(t.x - t.x.mean(axis=1, keepdims=True), axis=(1, 2))
    slope, straight = rate(disagreement, first=100)
    assert slope == pytest.approx(math.log(1.05) / 2, rel=0.01)
    assert straight > 0.999


def test_counterexample_needs_x1_to_differ_from_x2() -> None:
    """modes.py: the growing mode is x_1 = −x_2; started at x_1 = x_2 without noise it is never excited."""
    section = problem("quadratic", 3, dimension=1, curvature=CURVATURES, spread=0.0)
    t = trace(matrix("complete", 3), section, np.array([[1.0], [1.0], [-2.0]]), 300, **STEPS)
    assert np.abs(t.x[300]).max() < 1e-3


def test_counterexample_run_says_what_happened() -> None:
    """modes.py: the run ends early and names negative curvature and the rate √1.05."""
    result = run_of(500, **COUNTEREXAMPLE)
    assert result.divergence is not None
    assert result.rounds < 500
    assert result.divergence.cause == "negative curvature"
    assert result.divergence.growth == pytest.approx(math.sqrt(1.05), abs=1e-3)


@pytest.mark.parametrize("damping", [0.2, 1.0])
def test_counterexample_converges_when_damped(damping: float) -> None:
    """modes.py: τρλ > −h repairs it; the same messages, a gap that falls linearly to the floor."""
    gap = gaps(1500, algorithm__damping=damping, **COUNTEREXAMPLE)
    slope, straight = rate(gap, first=60)
    assert slope < -0.02
    assert straight > 0.99
    assert gap[-1] < 1e-20


def test_parameters_inside_the_papers_own_region_diverge_as_well() -> None:
    """Against Theorem 2 as stated: every condition of "range c alpha gamma" … "range alpha" holds, the sum is P-Ł, and
    the iteration grows by √(1 + G_λ) a round — slowly, but no step size of the region escapes it."""
    assert all(c.holds for c in conditions(**INSIDE, smoothness=3.0, eigenvalues=ONE))
    P = matrix("complete", 3)
    expected = math.sqrt(1 + INSIDE["alpha"] - INSIDE["beta"])
    assert radius(linear_map(P, CURVATURES, 0.0, **INSIDE)) == pytest.approx(expected, abs=1e-9)
    section = problem("quadratic", 3, dimension=1, curvature=CURVATURES, spread=0.0)
    t = trace(P, section, np.array([[1.0], [-1.0], [0.0]]), 6000, **INSIDE, eta=1.0)
    disagreement = np.abs(t.x[:, 0, 0] - t.x[:, 1, 0])
    early, late = (disagreement[first : first + 500].max() for first in (500, 5500))  # ten turns of the mode each
    assert late / early == pytest.approx(expected**5000, rel=0.02)
    assert late / early > 1.5


@pytest.mark.parametrize("steps", [STEPS, INSIDE])
def test_damping_makes_the_counterexample_stable_inside_and_outside_the_region(steps: dict[str, float]) -> None:
    """modes.py: with τ = 1 every eigenvalue but the idle one of consensus q lies inside the unit circle."""
    moduli = np.sort(np.abs(np.linalg.eigvals(linear_map(matrix("complete", 3), CURVATURES, 1.0, **steps))))
    assert moduli[-1] == pytest.approx(1, abs=1e-12)
    assert moduli[-2] < 1 - 1e-6


def test_flat_directions_never_agree_without_damping() -> None:
    """Against Theorem 2: rank-deficient least squares is P-Ł, yet along the flat directions (h = 0) the determinant
    is exactly 1 and disagreement keeps its size for ever; with τ = 1 it dies out."""
    section, P, x0 = problem("least-squares", 6, dimension=3, rank=1), matrix("ring", 6), normal(6, 3)
    objective = section.objective(range(6), 6)
    basis = np.linalg.svd(objective.a.reshape(-1, 3))[2]  # type: ignore[attr-defined]
    sizes = {}
    for damping in (0.0, 1.0):
        t = trace(P, section, x0, 3000, **STEPS, damping=damping)
        away = (t.x - t.x.mean(axis=1, keepdims=True)) @ basis[1:].T  # along the two flat directions
        size = np.linalg.norm(away, axis=(1, 2))
        sizes[damping] = [float(size[first : first + 500].mean()) for first in (0, 1000, 2500)]
    early, middle, late = sizes[0.0]
    assert middle == pytest.approx(early, rel=0.1)
    assert late == pytest.approx(early, rel=0.1)
    assert sizes[1.0][1] < 1e-9


# --- section VI: the experiment -------------------------------------------------------------------------------


def test_the_papers_network() -> None:
    """Section VI: a connected geometric graph with index 0.3, 50 nodes and 255 edges."""
    graph = paper().graph
    assert (graph.agents, len(graph.edges), graph.components) == (50, 255, 1)
    assert paper().spectrum == spectrum(paper().P)
    assert paper().spectrum.largest < 2


def test_the_papers_smoothness_is_5_03() -> None:
    """Section VI: M̄ = 5.03, exactly, by the one scale stored as problem.scale (about 3.56)."""
    section = paper().experiment.problem
    smoothness = section.objective(range(50), 50).smoothness
    assert smoothness.max() == pytest.approx(5.03, rel=1e-12)
    assert (smoothness < 5.03 * (1 + 1e-12)).all()
    assert section.table()["scale"] == pytest.approx(3.56, abs=0.15)


def test_the_papers_parameters_are_the_defaults() -> None:
    """Section VI, word by word."""
    tables = paper().experiment.tables()
    assert tables["problem"] | {"dimension": 10, "samples": 200, "lambda": 0.001, "omega": 1.0} == tables["problem"]
    assert tables["algorithm"] == {**STEPS, "name": "dpp2", "damping": 0.0, "eta": "uniform"}
    assert tables["noise"] == {"u_w": 1.0, "u_e": 1.0, "decay": 0.9, "grid": 20}


@pytest.mark.parametrize("seed", [1, 2])
def test_fig_1_smaller_decay_rate_converges_better(seed: int) -> None:
    """Fig. 1: u = 1; the larger r, the larger the gap. (r = 0 and .5 lie together and trade places seed by seed.)"""
    decays = (0.0, 0.5, 0.9, 0.95, 0.99)
    final = [float(gaps(250, run__seed=seed, noise__decay=r)[-50:].mean()) for r in decays]
    assert max(final[:2]) < final[2] < final[3] < final[4]
    assert final[2] > 10 * max(final[:2])


@pytest.mark.parametrize("seed", [1, 2])
def test_fig_2_smaller_initial_noise_converges_better(seed: int) -> None:
    """Fig. 2: r = .95; the larger u, the larger the gap."""
    scales = (0.0, 0.3, 1.0, 5.0)
    final = [
        float(gaps(200, run__seed=seed, noise__decay=0.95, noise__u_w=u, noise__u_e=u)[-50:].mean()) for u in scales
    ]
    assert final == sorted(final)
    assert final[0] < 1e-4 * final[2]


def test_the_default_experiment_converges_exactly() -> None:
    """Figs. 1 and 2, "verify the exact convergence": at r = .9 the gap first rises, then falls below 1e-7."""
    result = run_of(500)
    gap = result.metrics.gap
    assert not result.diverged
    assert gap.max() > 3 * gap[0]
    assert gap[-1] < 1e-7


def test_damping_saves_most_of_the_rounds() -> None:
    """Measured: gap after 100 rounds around 1e3 with τ = 0 and around 1e-6 with τ = 1, at the same noise."""
    assert gaps(100)[-1] > 1e2
    assert gaps(100, algorithm__damping=1.0)[-1] < 1e-4
