"""The baselines' accountants against their programs: pairs of adjacent objectives, and the noise that hides the change.

Agent 0 has one of two objectives. A run with the first is recorded; then its own program is run again with the second,
and in every phase the noise is worked out that makes it send the very same message. How far that noise lies from
what was drawn is the shift that the accountants bound. Nothing of them is used here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment, Simulation, run
from dpp2.algorithms.base import Doubles
from dpp2.arrays import Array
from dpp2.privacy import Epsilon, Ledger, Unsupported, epsilon
from dpp2.privacy.accountant import cumulative, largest_rounds
from dpp2.privacy.baselines import (
    BASELINES,
    GaussianDifferenceReleases,
    GaussianStepReleases,
    StepReleases,
    TrackingReleases,
    Unaccounted,
)
from dpp2.privacy.releases import Releases
from dpp2.schedule import Schedule
from tests.algorithms.hosted import Tables, program, sections
from tests.core.programs import matrix

N, D, ROUNDS = 4, 3, 9
M, DELTA, DECAY, U = 2.0, 0.3, 0.8, 0.7
COMMON: Tables = {"smoothness": M, "adjacency": DELTA}
TRACKING: Tables = {"dimension": D, "alpha": 0.1, "smoothness": np.inf, "adjacency": DELTA, "u_x": 1.0, "decay": 0.9}
WORST = np.ones(D) / np.sqrt(D)  # ‖v‖₁ = √d‖v‖₂
P = matrix("path", N)

# name → its parameters, and whether gradients that differ by turns in sign are what costs most
LAPLACE: dict[str, tuple[Tables, bool]] = {
    "dgd": ({"alpha": 0.2, "power": 0.5}, False),
    "extra": ({"alpha": 0.2}, True),
    "gradient-tracking": ({"alpha": 0.2}, True),
    "diadsp": ({"alpha": 0.2}, True),
    "pgtc": ({"alpha": 0.2, "compressor": "none"}, True),
    "prox-gpda": ({"alpha": 0.2, "beta": 1.0}, False),
    "yi": ({"gamma": 2.0, "omega": 3.0, "eta": 0.2}, False),
    "ppdc": ({"gamma": 2.0, "omega": 3.0, "eta": 0.2}, False),
    "dmsp": ({"c": 0.5, "q": 0.7, "radius": 50.0}, False),
    "wang-nedic": ({"alpha": 0.3, "slowdown": 0.5}, False),
}


@dataclass
class Linear:
    """∇f_i(x) = curvature·x, and for agent 0 a shift on top, which may change from round to round.

    One f with these gradients exists whenever the points visited lie far enough apart.
    """

    owned: range
    curvature: float
    shift: Callable[[int], Array] = field(default=lambda k: np.zeros(D))
    k: int = 0

    dimension = D

    @property
    def smoothness(self) -> Array:
        return np.full(len(self.owned), M)

    def __call__(self, x: Array) -> tuple[Array, Array]:
        grad = self.curvature * x
        grad[[i == 0 for i in self.owned]] += self.shift(self.k)
        return np.zeros(len(x)), grad


def noise_table(name: str) -> Tables:
    scales = dict.fromkeys(sections(name, {}, {})[1].scales, U)
    return {**scales, "decay": DECAY, "grid": 0}


def mechanism(name: str) -> Releases:
    section, noise = sections(name, LAPLACE[name][0], noise_table(name))
    releases = section.mechanisms(noise, D, DELTA, np.full(N, M))
    assert not isinstance(releases, Unsupported)
    return releases[0]


def given_noise(own: Any, noise: dict[str, Array]) -> Any:
    own.noise = {name: Doubles(drawn.__getitem__) for name, drawn in noise.items()}
    return own


def recorded(name: str, objective: Linear, x0: Array, noise: dict[str, Array]) -> dict[str, Array]:
    """Every message of a run of all agents."""
    own = given_noise(program(name, objective, range(N), N, LAPLACE[name][0], noise_table(name)), noise)
    state = own.start(x0)
    sent: dict[str, list[Array]] = {phase: [] for phase in sections(name, {}, {})[0].phases}
    for k in range(ROUNDS):
        objective.k = k
        steps, answer = own.round(state, k), None
        try:
            while True:
                message = steps.send(answer)
                sent[message.phase].append(message.rows)
                answer = P @ message.rows
        except StopIteration as done:
            state = done.value[0]
    return {phase: np.array(rows) for phase, rows in sent.items()}


def implied(
    name: str, objective: Linear, x0: Array, drawn: dict[str, Array], sent: dict[str, Array]
) -> dict[str, Array]:
    """The noise of agent 0 under which this objective sends the same; noise that is never sent stays as drawn."""
    section = sections(name, {}, {})[0]
    noise = {key: rows[:, :1].copy() for key, rows in drawn.items()}
    own = given_noise(program(name, objective, range(1), N, LAPLACE[name][0], noise_table(name)), noise)
    state = own.start(x0[:1])
    for k in range(ROUNDS):
        objective.k = k
        for count, (phase, of_phase) in enumerate(zip(section.phases, section.noises, strict=False)):
            noise[of_phase][k] = 0.0
            bare = _until(own, state, k, sent, section.phases[:count]).rows
            noise[of_phase][k] = sent[phase][k, :1] - bare
        state = _until(own, state, k, sent, section.phases)
    return noise


def _until(own: Any, state: Any, k: int, sent: dict[str, Array], heard: tuple[str, ...]) -> Any:
    """Round k again with these phases answered as they were: the next message, or the next state."""
    steps = own.round(state, k)
    message = next(steps)
    try:
        for phase in heard:
            message = steps.send((P @ sent[phase][k])[:1])
    except StopIteration as done:
        return done.value[0]
    return message


def shifts_of(name: str, curvature: float, shift: Callable[[int], Array], noise: dict[str, Array]) -> list[Array]:
    """‖Δnoise‖₁ in units of its scale, for each message of a round: arrays (K,)."""
    x0 = np.random.default_rng(1).normal(size=(N, D))
    sent = recorded(name, Linear(range(N), curvature), x0, noise)
    needed = implied(name, Linear(range(1), curvature, shift), x0, noise, sent)
    section = sections(name, {}, {})[0]
    scale = U * DECAY ** np.arange(ROUNDS)
    moved = [np.abs(needed[n] - noise[n][:, :1]).sum(axis=(1, 2)) / scale for n in section.noises]
    assert all(not rows.any() for rows in moved[len(section.phases) :])  # ppdc's noise on v
    return moved[: len(section.phases)]


def laplace_noise(name: str, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    scale = U * DECAY ** np.arange(ROUNDS)[:, None, None]
    return {n: rng.laplace(size=(ROUNDS, N, D)) * scale for n in sections(name, {}, {})[0].noises}


@pytest.mark.parametrize("name", LAPLACE)
def test_the_same_objective_needs_the_noise_that_was_drawn(name: str) -> None:
    assert max(rows.max() for rows in shifts_of(name, 1.5, lambda k: np.zeros(D), laplace_noise(name, 3))) < 1e-9


@pytest.mark.parametrize("name", LAPLACE)
def test_the_worst_pair_needs_in_every_round_exactly_what_is_accounted(name: str) -> None:
    """Hence the bounds cannot be lowered: curvature ∓M, the gradients apart by δ along (1, …, 1)."""
    turning = LAPLACE[name][1]
    shift = (lambda k: (-1) ** k * DELTA * WORST) if turning else (lambda k: DELTA * WORST)
    found = shifts_of(name, M if turning else -M, shift, laplace_noise(name, 4))
    for ours, theirs in zip(mechanism(name).log_releases(ROUNDS), found, strict=True):
        np.testing.assert_allclose(np.exp(ours), theirs, rtol=1e-9, atol=1e-9)
    spent = epsilon(mechanism(name), ROUNDS)
    assert isinstance(spent, Epsilon)
    assert spent.value == pytest.approx(sum(rows.sum() for rows in found), rel=1e-9)


@pytest.mark.parametrize("name", LAPLACE)
def test_no_random_pair_needs_more_than_accounted(name: str) -> None:
    rng = np.random.default_rng(5)
    allowed = [np.exp(logs) for logs in mechanism(name).log_releases(ROUNDS)]
    for seed in range(15):
        drawn = rng.normal(size=(ROUNDS, D))
        turns = DELTA * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        curvature = rng.uniform(-M, M)
        found = shifts_of(name, curvature, turns.__getitem__, laplace_noise(name, seed))
        for limit, needed in zip(allowed, found, strict=True):
            assert (needed <= limit * (1 + 1e-9) + 1e-9).all()


def test_round_0_of_methods_that_send_x_alone_costs_nothing() -> None:
    """x⁰ does not depend on the data, not even bare."""
    bare = StepReleases(**COMMON, dimension=D, u_x=0.0, decay=DECAY, memory="none", steps=Schedule(0.1))
    assert epsilon(bare, 1) == Epsilon(-np.inf, 0.0)
    spent = epsilon(bare, 2)
    assert isinstance(spent, Epsilon)
    assert spent.value is None
    assert spent.reason == "u_x = 0: every message carries a bare x"


def test_dmsp_spends_its_published_epsilon_over_an_infinite_run() -> None:
    """w ~ Lap(2C√d·c·p^{t−1}/(ε(p − q))): the account of δ = 2C sums to ε."""
    c, q, p, bound, wanted = 0.7, 0.5, 0.8, 1.3, 2.0
    u_x = 2 * bound * np.sqrt(D) * c / (wanted * (p - q))
    section, noise = sections("dmsp", {"c": c, "q": q}, {"u_x": u_x, "decay": p, "grid": 0})
    releases = section.mechanisms(noise, D, 2 * bound, np.full(1, np.inf))
    assert not isinstance(releases, Unsupported)
    spent = epsilon(releases[0], 400)
    assert isinstance(spent, Epsilon)
    assert spent.value == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("product", [0.5, 1.0, 2.0])
def test_step_shifts_have_the_closed_form_of_a_geometric_sum(product: float) -> None:
    """s_k = (δ/M) Σ_{j=1..k} (αM)^j for a constant step; far beyond float64 as well."""
    releases = StepReleases(**COMMON, dimension=1, u_x=1.0, decay=1.0, memory="none", steps=Schedule(product / M))
    (logs,) = releases.log_releases(3000)
    k = np.arange(1, 3000)
    if product == 1:
        closed = np.log(k)
    else:
        closed = (
            np.log(product)
            + np.maximum(np.log(product), 0) * (k - 1)
            + np.log(np.abs(-np.expm1(-np.abs(np.log(product)) * k)) / -np.expm1(-np.abs(np.log(product))))
        )
    np.testing.assert_allclose(logs[1:], closed + np.log(DELTA / M), rtol=1e-12, atol=1e-12)


def test_gaussian_noise_has_a_zcdp_and_says_so() -> None:
    """One message with shift αδ: ρ = (αδ/σ)²/2; and never a pure ε."""
    releases = GaussianStepReleases(**COMMON, sigma=2.0, memory="own", steps=Schedule(0.5))
    assert releases.zcdp(1) == 0
    assert releases.zcdp(2) == pytest.approx((0.5 * DELTA / 2) ** 2 / 2)
    second = 0.5 * DELTA + 0.5 * (DELTA + M * 0.5 * DELTA)
    assert releases.zcdp(3) == pytest.approx(((0.5 * DELTA / 2) ** 2 + (second / 2) ** 2) / 2)
    spent = epsilon(releases, 3)
    rho = releases.zcdp(3)
    assert isinstance(spent, Unsupported)
    assert f"({rho + 2 * np.sqrt(rho * np.log(1e5)):.4g}, 1e-05)" in spent.reason
    assert isinstance(cumulative(releases, 3), Unsupported)
    assert isinstance(largest_rounds(releases, 1.0, 10), Unsupported)


def test_diff2_accounts_for_gradients_and_for_differences() -> None:
    """Rounds 1 and 4 restart: (δ/σ)²/2 each; rounds 2, 3 and 5: (2M/σ_d)²/2 each."""
    releases = GaussianDifferenceReleases(**COMMON, sigma=0.5, sigma_difference=8.0, restart=3)
    assert releases.zcdp(0) == releases.zcdp(1) == 0
    assert releases.zcdp(6) == pytest.approx(2 * (DELTA / 0.5) ** 2 / 2 + 3 * (2 * M / 8) ** 2 / 2)
    silent = GaussianDifferenceReleases(**COMMON, sigma=0.0, sigma_difference=1.0, restart=3)
    assert "hides nothing" in str(epsilon(silent, 6))


def test_what_cannot_be_accounted_for_is_said() -> None:
    unknown = TrackingReleases(**TRACKING, u_y=1.0)
    assert "finite Lipschitz bound" in str(epsilon(unknown, 5))
    assert "dpp2 only" in str(epsilon(mechanism("diadsp"), 5, published=True))


EXAMPLES = (
    StepReleases(
        **COMMON, dimension=D, u_x=1.0, decay=0.9, memory="difference", steps=Schedule(0.1, slowdown=0.5, power=0.7)
    ),
    TrackingReleases(**TRACKING, u_y=2.0),
    GaussianStepReleases(**COMMON, sigma=1.0, memory="own", steps=Schedule(0.1)),
    GaussianDifferenceReleases(**COMMON, sigma=1.0, sigma_difference=2.0, restart=7),
    Unaccounted(reason="nobody knows"),
)


@pytest.mark.parametrize("releases", EXAMPLES, ids=lambda releases: releases.kind)
def test_a_ledger_keeps_every_kind(releases: Releases) -> None:
    ledger = Ledger("0", "data").charge("run", releases, 4)
    back = Ledger.from_dict(ledger.to_dict())
    assert back == ledger
    assert back.entries["run"].mechanism == releases


def test_every_kind_is_kept() -> None:
    assert {type(example) for example in EXAMPLES} == set(BASELINES)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kind": "magic"}, "kind"),
        ({"kind": []}, "kind"),
        ({"u_y": None}, "u_y"),
        ({"u_y": "nan"}, "u_y"),
        ({"more": 1}, "more"),
        ({"decay": 2.0}, "decay"),
        ({"dimension": "ten"}, "dimension"),
        ({"alpha": -1.0}, "step"),
    ],
)
def test_a_damaged_ledger_entry_is_one_sentence(change: Tables, complaint: str) -> None:
    plain = Ledger("0", "data").charge("run", EXAMPLES[1], 4).to_dict()
    plain["runs"]["run"]["mechanism"] |= change
    with pytest.raises(ValueError, match=complaint):
        Ledger.from_dict(plain)


def test_a_budget_stops_a_baseline_before_the_round_that_would_exceed_it() -> None:
    tables = {"algorithm.name": "diadsp", "privacy.budget": 20.0, "run.rounds": 100}
    result = run(Experiment.load(overrides=tables))
    assert 0 < result.rounds < 100
    assert isinstance(result.privacy.epsilon, Epsilon)
    assert result.privacy.epsilon.fits(20.0)
    assert f"round {result.rounds} would bring the total" in str(result.privacy.stopped)
    assert "its own algorithm only" in str(result.privacy.paper_epsilon)


@pytest.mark.parametrize("name", ["wang-basar", "privsgp-vr"])
def test_a_budget_cannot_be_kept_without_a_pure_epsilon(name: str) -> None:
    simulation = Simulation(Experiment.load(overrides={"algorithm.name": name, "privacy.budget": 20.0}))
    assert simulation.remaining == 0
    assert "no budget can be kept: Gaussian noise has no pure ε" in str(simulation.allowance.reason)
    charged = simulation.budget.fresh_ledgers()[0].charge("run", simulation.account.mechanisms[0], 5)
    assert isinstance(charged.spent(), Unsupported)  # and is not forgotten
