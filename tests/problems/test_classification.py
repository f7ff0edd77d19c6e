"""Bundled data: every split is a partition, labels are spread as promised, and the solution classifies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from dpp2.errors import BadInput
from dpp2.problems import ProblemSection
from dpp2.problems.classification import ClassificationSection, Table, deal_dirichlet

Build = Callable[..., ProblemSection]


def section(build: Build, agents: int, **table: Any) -> ClassificationSection:
    built = build(agents, name="classification", **table)
    assert isinstance(built, ClassificationSection)
    return built


def dealt(problem: ClassificationSection, agents: int) -> tuple[Table, list[np.ndarray]]:
    table = problem._table()
    return table, problem._deal(table, agents)


def solved(problem: ClassificationSection, agents: int) -> np.ndarray:
    objective = problem.objective(range(agents), agents)

    def total(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, grad = objective(np.tile(x, (agents, 1)))
        return float(value.sum()), grad.sum(axis=0)

    return np.asarray(minimize(total, np.zeros(objective.dimension), jac=True, method="L-BFGS-B").x)


@pytest.mark.parametrize("agents", [1, 7, 50, 400])
@pytest.mark.parametrize("split", ["iid", "label", "dirichlet"])
@pytest.mark.parametrize("data", ["breast-cancer", "digits"])
def test_a_split_is_a_partition_of_the_training_part(build: Build, data: str, split: str, agents: int) -> None:
    table, parts = dealt(section(build, agents, data=data, split=split), agents)
    assert len(parts) == agents
    assert min(len(part) for part in parts) >= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(table.train)))
    rows = np.concatenate([table.train, table.test])
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(table.features)))
    assert len(table.test) == round(0.2 * len(rows))


def classes_per_agent(problem: ClassificationSection, agents: int) -> np.ndarray:
    table, parts = dealt(problem, agents)
    classes = table.classes[table.train]
    return np.array([len(np.unique(classes[part])) for part in parts])


def test_label_split_gives_most_agents_one_class_or_two(build: Build) -> None:
    seen = classes_per_agent(section(build, 20, data="digits", split="label"), 20)
    assert (seen <= 2).mean() >= 0.9
    assert (classes_per_agent(section(build, 20, data="digits", split="iid"), 20) >= 8).all()


def test_dirichlet_grows_lopsided_as_the_concentration_falls(build: Build) -> None:
    seen = [
        classes_per_agent(section(build, 20, data="digits", split="dirichlet", concentration=c), 20).mean()
        for c in (0.001, 0.1, 100.0)
    ]
    assert seen[0] < seen[1] < seen[2] == 10


@pytest.mark.parametrize("concentration", [1e-3, 0.5, 1e6])
def test_dirichlet_leaves_nobody_empty_even_when_samples_are_scarce(concentration: float) -> None:
    classes = np.repeat([0, 1], [3, 5])
    parts = deal_dirichlet(classes, 8, concentration, np.random.default_rng(0))
    assert [len(part) for part in parts] == [1] * 8


@pytest.mark.parametrize("data", ["breast-cancer", "digits"])
def test_features_are_standardised_on_the_training_part(build: Build, data: str) -> None:
    table = section(build, 5, data=data)._table()
    train = table.features[table.train, :-1]
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-12)
    deviation = train.std(axis=0)
    np.testing.assert_allclose(deviation[deviation > 0], 1)
    np.testing.assert_array_equal(table.features[:, -1], 1)
    assert np.isfinite(table.features).all()


@pytest.mark.parametrize("split", ["iid", "label"])
def test_breast_cancer_is_solved(build: Build, split: str) -> None:
    problem = section(build, 10, split=split)
    x = solved(problem, 10)
    assert problem.report(x)["accuracy"] > 0.9
    assert problem.report(-x)["accuracy"] < 0.1


@pytest.mark.parametrize(("positive", "accuracy"), [(None, 0.85), (0, 0.98)])
def test_digits_are_solved(build: Build, positive: int | None, accuracy: float) -> None:
    problem = section(build, 10, data="digits", positive=positive)
    assert problem.positive == ("odd" if positive is None else positive)
    assert problem.report(solved(problem, 10))["accuracy"] > accuracy


def test_one_digit_against_the_rest(build: Build) -> None:
    table = section(build, 5, data="digits", positive=7)._table()
    np.testing.assert_array_equal(table.labels == 1, table.classes == 7)
    table = section(build, 5, data="digits")._table()
    np.testing.assert_array_equal(table.labels == 1, table.classes % 2 == 1)


def test_only_the_rows_of_the_owned_agents_are_kept(build: Build) -> None:
    objective = section(build, 50).objective([40], 50)
    assert [group.rows.shape for group in objective.groups] == [(1, 9, 31)]
    assert objective.groups[0].rows.base is None  # no view that keeps the whole table alive


def test_nothing_held_out_means_nothing_to_report(build: Build) -> None:
    assert section(build, 5, held_out=0.0).report(np.zeros(31)) == {}


@pytest.mark.parametrize(
    ("agents", "table", "message"),
    [
        (5, {"data": "iris"}, "problem.data = 'iris': expected breast-cancer or digits"),
        (5, {"split": "fair"}, "problem.split = 'fair': expected iid, label or dirichlet"),
        (5, {"held_out": 1.0}, "problem.held_out = 1.0: expected a number ≥ 0 and < 1"),
        (5, {"held_out": 0.9999}, "problem.held_out = 0.9999: expected a share that leaves samples to train on"),
        (5, {"positive": 3}, 'problem.positive = 3: expected nothing, unless problem.data = "digits"'),
        (5, {"data": "digits", "positive": 10}, 'problem.positive = 10: expected "odd" or one digit from 0 to 9'),
        (
            5,
            {"concentration": 1.0},
            'problem.concentration = 1.0: expected nothing, unless problem.split = "dirichlet"',
        ),
        (5, {"split": "dirichlet", "concentration": 0.0}, "problem.concentration = 0.0: expected a number ≥ 0.001"),
        (456, {}, "network.agents = 456: expected at most 455, the training samples of breast-cancer"),
        (5, {"dimension": 3}, "problem.dimension = "),
    ],
)
def test_refusals(build: Build, agents: int, table: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refusal:
        section(build, agents, **table).objective([0], agents)
    assert str(refusal.value).startswith(message)


def test_as_many_agents_as_samples(build: Build) -> None:
    assert len(section(build, 455).objective(range(455), 455).smoothness) == 455


def test_without_scikit_learn_one_sentence_says_what_to_install(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(BadInput, match=r"expected scikit-learn to be installed, with pip install 'dpp2\[data\]'"):
        section(build, 5).objective([0], 5)
