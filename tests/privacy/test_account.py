"""The account of a run: the worst-off agent decides, the budget is kept to the round, and labels say what is void."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2 import BadInput, Experiment, Simulation, run
from dpp2.arrays import Array
from dpp2.privacy import Curve, Dpp2Releases, Epsilon, Unsupported, cumulative, epsilon, theorem_3
from dpp2.privacy.account import Account
from dpp2.problems.logistic import Logistic, LogisticSection

USUAL = Dpp2Releases(dimension=2, alpha=0.1, smoothness=1.0, adjacency=0.1, u_e=1.0, u_w=1.0, decay=0.9)
TABLES = {
    "network.topology": "ring",
    "network.agents": 3,
    "problem.name": "least-squares",
    "problem.dimension": 2,
    "run.rounds": 6,
}


def experiment(**changes: Any) -> Experiment:
    return Experiment.load(overrides=TABLES | {name.replace("__", "."): value for name, value in changes.items()})


def account_of(**changes: Any) -> Account:
    return Simulation(experiment(**changes), record=False).account


def releases_of(account: Account) -> list[Dpp2Releases]:
    found = [one for one in account.mechanisms if isinstance(one, Dpp2Releases)]
    assert len(found) == len(account.mechanisms) > 0
    return found


def account(*mechanisms: Dpp2Releases) -> Account:
    return Account(mechanisms, None, None, ())


def value(spent: Epsilon | Unsupported) -> float:
    assert isinstance(spent, Epsilon)
    assert spent.value is not None
    return spent.value


# Few values each, so that agents often differ in one respect alone.
some = st.sampled_from
mechanisms = st.builds(
    Dpp2Releases,
    dimension=st.just(2),
    alpha=st.just(0.1),
    smoothness=some([0.0, 1.0, 5.0, 10.0, 30.0]),
    adjacency=st.just(0.1),
    u_e=some([0.0, 0.1, 1.0, 5.0]),
    u_w=some([0.0, 0.1, 1.0, 5.0]),
    decay=some([0.0, 0.5, 0.9, 1.0]),
)


class TestWorstAgent:
    @settings(deadline=None)
    @given(st.lists(mechanisms, min_size=1, max_size=8), st.integers(0, 40), st.booleans())
    def test_no_agent_is_worse_off_than_the_account_says(
        self, agents: list[Dpp2Releases], rounds: int, published: bool
    ) -> None:
        spent = [epsilon(agent, rounds, published=published) for agent in agents]
        worst = max(one.log10 for one in spent if isinstance(one, Epsilon))
        found = account(*agents).epsilon(rounds, published=published)
        assert isinstance(found, Epsilon)
        assert found.log10 == worst
        assert found in spent
        assert len(account(*agents).distinct) <= len({replace(agent, smoothness=0.0) for agent in agents})

    @settings(deadline=None)
    @given(st.lists(mechanisms, min_size=1, max_size=8), st.integers(1, 40))
    def test_the_curve_is_that_of_the_worst_agent_of_each_round(self, agents: list[Dpp2Releases], rounds: int) -> None:
        curves = [curve for agent in agents if isinstance(curve := cumulative(agent, rounds), Curve)]
        assert len(curves) == len(agents)
        found = account(*agents).curve(rounds)
        assert not isinstance(found, Unsupported)
        np.testing.assert_array_equal(found.values, np.max([c.values for c in curves], axis=0))
        np.testing.assert_array_equal(found.log10, np.max([c.log10 for c in curves], axis=0))

    def test_who_is_worst_off_depends_on_the_rounds(self) -> None:
        """Little noise that lasts is worse at first, much noise that fades is worse in the end."""
        lasting, fading = replace(USUAL, u_e=0.1, u_w=0.1, decay=1.0), replace(USUAL, decay=0.5)
        both = account(lasting, fading)
        assert both.epsilon(3) == epsilon(lasting, 3)
        assert both.epsilon(30) == epsilon(fading, 30)
        assert both.paper_epsilon(3) == theorem_3(lasting, 3)
        assert both.paper_epsilon(30) == theorem_3(fading, 30)

    @pytest.mark.parametrize("order", [(math.inf, 5.0), (5.0, math.inf), (1.0, math.inf, 5.0)])
    def test_one_agent_of_unknown_smoothness_leaves_no_account(self, order: tuple[float, ...]) -> None:
        found = account(*(replace(USUAL, smoothness=M) for M in order))
        assert isinstance(found.epsilon(3), Unsupported)
        assert isinstance(found.curve(3), Unsupported)

    def test_an_algorithm_without_an_account_has_no_number(self) -> None:
        outside = Unsupported("nobody has worked it out")
        bare = Account((), outside, 5.0, ())
        assert bare.epsilon(3) is bare.curve(3) is bare.paper_epsilon(3) is outside
        allowed = bare.allowance([], "a", 10)
        assert (allowed.rounds, allowed.reason) == (0, "no budget can be kept: nobody has worked it out")


OWN = """
class Bowl:
    dimension = 2
    def __init__(self, agent):
        if agent:
            self.smoothness = 1.0
    def value(self, x): return float(x @ x) / 2
    def gradient(self, x): return x
def objective(agent, agents): return Bowl(agent)
"""


class TestOfAnExperiment:
    def test_one_agent_of_unknown_smoothness(self, tmp_path: Path) -> None:
        """It has no ε, but it is charged: what was released is not undone by a bound that is declared later."""
        (tmp_path / "own.py").write_text(OWN)
        own = TABLES | {"problem.name": "file", "problem.path": str(tmp_path / "own.py")}
        del own["problem.dimension"]
        simulation = Simulation(Experiment.load(overrides=own), record=False)
        assert str(simulation.account.epsilon(3)) == (
            "unsupported, because no bound M_i is known: declare privacy.smoothness"
        )
        assert not any("M_i is computed" in note for note in simulation.account.notes)
        assert [m.smoothness for m in simulation.account.mechanisms] == [math.inf, 1.0, 1.0]
        spent = simulation.budget.fresh_ledgers()[0].charge("earlier", simulation.account.mechanisms[0], 2)
        declared = Simulation(Experiment.load(overrides=own | {"privacy.smoothness": 1.0}), record=False)
        allowed = spent.rounds_within(1e6, declared.account.mechanisms[0], "now", 6)
        assert (allowed.rounds, str(allowed.reason).startswith("no budget can be kept: in run earlier")) == (0, True)
        assert np.isnan(run(Experiment.load(overrides=own)).metrics.epsilon).tolist() == [False, *[True] * 6]
        assert run(Experiment.load(overrides=own | {"privacy.budget": 1e6})).rounds == 0

    def test_lists_give_every_agent_its_own_noise(self) -> None:
        lists = {"noise__u_e": [1.0, 2.0, 3.0], "noise__u_w": [4.0, 5.0, 6.0], "noise__decay": [0.7, 0.8, 0.9]}
        found = releases_of(account_of(**lists, algorithm__alpha=0.2))
        assert [(m.u_e, m.u_w, m.decay) for m in found] == [(1.0, 4.0, 0.7), (2.0, 5.0, 0.8), (3.0, 6.0, 0.9)]
        assert {(m.dimension, m.alpha, m.adjacency) for m in found} == {(2, 0.2, 0.1)}

    def test_each_agent_has_the_smoothness_of_its_own_data(self) -> None:
        simulation = Simulation(experiment(), record=False)
        expected = np.concatenate([block.program.objective.smoothness for block in simulation.driver.blocks])
        assert [m.smoothness for m in simulation.account.mechanisms] == expected.tolist()
        assert len(set(expected.tolist())) == 3

    def test_a_declared_smoothness_stands_for_all(self) -> None:
        assert {m.smoothness for m in account_of(privacy__smoothness=7.5).mechanisms} == {7.5}

    def test_a_declared_smoothness_that_the_data_break_is_refused(self) -> None:
        true = [m.smoothness for m in account_of().mechanisms]
        assert {m.smoothness for m in account_of(privacy__smoothness=max(true)).mechanisms} == {max(true)}
        with pytest.raises(BadInput, match=rf"privacy.smoothness = .*agent {np.argmax(true)} has M = {max(true):.6g}"):
            account_of(privacy__smoothness=max(true) * 0.999)

    @pytest.mark.parametrize("damping", [0.5, 1.0, 4.0])
    def test_damping_costs_nothing(self, damping: float) -> None:
        """τ changes how s = x + w is encoded in y, and the attacker can decode it either way."""
        assert account_of(algorithm__damping=damping).mechanisms == account_of().mechanisms

    def test_metrics_hold_epsilon_before_each_round(self) -> None:
        chosen = experiment(noise__u_e=[0.1, 1.0, 1.0], noise__decay=[1.0, 0.3, 0.9])
        spent = run(chosen).metrics.epsilon
        agents = Simulation(chosen, record=False).account.mechanisms
        assert spent[0] == 0
        assert spent.tolist() == [max(value(epsilon(agent, k)) for agent in agents) for k in range(7)]
        assert len({int(np.argmax([value(epsilon(agent, k)) for agent in agents])) for k in range(1, 7)}) == 2

    def test_metrics_beyond_float64_are_infinite(self) -> None:
        assert np.isinf(run(experiment(noise__u_e=0)).metrics.epsilon).tolist() == [False, *[True] * 6]


class TestBudget:
    @settings(deadline=None, max_examples=40)
    @given(
        budget=st.floats(0.01, 3.0),
        u_e=st.lists(st.floats(0.5, 50.0), min_size=3, max_size=3),
        u_w=st.lists(st.floats(0.5, 50.0), min_size=3, max_size=3),
        decay=st.lists(st.floats(0.3, 1.0), min_size=3, max_size=3),
        rounds=st.integers(1, 25),
    )
    def test_a_run_goes_as_far_as_the_budget_and_no_further(
        self, budget: float, u_e: list[float], u_w: list[float], decay: list[float], rounds: int
    ) -> None:
        chosen = experiment(
            privacy__budget=budget, noise__u_e=u_e, noise__u_w=u_w, noise__decay=decay, run__rounds=rounds
        )
        result = run(chosen, record=False)
        ours = account_of(noise__u_e=u_e, noise__u_w=u_w, noise__decay=decay)
        assert value(ours.epsilon(result.rounds)) <= budget
        assert result.privacy.epsilon == ours.epsilon(result.rounds)
        if result.rounds < rounds:
            assert value(ours.epsilon(result.rounds + 1)) > budget
            assert f"round {result.rounds} would bring the total to" in str(result.privacy.stopped)
        else:
            assert result.privacy.stopped is None

    @pytest.mark.parametrize(("earlier", "left"), [(30, 6), (56, 3), (200, 0)])
    def test_the_agent_with_the_least_left_decides(self, earlier: int, left: int) -> None:
        simulation = Simulation(experiment(privacy__budget=1.0, noise__u_e=10.0, noise__u_w=10.0, noise__decay=1.0))
        first, second, third = simulation.budget.fresh_ledgers()
        mechanism = simulation.account.mechanisms[1]
        second = second.charge("earlier", mechanism, earlier - 1)
        simulation.budget.allow([first, second, third])
        assert simulation.allowance == second.rounds_within(1.0, mechanism, simulation.prepared.secrets.run_id, 6)
        assert (simulation.allowance.rounds, simulation.remaining) == (left, left)
        assert ("earlier runs on the same data have spent" in str(simulation.allowance.reason)) == (left < 6)

    @pytest.mark.parametrize("bare", [{"noise__u_e": 0}, {"noise__u_w": [1.0, 0.0, 1.0]}, {"noise__decay": 0}])
    def test_without_noise_no_round_that_reveals_is_run(self, bare: dict[str, Any]) -> None:
        result = run(experiment(privacy__budget=1e6, **bare))
        assert result.rounds == (0 if "noise__u_e" in bare else 1)  # round 0 hides in its own noise, if it has any
        assert result.privacy.stopped
        assert result.x.shape == (3, 2)

    def test_without_a_budget_everything_is_run(self) -> None:
        result = run(experiment(noise__u_e=0))
        assert (result.rounds, result.privacy.stopped) == (6, None)


class TestRecords:
    """adjacency = "record": one record of one agent is exchanged, its features bounded by `feature_bound`."""

    BOUND, SAMPLES = 0.5, 20
    CHANGES: dict[str, Any] = {  # noqa: RUF012
        "problem__name": "logistic",
        "problem__dimension": 4,
        "problem__samples": SAMPLES,
        "privacy__adjacency": "record",
        "privacy__feature_bound": BOUND,
    }

    def objective(self, **changes: Any) -> Logistic:
        simulation = Simulation(experiment(**self.CHANGES | changes), record=False)
        found = simulation.driver.blocks[0].program.objective
        assert isinstance(found, Logistic)
        return found

    def resolved(self, **changes: Any) -> LogisticSection:
        found = experiment(**self.CHANGES | changes).resolve().problem
        assert isinstance(found, LogisticSection)
        return found

    def test_one_record_changes_no_other_agents_objective_by_a_bit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However far away the record is: through the scale it moved them all."""
        before, draw = self.objective(), LogisticSection._draw

        def exchanged(section: LogisticSection, agent: int) -> Array:
            products = draw(section, agent)
            if agent == 1:
                products[3] = -100 * products[3]
            return products

        monkeypatch.setattr(LogisticSection, "_draw", exchanged)
        after = self.objective()
        assert [np.array_equal(old, new) for old, new in zip(before.products, after.products, strict=True)] == [
            True,
            False,
            True,
        ]
        x = np.random.default_rng(1).standard_normal((3, 4))
        moved = np.linalg.norm(before(x)[1] - after(x)[1], axis=1)
        assert 0 < moved[1] <= 2 * self.BOUND / self.SAMPLES
        assert (moved[0], moved[2]) == (0, 0)
        assert (before.smoothness <= self.BOUND**2 / 4 + 2 * before.lambda_ * before.omega).all()

    def test_the_scale_comes_from_public_numbers_and_is_about_what_the_data_call_for(self) -> None:
        for dimension, samples in ((10, 200), (4, 20), (30, 60)):
            sizes = {"problem__dimension": dimension, "problem__samples": samples}
            public, seen = (
                self.resolved(**sizes),
                self.resolved(**sizes, privacy__adjacency=0.1, privacy__feature_bound=None),
            )
            assert public.scale is not None
            assert seen.scale == pytest.approx(public.scale, rel=0.25)
            assert public == self.resolved(**sizes, problem__seed=99).updated(seed=public.seed)
            assert (public.scale_from_data, seen.scale_from_data) == (None, True)

    def test_features_are_clipped_in_direction_and_size(self) -> None:
        clipped = self.objective().products
        scale = self.resolved().scale
        raw = self.objective(privacy__adjacency=0.1, privacy__feature_bound=None, problem__scale=scale).products
        sizes = np.linalg.norm(raw, axis=2, keepdims=True)
        assert sizes.min() > self.BOUND  # or there would be nothing to clip
        np.testing.assert_allclose(clipped, raw * (self.BOUND / sizes), rtol=1e-12)
        np.testing.assert_allclose(self.objective(privacy__feature_bound=1e3).products, raw, rtol=0)

    def test_delta_is_twice_the_bound_over_the_samples(self) -> None:
        assert {m.adjacency for m in releases_of(account_of(**self.CHANGES))} == {2 * self.BOUND / self.SAMPLES}

    def test_no_exchange_of_a_record_moves_a_gradient_further(self) -> None:
        """Brute force, at random points and at the worst ones; two nearly opposite records come close to δ."""
        before = self.objective()
        delta = releases_of(account_of(**self.CHANGES))[0].adjacency
        rng = np.random.default_rng(5)
        largest = 0.0
        for _ in range(300):
            products = before.products.copy()
            agent, sample = rng.integers(3), rng.integers(self.SAMPLES)
            old = products[agent, sample]
            new = rng.standard_normal(4) if rng.random() < 0.5 else 0.2 * rng.standard_normal(4) - old
            new *= self.BOUND * rng.choice([1.0, rng.random()]) / np.linalg.norm(new)
            worst = -(old + new) * 10 ** rng.uniform(0, 5)  # both records far on the wrong side
            products[agent, sample] = new
            after = Logistic(products, before.lambda_, before.omega)
            for point in (worst, rng.standard_normal(4) * 10 ** rng.uniform(-1, 3)):
                x = np.broadcast_to(point, (3, 4))
                moved = np.linalg.norm(before(x)[1] - after(x)[1], axis=1)
                assert moved[agent] <= delta * (1 + 1e-12)
                assert np.delete(moved, agent).max() == 0
                largest = max(largest, moved[agent])
        assert largest > 0.95 * delta


class TestNotes:
    """What makes an ε void is said wherever one is printed."""

    NO_EPSILON = "experiment: no ε holds"

    @pytest.mark.parametrize(
        ("changes", "void"),
        [
            ({}, ["run.seed is public", "truth.npz"]),
            ({"run__telemetry": "none"}, ["run.seed is public"]),
            ({"run__seed": "os"}, ["truth.npz"]),
            ({"run__seed": "os", "run__telemetry": "none"}, []),
        ],
    )
    @pytest.mark.parametrize("smoothness", [None, 20.0])
    def test_seeded_recorded_or_neither(
        self, changes: dict[str, Any], void: list[str], smoothness: float | None
    ) -> None:
        notes = run(experiment(**changes, privacy__smoothness=smoothness)).privacy.notes
        found = [note for note in notes if note.startswith(self.NO_EPSILON)]
        assert len(found) == len(void)
        assert all(why in note for why, note in zip(void, found, strict=True))
        assert any("M_i is computed from the private data" in note for note in notes) == (smoothness is None)
        assert "solution.npz" in notes[-1]

    def test_a_start_from_a_file_is_said(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.zeros((3, 2)))
        said = "run.start is a file: whatever data its x⁰ was made from are outside ε"
        assert said in run(experiment(run__start=str(tmp_path / "x.npy"))).privacy.notes
        assert not any("run.start" in note for note in account_of(run__start="zero").notes)

    LOGISTIC: dict[str, Any] = {"problem__name": "logistic", "problem__samples": 9}  # noqa: RUF012
    SCALE = "problem.scale was computed from all agents' data and is outside ε: declare it"

    def test_a_scale_from_all_agents_data_is_said(self, tmp_path: Path) -> None:
        """Also of a run that is read back, while what the run is stays the same."""
        computed = experiment(**self.LOGISTIC).resolve()
        (tmp_path / "experiment.toml").write_text(computed.to_toml())
        read = Experiment.load(tmp_path / "experiment.toml").resolve()
        assert read.digest == computed.digest
        for one in (computed, read):
            assert self.SCALE in Simulation(one, record=False).account.notes
        declared = experiment(**self.LOGISTIC, problem__scale=computed.problem.table()["scale"])
        assert declared.resolve().digest == computed.digest
        records = experiment(**self.LOGISTIC, privacy__adjacency="record", privacy__feature_bound=1.0)
        for one in (declared, records):
            assert self.SCALE not in Simulation(one, record=False).account.notes

    def test_features_that_all_agents_data_have_standardised_are_said(self) -> None:
        found = Experiment.load(overrides={"network.agents": 3, "problem.name": "classification"})
        assert any(
            "standardised by mean and deviation of all agents' data" in n
            for n in Simulation(found, record=False).account.notes
        )

    def test_a_run_that_the_divergence_watch_stopped_says_so(self) -> None:
        counterexample = Path(__file__).parents[2] / "experiments" / "counterexample.toml"
        said = "when the divergence watch stopped the run is outside ε: it looks at all agents' values"
        stopped = run(Experiment.load(counterexample))
        assert stopped.diverged
        assert stopped.rounds < stopped.experiment.run.rounds
        assert stopped.privacy.notes[-1] == said
        assert said not in run(experiment()).privacy.notes


def test_an_account_takes_memory_by_agents_and_not_by_agents_times_rounds() -> None:
    """A thousand rounds of a hundred thousand agents took gigabytes for a note on coverage."""
    large = {"run.rounds": 10_000, "network.agents": 5_000, "network.topology": "ring", "problem.name": "quadratic"}
    experiment, smoothness = Experiment.load(overrides=large).resolve(), np.ones(5_000)
    tracemalloc.start()
    Account.of(experiment, smoothness, 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000 * 5_000
