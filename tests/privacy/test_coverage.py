"""Rounds whose noise float64 does not carry: named, charged with ε = ∞, and never begun by a run with a budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment, Result, Simulation
from dpp2.grid import grid, to_grid
from dpp2.privacy import Epsilon, Ledger
from dpp2.privacy.grid import largest_sizes, uncovered
from dpp2.store.ledgers import LedgerFile
from tests.adversary.attacked import attacked

Call = Callable[..., Any]
# Noise that has sunk below what float64 carries beside values of size 1 in about twenty rounds.
FAST: dict[str, Any] = {
    "network.topology": "ring",
    "network.agents": 4,
    "problem.name": "quadratic",
    "problem.dimension": 3,
    "run.rounds": 40,
    "noise.decay": 0.3,
}


def simulated(rounds: int | None = None, **changes: Any) -> Simulation:
    tables = FAST | {name.replace("__", "."): value for name, value in changes.items()}
    simulation = Simulation(Experiment.load(overrides=tables))
    simulation.advance(simulation.remaining if rounds is None else rounds)
    return simulation


def first_by_hand(simulation: Simulation) -> int:
    """From the truth: the first round with an x or a gradient that is too large for the noise."""
    truth, noise = simulation.result().truth, simulation.experiment.noise
    assert truth is not None
    sizes = np.maximum(np.abs(truth.x).max(axis=(1, 2)), np.abs(truth.grad).max(axis=(1, 2)))
    scales = noise.scales_in(np.arange(len(sizes)), 4)["u_w"][:, 0]
    return int(np.argmax(~(sizes < largest_sizes(scales, noise.grid))))


# --- a run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("damping", "k"), [(0.0, 204), (1.0, 224)])
def test_the_default_experiment_says_from_which_round_on_its_noise_is_not_carried(damping: float, k: int) -> None:
    simulation = Simulation(Experiment.load(overrides={"algorithm.damping": damping, "run.rounds": 240}))
    simulation.advance(240)
    result = simulation.result()
    assert result.privacy.epsilon == uncovered(k)
    assert f"from round {k} on" in str(uncovered(k).reason)
    assert np.isfinite(result.metrics.epsilon[: k + 1]).all()
    assert np.isinf(result.metrics.epsilon[k + 1 :]).all()
    beforehand = "float64 carries the noise of round 239 only beside values below"
    assert any(beforehand in note for note in simulation.account.notes)
    assert not any(beforehand in note for note in result.privacy.notes)  # afterwards ε says it


def test_the_round_is_the_first_whose_values_are_too_large() -> None:
    simulation = simulated()
    assert simulation.k == 40
    assert 10 < first_by_hand(simulation) < 30
    assert simulation.budget.uncovered == first_by_hand(simulation)


def test_a_run_with_a_budget_stops_before_it_and_its_account_is_finite() -> None:
    k = first_by_hand(simulated())
    simulation = simulated(privacy__budget=1e30)
    assert simulation.k == k
    assert simulation.remaining == 0
    report = simulation.result().privacy
    assert isinstance(report.epsilon, Epsilon)
    assert report.epsilon.value is not None
    assert report.stopped is not None
    assert f"round {k} would bring the total to ε = ∞: from round {k} on the noise" in report.stopped


def test_noise_in_doubles_claims_no_coverage_and_says_that_its_account_is_void() -> None:
    simulation = simulated(noise__grid=0)
    assert simulation.budget.uncovered is None
    assert any("void on real computers" in note for note in simulation.result().privacy.notes)
    assert not any("void on real computers" in note for note in simulated(1).result().privacy.notes)


@pytest.mark.parametrize("stopped_at", [5, 35])
def test_a_resumed_run_remembers(stopped_at: int) -> None:
    whole, before = simulated(), simulated(stopped_at)
    resumed = Simulation(before.experiment)
    resumed.restore(before.snapshot())
    resumed.advance(40)
    assert resumed.budget.uncovered == whole.budget.uncovered
    np.testing.assert_array_equal(resumed.result().metrics.epsilon, whole.result().metrics.epsilon)


def test_lists_of_scales_are_checked_agent_by_agent() -> None:
    """One agent without noise has nothing to carry; another whose noise is a thousand times finer ends earlier."""
    alone = simulated().budget.uncovered
    finer = simulated(noise__u_w=[1.0, 1.0, 1e-3, 0.0], noise__u_e=[1.0, 1.0, 1e-3, 0.0]).budget.uncovered
    assert alone is not None
    assert finer is not None
    assert 3 <= alone - finer <= 8


@pytest.mark.parametrize("block", [1, 3])
def test_blocks_of_any_size_end_at_the_same_round(block: int) -> None:
    simulation = Simulation(Experiment.load(overrides=FAST), block=block)
    simulation.advance(40)
    assert simulation.budget.uncovered == simulated().budget.uncovered


# --- what is exact while it is covered ------------------------------------------------------------------------------


@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_z_minus_e_is_exactly_the_rounded_value(damping: float) -> None:
    simulation = Simulation(Experiment.load(overrides={"run.rounds": 120, "algorithm.damping": damping}))
    simulation.advance(120)
    result: Result = simulation.result()
    assert result.truth is not None
    assert result.observation is not None
    sent, true, P = result.observation, result.truth, simulation.prepared.P
    q = np.zeros_like(true.x[0])
    for k in range(120):
        g = float(grid(0.9**k, 20))
        following = true.eta[k] * q + 10.0 * (P @ sent.y[k])
        np.testing.assert_array_equal(sent.z[k] - true.e[k], to_grid(true.grad[k], g) + to_grid(following, g))
        q = q + (following - q) / (1 + damping) if damping else following
    np.testing.assert_array_equal(sent.y[0] - (1 + damping) * true.w[0], (1 + damping) * to_grid(true.x[0], 2.0**-20))


def test_the_grid_leaves_convergence_as_it_was() -> None:
    """Damped, three runs each, other noise: the gap falls by fifteen orders of magnitude on the same curve."""
    checked = [25, 50, 100, 150, 200, 220]  # coverage ends at 224
    curves = {}
    for bits in (0, 20):
        runs = []
        for seed in (1, 2, 3):
            tables = {"noise.grid": bits, "run.seed": seed, "problem.seed": 1, "algorithm.damping": 1.0}
            simulation = Simulation(Experiment.load(overrides=tables | {"run.rounds": 221}), record=False)
            simulation.advance(221)
            runs.append(np.log10(simulation.recorder.columns["gap"][checked]))
        curves[bits] = np.mean(runs, axis=0)
    np.testing.assert_allclose(curves[20], curves[0], atol=0.3)
    assert curves[20][-1] < -16


# --- ledgers -------------------------------------------------------------------------------------------------------


def test_a_ledger_remembers_and_forgives_rounds_that_were_never_sent() -> None:
    simulation = simulated()
    (mechanism, *_), k = simulation.account.mechanisms, simulation.budget.uncovered
    assert k is not None
    ledger = Ledger("0", "data").charge("run", mechanism, 39).uncover("run", k)
    assert ledger.spent() == Epsilon(np.inf, None, uncovered(k).reason)
    read = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    assert read == ledger
    settled = read.settle("run", k).spent()
    assert isinstance(settled, Epsilon)
    assert settled.value is not None
    assert read.uncover("run", None) == read
    assert ledger.rounds_within(1e30, mechanism, "another", 5).rounds == 0


def test_the_command_charges_and_says_so(dpp2: Call, quick_plot: None, tmp_path: Path) -> None:
    chosen = [word for name, value in FAST.items() for word in ("--set", f"{name}={value}")]
    done = dpp2("run", *chosen, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "on the noise is finer than float64 can carry" in done.err
    document = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert document["epsilon"] is None
    assert "from round" in document["reason"]
    for total in LedgerFile(tmp_path / "ledger.sqlite").totals():
        assert isinstance(total.spent, Epsilon)
        assert total.spent.log10 == np.inf
    published = dpp2("privacy", "publish", tmp_path / "run")
    assert published.code == 2
    assert "finer than float64 can carry" in published.err


@pytest.mark.slow
@pytest.mark.parametrize("budget", [None, 1e30])
def test_nodes_find_the_same_round_as_an_embedded_run(budget: float | None, dpp2: Call, tmp_path: Path) -> None:
    tables = FAST | ({"privacy.budget": budget} if budget else {})
    chosen = [word for name, value in tables.items() for word in ("--set", f"{name}={value}")]
    documents, spent = [], []
    for name, how in (("apart/embedded", []), ("nodes/run", ["--transport", "grpc", "--processes", 2])):
        done = dpp2("run", *chosen, *how, "--out", tmp_path / name)
        assert done.code == 0, done.err
        documents.append(json.loads((tmp_path / name / "privacy.json").read_text()))
        spent.append([total.spent for total in LedgerFile((tmp_path / name).parent / "ledger.sqlite").totals()])
    assert documents[0] == documents[1]
    for together, apart in zip(*spent, strict=True):  # a node knows its own agents: they may be covered a little longer
        assert isinstance(together, Epsilon)
        assert isinstance(apart, Epsilon)
        assert (apart.log10 < np.inf) == (budget is not None)
        assert apart.log10 >= together.log10


# --- the account ----------------------------------------------------------------------------------------------------


def test_epsilon_with_the_grid_is_within_one_per_cent_at_epsilon_one_and_ten_at_a_tenth() -> None:
    """d·2^−b for each message is an absolute amount: the smaller ε, the larger its share."""
    from dataclasses import replace

    from dpp2.privacy import Dpp2Releases, calibrate, epsilon
    from dpp2.privacy.calibrate import Calibration

    plain = Dpp2Releases(dimension=10, alpha=0.1, smoothness=5.03, adjacency=0.1, u_e=1.0, u_w=1.0, decay=1.0)
    for budget, more in ((1.0, 0.00955), (0.1, 0.0955)):
        found = calibrate(plain, budget, "scale", rounds=500)
        assert isinstance(found, Calibration)
        spent = epsilon(replace(found.mechanism, bits=20), 500)
        assert isinstance(spent, Epsilon)
        assert spent.value is not None
        assert spent.value / budget - 1 == pytest.approx(more, rel=0.01)
        assert spent.tail == "2^−65"
        fitted = calibrate(replace(plain, bits=20), budget, "scale", rounds=500)
        assert isinstance(fitted, Calibration)
        assert fitted.feasible
        assert fitted.epsilon.value is not None
        assert budget * (1 - 1e-9) <= fitted.epsilon.value <= budget
    hopeless = calibrate(replace(plain, bits=20), 0.009, "scale", rounds=500)
    assert isinstance(hopeless, Calibration)
    assert not hopeless.feasible
    assert "its grid of 20 bits costs that much at any scale" in str(hopeless.reason)


def test_the_game_on_real_doubles_proves_more_than_the_account_says() -> None:
    """And on the grid it does not: the same pair, the same trials, ε = 0.1."""
    from dpp2.adversary.bounds import lower_bound
    from dpp2.adversary.game import Game, play
    from dpp2.privacy import Dpp2Releases

    proven = {}
    for bits in (0, 20):
        unit = Dpp2Releases(
            dimension=2, alpha=0.1, smoothness=5.0, adjacency=0.1, u_e=3.0, u_w=3.0, decay=1.0, bits=bits
        )
        game = Game(unit, 2)
        proven[bits] = lower_bound(play(game, 4000, 1), 1 - 1e-6).value
        assert game.epsilon < 0.2
    assert proven[0] > 3
    assert proven[20] <= 0.2


def test_the_attack_is_scored_in_every_audit() -> None:
    for bits, share in ((0, 1.0), (20, 0.0)):
        run = attacked({"run.rounds": 2, "noise.u_e": 1e4, "noise.grid": bits})
        estimate, _ = run.tried("float-bits")
        assert estimate.x is None
        from dpp2.adversary.candidates import ruled_out

        found = ruled_out(estimate.excludes, run.truth, range(50))  # type: ignore[attr-defined]
        assert found["adjacent_ruled_out"] == share
