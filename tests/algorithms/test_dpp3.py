"""DPP³ is what its docstring says: x is a function of the messages, edge noise cancels, mixing rounds are free."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpp2 import BadInput, Experiment, Result, Simulation, run
from dpp2.algorithms.dpp3 import Dpp3Section, Mixing, shrinkage_of, start
from dpp2.algorithms.dpp3_noise import Dpp3Noise
from dpp2.arrays import Array
from dpp2.privacy import Epsilon, Ledger, Unsupported, cumulative
from dpp2.privacy.cancelling_releases import CancellingReleases
from dpp2.store.files import read_npz

KINDS = ("gaussian", "laplace")


def small(**more: object) -> Experiment:
    tables: dict[str, object] = {
        "algorithm.name": "dpp3",
        "network.topology": "complete",
        "network.agents": 8,
        "problem.dimension": 3,
        "problem.samples": 6,
    }
    return Experiment.load(overrides=tables | {key.replace("__", "."): value for key, value in more.items()})


def ring(**more: object) -> Experiment:
    return small(network__topology="ring", **more)


def parts(result: Result) -> tuple[Dpp3Section, Dpp3Noise]:
    section, noise = result.experiment.algorithm, result.experiment.noise
    assert isinstance(section, Dpp3Section)
    assert isinstance(noise, Dpp3Noise)
    return section, noise


def overheard(result: Result) -> Array:
    """x^K of everybody from the observation and public parameters alone."""
    (section, noise), seen = parts(result), result.observation
    assert seen is not None
    P, v = np.array(seen.P), np.array(seen.v)
    shrinkage = shrinkage_of(section, noise, v.shape[1], v.shape[2])
    state, mixing = start(np.zeros(v.shape[1:])), Mixing(section)
    for k, rows in enumerate(v):
        state = mixing.moved(state, rows, _mixed(P, rows), k, shrinkage)
    return state.x


def _mixed(P: Array, rows: Array) -> Array:
    from scipy.sparse import csr_array

    return np.asarray(csr_array(P) @ rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("topology", ["complete", "ring"])
def test_everybodys_result_follows_from_the_messages_bit_for_bit(kind: str, topology: str) -> None:
    result = run(small(noise__kind=kind, network__topology=topology, run__rounds=60))
    assert overheard(result).tobytes() == result.x.tobytes()
    assert np.ptp(result.x, axis=0).max() < 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_what_edges_add_vanishes_from_the_sum_over_all_agents(kind: str) -> None:
    result = run(ring(noise__kind=kind))
    (_, noise), truth = parts(result), result.truth
    assert truth is not None
    assert np.abs(truth.edge).max() > 20 * noise.reference
    np.testing.assert_allclose(truth.edge.sum(axis=1), 0, atol=1e-10 * noise.reference)


def test_without_a_grid_gradient_and_noise_are_added_as_they_are() -> None:
    result = run(ring(algorithm__alpha=0.5, algorithm__slowdown=0.0, noise__grid=0))
    truth, seen = result.truth, result.observation
    assert truth is not None
    assert seen is not None
    np.testing.assert_allclose(-seen.v[0] / 0.5, truth.grad[0] + truth.own[0] + truth.edge[0], rtol=1e-12)


def test_a_gradient_round_sends_multiples_of_the_grid_and_other_rounds_nothing_of_the_gradient() -> None:
    result = run(ring(algorithm__alpha=0.5, algorithm__slowdown=0.0))
    (section, noise), seen = parts(result), result.observation
    assert seen is not None
    steps = -seen.v[0] / 0.5 / noise.g  # x⁰ = 0, and halves are exact
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert result.truth is not None
    for name in ("own", "edge"):
        drawn = np.abs(result.truth[name]).max(axis=(1, 2)) > 0
        assert np.flatnonzero(drawn).tolist() == [g * section.T for g in range(section.G)]
    for k in range(section.rounds):
        if not section.cycle(k).is_gradient:
            np.testing.assert_array_equal(seen.v[k], result.truth.x[k])


@pytest.mark.parametrize("kind", KINDS)
def test_epsilon_is_flat_on_mixing_rounds_and_ends_at_the_target(kind: str) -> None:
    simulation = Simulation(ring(noise__kind=kind, privacy__budget=10.0))
    section = simulation.experiment.algorithm
    assert isinstance(section, Dpp3Section)
    curve = simulation.account.curve(section.rounds)
    assert not isinstance(curve, Unsupported)
    risen = np.flatnonzero(np.diff(np.concatenate([[0.0], curve.values])) > 0)
    assert set(risen) <= {g * section.T for g in range(section.G)}
    assert 10.0 * (1 - 2e-3) <= curve.values[-1] <= 10.0
    spent = simulation.account.epsilon(section.rounds, published=True)
    assert isinstance(spent, Epsilon)
    assert spent.value == curve.values[-1]  # publishing is free
    assert spent.log2_delta == pytest.approx(np.log2(1e-5)) if kind == "gaussian" else spent.log2_delta < -35


@pytest.mark.parametrize("topology", ["star", "path", "ring", "complete", "grid"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_with_its_defaults_on_every_graph(topology: str, kind: str) -> None:
    agents = {"network__agents": 9}
    result = run(small(network__topology=topology, noise__kind=kind, **agents))
    assert np.isfinite(result.x).all()
    assert isinstance(result.privacy.epsilon, Epsilon)
    assert result.privacy.epsilon.fits(1.0)
    assert result.rounds == parts(result)[0].rounds
    cut = [note for note in result.privacy.notes if "disconnect" in note]
    assert bool(cut) == (topology in ("star", "path"))
    assert all("would help" in note for note in cut)


@pytest.mark.parametrize(
    "more", [("quadratic", {}), ("least-squares", {"privacy.adjacency": "record", "privacy.clip": 99.0})]
)
def test_one_gradient_under_laplace_noise_does_not_overshoot_squares(more: tuple[str, dict[str, object]]) -> None:
    """Hardly any noise, and one step: with 2/M̄ it ends as far from the answer as it began, with 8/M̄ farther."""
    problem, records = more
    settings = {"algorithm.name": "dpp3", "network.topology": "complete", "network.agents": 8, "problem.name": problem}
    result = run(Experiment.load(overrides=settings | {"noise.kind": "laplace", "noise.own": 1e-4} | records))
    assert result.metrics.gap[-1] < 0.3 * result.metrics.gap[0]


def test_somebody_whom_nothing_hides_has_an_infinite_epsilon_and_the_run_goes_on() -> None:
    result = run(small(network__topology="star", noise__kind="laplace", noise__holders=[0], noise__own=1.0))
    assert isinstance(result.privacy.epsilon, Epsilon)
    assert result.privacy.epsilon.log10 == np.inf
    assert "nobody's noise" in str(result.privacy.epsilon.reason)


def test_a_start_that_is_secret_is_refused_and_a_public_one_is_not() -> None:
    with pytest.raises(BadInput, match=r"run\.start = 'normal': .* public"):
        ring(run__seed="os", run__start="normal").resolve()
    assert ring().resolve().run.start == "zero"
    assert ring(run__start="normal").resolve().run.start == "normal"


def test_resolving_twice_changes_nothing() -> None:
    once = ring(noise__kind="laplace").resolve()
    assert once.resolve().tables() == once.tables()
    assert Experiment.parse(once.tables()).resolve().digest == once.digest


def test_more_colluders_need_more_noise_and_too_many_sets_are_refused_in_words() -> None:
    own = [parts(run(small(privacy__colluders=c)))[1].reference for c in (0, 1, 2, 3)]
    assert own == sorted(own)
    many = Simulation(small(network__agents=60, privacy__colluders=8, run__rounds=2))
    refused = many.account.epsilon(1)
    assert isinstance(refused, Unsupported)
    assert "name sets" in refused.reason
    named = Simulation(small(network__agents=60, privacy__colluders=[[0, 1, 2, 3, 4, 5, 6, 7]], run__rounds=2))
    assert isinstance(named.account.epsilon(1), Epsilon)


def test_a_run_that_ends_before_its_schedule_says_so() -> None:
    early = run(small(algorithm__gradient_rounds=3, algorithm__mixings=4, run__rounds=7))
    assert "run.rounds = 7 ends before round 16, when all is mixed, averaged and shrunk" in early.privacy.notes
    assert not any("ends before round" in note for note in run(small(run__rounds=7)).privacy.notes)


@pytest.mark.parametrize("named", [[], [[0, 1], [*range(8)]]])
def test_named_sets_must_name_somebody_and_leave_somebody_honest(named: list[list[int]]) -> None:
    with pytest.raises(BadInput, match=r"privacy\.colluders"):
        small(privacy__colluders=named).resolve()
    assert run(small(privacy__colluders=[[]], run__rounds=2)).rounds == 2  # nobody colludes


@pytest.mark.parametrize("more", [{"privacy__delta": 1e-25}, {"privacy__budget": 1000.0}])
def test_where_the_ends_of_the_noise_cost_too_much_that_is_said(more: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=r"privacy\.budget = .*: expected a smaller ε, a larger privacy\.delta or more"):
        small(**more).resolve()


def test_ledgers_keep_it_and_runs_add_up() -> None:
    (mechanism, *_) = Simulation(ring()).account.mechanisms
    assert isinstance(mechanism, CancellingReleases)
    ledger = Ledger("0", "data").charge("a", mechanism, 0).charge("b", mechanism, 0)
    read = Ledger.from_dict(ledger.to_dict())
    assert read.entries == ledger.entries
    spent, one = read.spent(), cumulative(mechanism, 1)
    assert isinstance(spent, Epsilon)
    assert not isinstance(one, Unsupported)
    assert spent.value == pytest.approx(2 * one.values[0])
    assert spent.log2_delta == pytest.approx(np.log2(2e-5))
    assert read.publish("a", 1).spent() == spent


@pytest.mark.slow
def test_over_nodes_it_is_the_embedded_run_byte_for_byte(tmp_path: Path) -> None:
    settings = (
        "algorithm.name=dpp3",
        "network.topology=ring",
        "network.agents=4",
        "problem.samples=6",
        "run.rounds=12",
    )
    common = [word for setting in settings for word in ("--set", setting)]
    for name, transport in (("embedded", "embedded"), ("nodes", "grpc")):
        words = [*common, "--set", f"run.transport={transport}", "--out", str(tmp_path / name)]
        subprocess.run([sys.executable, "-m", "dpp2.orchestrator", "run", *words], check=True, capture_output=True)
    sent = [read_npz(tmp_path / name / "observation.npz")["v"] for name in ("embedded", "nodes")]
    assert sent[0].tobytes() == sent[1].tobytes()
