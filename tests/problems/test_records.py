"""`privacy.clip`: every record's gradient is clipped, the fast way and the plain way alike, and δ = 2C/m holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpp2 import BadInput, Experiment, run
from dpp2.algorithms import ALGORITHMS
from dpp2.arrays import Array
from dpp2.prepared import PreparedRun, account_of
from dpp2.privacy import Unsupported
from dpp2.privacy.account import Account
from dpp2.privacy.releases import AdjacentReleases, Releases
from dpp2.problems.base import OfRecords, row_norms
from dpp2.problems.classification import ClassificationSection
from dpp2.problems.least_squares import LeastSquares
from dpp2.problems.logistic import Logistic
from dpp2.problems.rows import logistic_rows, square_rows
from dpp2.problems.usercode import UserRecords

AGENTS, D, M, CLIP = 3, 4, 5, 0.7
COUNTS = [2, 5, 3]
LAMBDA, OMEGA = 0.3, 2.0
RNG = np.random.default_rng(0)
FEATURES = [3 * RNG.standard_normal((m, D)) for m in COUNTS]
LABELS = [RNG.choice([-1.0, 1.0], m) for m in COUNTS]
X = RNG.standard_normal((AGENTS, D))

OWN = """
import numpy as np

class Mine:
    dimension, smoothness = 4, 100.0
    def __init__(self, agent):
        rng = np.random.default_rng(agent)
        self.a, self.b = 3 * rng.standard_normal((agent + 2, 4)), rng.standard_normal(agent + 2)
    def residual(self, x):
        return self.a @ x - self.b
    def value(self, x):
        return np.mean(self.residual(x) ** 2) / 2 + 0.1 * np.sum(x**2)
    def gradient(self, x):
        return self.record_gradients(x).mean(axis=0) + self.public_gradient(x)
    def record_gradients(self, x):
        return self.residual(x)[:, None] * self.a
    def public_gradient(self, x):
        return 0.2 * x

def objective(agent, agents):
    return Mine(agent)
"""


def dmsp(**overrides: Any) -> Experiment:
    """An algorithm whose account needs no smoothness."""
    tables = {"algorithm.name": "dmsp", "network.topology": "ring", "network.agents": AGENTS, "run.rounds": 3}
    records = {"privacy.adjacency": "record", "privacy.clip": CLIP}
    return Experiment.load(overrides=tables | records | {key.replace("__", "."): v for key, v in overrides.items()})


def own_code(folder: Path, source: str = OWN) -> dict[str, str]:
    (folder / "own.py").write_text(source)
    return {"problem__name": "file", "problem__path": str(folder / "own.py")}


def own_folder(folder: Path) -> dict[str, str]:
    for agent, (features, labels) in enumerate(zip(FEATURES, LABELS, strict=True)):
        np.savez(folder / f"agent-{agent}.npz", features=features, labels=labels)
    return {"problem__name": "file", "problem__path": str(folder)}


def objective_of(kind: str, folder: Path) -> OfRecords:
    features = np.stack([3 * RNG.standard_normal((M, D)) for _ in range(AGENTS)])
    made: dict[str, Any] = {
        "logistic": lambda: Logistic(features, LAMBDA, OMEGA),
        "least-squares": lambda: LeastSquares(features, RNG.standard_normal((AGENTS, M))),
        "logistic rows": lambda: logistic_rows(FEATURES, LABELS, LAMBDA, OMEGA),
        "square rows": lambda: square_rows(FEATURES, LABELS, LAMBDA, OMEGA),
        "user code": lambda: (
            Experiment.load(
                overrides={k.replace("__", "."): v for k, v in own_code(folder).items()} | {"network.agents": AGENTS}
            )
            .resolve()
            .objective()
        ),
    }
    found = made[kind]()
    assert isinstance(found, OfRecords)
    return found


def public_part(objective: Any, x: Array) -> Array:
    """The regulariser's gradient, written out anew."""
    if isinstance(objective, UserRecords):
        return 0.2 * x
    if isinstance(objective, LeastSquares):
        return np.zeros_like(x)
    return np.asarray(2 * LAMBDA * OMEGA * x / (1 + OMEGA * x**2) ** 2)


KINDS = ("logistic", "least-squares", "logistic rows", "square rows", "user code")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bound", [0.05, CLIP, 1e6])
def test_fast_clipping_equals_clipping_every_record(kind: str, bound: float, tmp_path: Path) -> None:
    objective: Any = objective_of(kind, tmp_path)
    values, plain = objective(X)
    public = public_part(objective, X)
    wanted = np.empty_like(X)
    for agent, (own, m) in enumerate(zip(objective.sample_gradients(X), objective.sample_counts(), strict=True)):
        records = own[:m] - public[agent]
        norms = np.linalg.norm(records, axis=1, keepdims=True)
        assert (norms > 0.05).any()  # or there would be nothing to clip
        wanted[agent] = np.where(norms > bound, records * bound / norms, records).mean(axis=0) + public[agent]
    clipped = objective.clipped(bound)
    found = clipped(X)
    np.testing.assert_allclose(found[1], wanted, rtol=1e-7)
    np.testing.assert_array_equal(found[0], values)  # what is measured stays what it is
    counts = objective.sample_counts()
    assert (clipped.sample_counts() == counts).all()
    np.testing.assert_allclose(clipped.sample_gradients(X).sum(axis=1) / counts[:, None], wanted, rtol=1e-7)
    if bound == 1e6:
        np.testing.assert_allclose(found[1], plain, rtol=1e-12)


SIZES = st.floats(-1e6, 1e6)
LOSSES = {"logistic": logistic_rows, "squares": square_rows}


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=60, deadline=None)
@given(
    features=arrays(np.float64, (6, 3), elements=SIZES),
    sides=arrays(np.bool_, 6),
    x=arrays(np.float64, 3, elements=SIZES),
    bound=st.floats(1e-3, 1e3),
)
def test_exchanging_a_record_moves_the_gradient_by_at_most_2C_over_m(
    loss: str, features: Array, sides: Array, x: Array, bound: float
) -> None:
    """Rows 0 … 4 against rows 1 … 5: one record of five is exchanged for another."""
    labels = np.where(sides, 1.0, -1.0)
    before, after = (
        LOSSES[loss]([features[part]], [labels[part]], LAMBDA, OMEGA).clipped(bound)(x[None])[1][0]
        for part in (slice(0, 5), [5, 1, 2, 3, 4])
    )
    assert np.linalg.norm(before - after) <= 2 * bound / 5 + 1e-13 * np.linalg.norm(before)


def test_two_opposite_records_come_as_far_as_2C_over_m() -> None:
    far = np.array([[1e3, 0.0], [0.1, 0.0]])
    ends = [
        square_rows([far * side], [np.zeros(2)], 0.0, 1.0).clipped(CLIP)(np.array([[side, 0.0]]))[1] for side in (1, -1)
    ]
    one = logistic_rows([np.array([[1e3, 0.0], [0.1, 0.0]])], [np.ones(2)], 0.0, 1.0).clipped(CLIP)
    other = logistic_rows([np.array([[-1e3, 1e-3], [0.1, 0.0]])], [np.ones(2)], 0.0, 1.0).clipped(CLIP)
    assert np.linalg.norm(ends[0]) == pytest.approx((CLIP + 0.01) / 2)
    assert np.linalg.norm(one(np.zeros((1, 2)))[1] - other(np.zeros((1, 2)))[1]) == pytest.approx(CLIP, rel=1e-6)


def deltas(mechanisms: tuple[Releases, ...]) -> list[float]:
    assert all(isinstance(one, AdjacentReleases) for one in mechanisms)
    return [one.adjacency for one in mechanisms if isinstance(one, AdjacentReleases)]


class TestAccount:
    @pytest.mark.parametrize("own", [own_folder, own_code])
    def test_every_agent_has_the_delta_of_its_own_number_of_records(self, own: Any, tmp_path: Path) -> None:
        experiment = dmsp(**own(tmp_path))
        account = PreparedRun.of(experiment).account()
        counts = COUNTS if own is own_folder else [2, 3, 4]
        assert deltas(account.mechanisms) == [2 * CLIP / m for m in counts]
        spent = run(experiment).privacy.epsilon
        assert spent == account.epsilon(3)
        assert not isinstance(spent, Unsupported)

    def test_a_node_needs_its_own_records_only(self, tmp_path: Path) -> None:
        experiment = dmsp(**own_folder(tmp_path))
        for agent in (0, 1):
            (tmp_path / f"agent-{agent}.npz").unlink()
        hosted = PreparedRun.of(experiment).hosted([2])
        assert deltas(account_of([hosted]).mechanisms) == [2 * CLIP / COUNTS[2]]

    def test_without_the_data_nobody_knows_delta(self, tmp_path: Path) -> None:
        experiment = dmsp(**own_folder(tmp_path), privacy__smoothness=9.0).resolve()
        account = Account.of(experiment, np.full(AGENTS, 9.0), D)
        assert "number of an agent's records" in str(account.epsilon(1))

    def test_no_smoothness_is_asked_for_nor_spoken_of(self, tmp_path: Path) -> None:
        source = OWN.replace("dimension, smoothness = 4, 100.0", "dimension = 4")
        account = PreparedRun.of(dmsp(**own_code(tmp_path, source))).account()
        assert account.unsupported_reason is None
        assert not any("M_i" in note for note in account.notes)

    def test_logistic_features_are_scaled_by_public_numbers(self) -> None:
        resolved = dmsp(problem__samples=7).resolve()
        assert resolved.problem.table().get("scale_from_data") is None
        assert deltas(PreparedRun.of(resolved).account().mechanisms) == [2 * CLIP / 7] * AGENTS


class TestClassification:
    def section(self, **table: Any) -> ClassificationSection:
        problem = dmsp(problem__name="classification", **table).resolve().problem
        assert isinstance(problem, ClassificationSection)
        return problem

    def test_features_are_standardised_by_the_public_part(self) -> None:
        problem = self.section()
        table = problem._table()
        public = table.features[table.test, :-1]
        np.testing.assert_allclose(public.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(public.std(axis=0), 1)
        assert "held-out records are public" in str(problem.looked_at())

    def test_one_record_changes_no_other_agents_objective(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from dpp2.problems import classification

        problem, load = self.section(), classification._load
        record = int(problem._table().train[0])  # agent 0's

        def exchanged(data: str) -> Any:
            features, classes = load(data)
            changed = features.copy()
            changed[record] *= -50
            return changed, classes

        x = np.random.default_rng(1).standard_normal((AGENTS, 31))
        before: Any = problem.objective(range(AGENTS), AGENTS)
        monkeypatch.setattr(classification, "_load", exchanged)
        after: Any = problem.objective(range(AGENTS), AGENTS)
        moved = np.linalg.norm(before.clipped(CLIP)(x)[1] - after.clipped(CLIP)(x)[1], axis=1)
        assert 0 < moved[0] <= 2 * CLIP / before.sample_counts()[0]
        assert moved[1:].tolist() == [0, 0]
        assert np.linalg.norm(before(x)[1][0] - after(x)[1][0]) > moved[0]  # clipping was needed

    def test_the_accuracy_without_privacy_is_reported_beside_the_runs(self) -> None:
        found = run(dmsp(problem__name="classification", run__rounds=1, run__start="zero", noise__u_x=0.0)).report
        assert found["accuracy_without_privacy"] > 0.95
        assert found["accuracy"] <= found["accuracy_without_privacy"] + 0.02

    def test_records_to_protect_do_not_standardise(self) -> None:
        with pytest.raises(BadInput, match=r"problem\.standardise = 'training': expected held-out"):
            self.section(problem__standardise="training")
        with pytest.raises(BadInput, match=r"problem\.held_out = 0\.0: expected a share above 0"):
            self.section(problem__held_out=0.0).objective([0], AGENTS)


class TestRefusals:
    @pytest.mark.parametrize("name", [one for one in ALGORITHMS.names if ALGORITHMS[one].needs_smoothness])
    def test_an_algorithm_whose_account_needs_m_takes_no_clipping(self, name: str) -> None:
        with pytest.raises(BadInput, match=rf"privacy\.clip = 0\.7: expected nothing: the account of {name} needs"):
            dmsp(algorithm__name=name, network__topology="star").resolve()

    @pytest.mark.parametrize("name", ["quadratic", "sine"])
    def test_a_problem_without_records(self, name: str) -> None:
        with pytest.raises(BadInput, match=r"privacy\.clip = 0\.7: expected a problem whose objectives are means"):
            run(dmsp(problem__name=name))

    def test_code_that_offers_no_records(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"privacy\.clip = 0\.7: expected a problem whose objectives are means"):
            run(
                dmsp(
                    **own_code(
                        tmp_path,
                        OWN.replace("def record_gradients", "def other").replace(
                            "self.record_gradients(x)", "self.other(x)"
                        ),
                    )
                )
            )

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"privacy__adjacency": 0.1}, r'privacy\.clip = 0\.7: expected adjacency = "record" beside it'),
            ({"privacy__feature_bound": 1.0}, r"privacy\.clip = 0\.7: expected nothing beside privacy\.feature_bound"),
            ({"privacy__clip": -1.0}, r"privacy\.clip = -1\.0: expected a number > 0"),
        ],
    )
    def test_bounds_that_do_not_belong_together(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(BadInput, match=message):
            dmsp(**change).resolve()

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("return 0.2 * x", "return 0.3 * x", "the mean of the record gradients plus the public gradient"),
            ("return 0.2 * x", "return 0.2", "4 numbers as the public_gradient of agent 0, not shape"),
            ("self.residual(x)[:, None] * self.a", "self.a[0]", "m × 4 numbers, m ≥ 1, as the record gradients"),
            ("self.residual(x)[:, None] * self.a", "self.a[:0]", "m × 4 numbers, m ≥ 1, as the record gradients"),
            (
                "self.residual(x)[:, None] * self.a",
                "(self.residual(x)[:, None] * self.a)[: 1 if x.any() else None]",
                "2 record gradients of agent 0 at every x, not 1 at one of them",
            ),
        ],
    )
    def test_records_of_user_code_are_checked(self, old: str, new: str, message: str, tmp_path: Path) -> None:
        source = OWN.replace(
            "        return self.record_gradients(x).mean(axis=0) + self.public_gradient(x)",
            ("        return (self.residual(x)[:, None] * self.a).mean(axis=0) + 0.2 * np.asarray(x)"),
        )
        head, tail = source.split("    def record_gradients")
        with pytest.raises(BadInput, match=message):
            run(dmsp(**own_code(tmp_path, f"{head}    def record_gradients{tail.replace(old, new)}")))


def test_a_record_of_tiny_features_is_clipped_too() -> None:
    """The squares of 1e-170 are lost, and with them a norm that is the root of their sum."""
    assert row_norms(np.full((1, 2, 4), 1e-170)) == pytest.approx(np.full((1, 2), 2e-170))
    assert row_norms(np.full((1, 2, 4), 1e200)) == pytest.approx(np.full((1, 2), 2e200))
    assert row_norms(np.full((1, 1, 4), 1e308)).tolist() == [[np.inf]]
    assert row_norms(np.zeros((1, 1, 3))).tolist() == [[0.0]]
