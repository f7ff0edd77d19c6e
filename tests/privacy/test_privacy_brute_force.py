"""The accountant against the algorithm itself: runs are simulated and their exact privacy loss is computed.

Agent 0 has one of two adjacent objectives. From the messages alone (η known) the noise that either objective implies
is reconstructed; the log-ratio of its two densities is the privacy loss. Nothing of the accountant is used for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpp2.arrays import Array
from dpp2.privacy import Dpp2Releases, Epsilon, epsilon

N, ROUNDS, BETA, RHO = 4, 12, 0.04, 2.0
RING = np.eye(N) - (np.eye(N) + np.roll(np.eye(N), 1, axis=1) + np.roll(np.eye(N), -1, axis=1)) / 3  # P
MECHANISM = Dpp2Releases(dimension=3, alpha=0.1, smoothness=5.0, adjacency=0.2, u_e=1.0, u_w=0.8, decay=0.9)
WORST = np.ones(3) / np.sqrt(3)  # ‖v‖₁ = √d‖v‖₂

Gradient = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Run:
    y: Array  # (K, N, d), as are z, w and e
    z: Array
    w: Array
    e: Array
    eta: Array
    x_end: Array  # (N, d): x^K


def linear(curvature: float, shift: Array) -> Gradient:
    return lambda x: curvature * x + shift


def simulate(m: Dpp2Releases, gradient: Gradient, x0: Array, w: Array, e: Array, eta: Array, damping: float) -> Run:
    """stability.py, all agents at once. The other agents have plain convex quadratics."""
    t = 1 + damping
    x, d, q = x0.copy(), np.zeros_like(x0), np.zeros_like(x0)
    ys, zs = [], []
    for k in range(len(w)):
        y = t * (x + w[k]) + (1 - eta[k]) * d
        g = 0.5 * (x - 1)
        g[0] = gradient(x[0])
        z = g + eta[k] * q + RHO * RING @ y + e[k]
        x = x + w[k] - m.alpha * (z - e[k]) + BETA * RING @ z
        d, q = d + (y - (1 - eta[k]) * d) / t, q + (RHO * RING @ y - (1 - eta[k]) * q) / t
        ys.append(y)
        zs.append(z)
    return Run(np.array(ys), np.array(zs), w, e, eta, x)


def implied_noise(m: Dpp2Releases, run: Run, gradient: Gradient, x: Array, damping: float) -> tuple[Array, Array]:
    """The (w, e) of agent 0 that explain the messages if its objective has this gradient and it started at x."""
    t = 1 + damping
    d = q = np.zeros_like(run.y[0])
    ws, es = [], []
    for y, z, eta in zip(run.y, run.z, run.eta, strict=True):
        s = (y - (1 - eta) * d) / t
        w = s[0] - x
        e = z[0] - gradient(x) - eta * q[0] - RHO * (RING @ y)[0]
        x = s[0] - m.alpha * (z[0] - e) + BETA * (RING @ z)[0]
        d, q = d + s, q + (RHO * RING @ y - (1 - eta) * q) / t
        ws.append(w)
        es.append(e)
    return np.array(ws), np.array(es)


def privacy_loss(m: Dpp2Releases, run: Run, other: Gradient, start: Array, damping: float) -> float:
    """ln p(messages | the objective that ran) − ln p(messages | the other one)."""
    w, e = implied_noise(m, run, other, start, damping)
    scale = m.decay ** np.arange(len(w))[:, None]
    more_w = (np.abs(w) - np.abs(run.w[:, 0])) / (m.u_w * scale)
    more_e = (np.abs(e) - np.abs(run.e[:, 0])) / (m.u_e * scale)
    return float(more_w.sum() + more_e.sum())


def draws(seed: int, m: Dpp2Releases, agent_0_silent: bool = False) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(seed)
    scale = m.decay ** np.arange(ROUNDS)[:, None, None]
    shape = (ROUNDS, N, m.dimension)
    w, e = rng.laplace(size=shape) * m.u_w * scale, rng.laplace(size=shape) * m.u_e * scale
    if agent_0_silent:  # the messages under which the other objective looks least likely
        w[:, 0] = e[:, 0] = 0.0
    return rng.normal(size=(N, m.dimension)), w, e, rng.uniform(0.1, 0.9, ROUNDS)


def loss_of(
    m: Dpp2Releases,
    curvature: float,
    shift: Array,
    seed: int,
    *,
    silent: bool = False,
    damping: float = 0.0,
    moved: Array | None = None,
) -> float:
    x0, w, e, eta = draws(seed, m, silent)
    run = simulate(m, linear(curvature, np.zeros(m.dimension)), x0, w, e, eta, damping)
    start = x0[0] if moved is None else x0[0] + moved
    return privacy_loss(m, run, linear(curvature, shift), start, damping)


def accounted(m: Dpp2Releases) -> float:
    answer = epsilon(m, ROUNDS)
    assert isinstance(answer, Epsilon)
    assert answer.value is not None
    return answer.value


@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_the_true_objective_implies_the_noise_that_was_drawn(damping: float) -> None:
    x0, w, e, eta = draws(0, MECHANISM)
    run = simulate(MECHANISM, linear(-5.0, WORST), x0, w, e, eta, damping)
    implied_w, implied_e = implied_noise(MECHANISM, run, linear(-5.0, WORST), x0[0], damping)
    np.testing.assert_allclose(implied_w, w[:, 0], atol=1e-9)
    np.testing.assert_allclose(implied_e, e[:, 0], atol=1e-9)


@pytest.mark.parametrize("smoothness", [5.0, 10.0, 13.0])  # αM below, at and above 1
def test_the_worst_pair_reaches_the_accountant_and_does_not_pass_it(smoothness: float) -> None:
    m = replace(MECHANISM, smoothness=smoothness)
    loss = loss_of(m, -smoothness, m.adjacency * WORST, seed=1, silent=True)
    assert 0.95 * accounted(m) <= loss <= accounted(m) * (1 + 1e-9)


def test_positive_curvature_reaches_as_little_as_a_third() -> None:
    """With +M the shift overshoots and comes back: (1−αM)/(1+αM) = 1/3 of the late terms at αM = 1/2."""
    m = replace(MECHANISM, decay=0.3)
    loss = loss_of(m, +m.smoothness, m.adjacency * WORST, seed=1, silent=True)
    assert loss == pytest.approx(accounted(m) / 3, rel=0.02)


def test_the_root_d_is_spent_only_along_the_l1_worst_direction() -> None:
    along_an_axis = np.array([1.0, 0.0, 0.0])
    loss = loss_of(MECHANISM, -MECHANISM.smoothness, MECHANISM.adjacency * along_an_axis, seed=1, silent=True)
    assert loss == pytest.approx(accounted(MECHANISM) / np.sqrt(3), rel=1e-9)


@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_random_runs_of_random_adjacent_pairs_never_lose_more_than_accounted(damping: float) -> None:
    rng = np.random.default_rng(7)
    for seed in range(60):
        curvature = rng.uniform(-MECHANISM.smoothness, MECHANISM.smoothness)
        direction = rng.normal(size=3)
        shift = MECHANISM.adjacency * direction / np.linalg.norm(direction)
        for silent in (False, True):
            loss = loss_of(MECHANISM, curvature, shift, seed, silent=silent, damping=damping)
            assert abs(loss) <= accounted(MECHANISM) * (1 + 1e-9)


def test_damping_changes_the_messages_but_not_the_privacy_loss() -> None:
    """O and η determine s, d and q under any τ, so the noise has to absorb the same differences."""
    shift = MECHANISM.adjacency * WORST
    losses = [loss_of(MECHANISM, -5.0, shift, seed=3, silent=True, damping=tau) for tau in (0.0, 0.5, 1.0)]
    assert losses == pytest.approx([accounted(MECHANISM)] * 3, rel=1e-9)
    x0, w, e, eta = draws(3, MECHANISM)
    plain, damped = (simulate(MECHANISM, linear(-5.0, shift), x0, w, e, eta, tau) for tau in (0.0, 1.0))
    assert np.abs(plain.y - damped.y).max() > 1


def test_starts_that_differ_reach_the_accountant_too() -> None:
    m = replace(MECHANISM, start_adjacency=0.3)
    # Δx grows along −v when the other gradient is larger along v, so the other start lies along −v as well.
    loss = loss_of(m, -m.smoothness, m.adjacency * WORST, seed=5, silent=True, moved=-0.3 * WORST)
    assert loss == pytest.approx(accounted(m), rel=1e-9)


def test_publishing_the_result_bare_gives_the_last_noise_away() -> None:
    """e^{K−1} = (x^K − s^{K−1} + αz^{K−1} − βPz^{K−1})/α: whoever sees x^K subtracts the noise, ε = ∞."""
    x0, w, e, eta = draws(11, MECHANISM)
    run = simulate(MECHANISM, linear(1.0, WORST), x0, w, e, eta, 0.0)
    d = np.zeros((N, 3))
    for k in range(ROUNDS - 1):
        d = eta[k] * d + run.y[k]
    s = run.y[-1] - (1 - eta[-1]) * d
    recovered = (run.x_end - s + MECHANISM.alpha * run.z[-1] - BETA * RING @ run.z[-1]) / MECHANISM.alpha
    np.testing.assert_allclose(recovered, e[-1], atol=1e-12)
