"""Single samples: they add up to the objective, whatever its kind, and nobody's padding counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core.programs import assert_close, normal, problem

from dpp2 import BadInput, Experiment, run
from dpp2.arrays import Array
from dpp2.problems.base import Objective, Sampled
from dpp2.problems.rows import RowLoss, logistic_rows, square_rows

AGENTS, D = 4, 3
OWN_COUNTS = [2, 5, 1, 5]


def rows_of_different_numbers(loss: str) -> RowLoss:
    rng = np.random.default_rng(0)
    features = [rng.standard_normal((m, D)) for m in OWN_COUNTS]
    labels = [rng.choice([-1.0, 1.0], m) for m in OWN_COUNTS]
    return (logistic_rows if loss == "logistic" else square_rows)(features, labels, 0.1, 2.0)


def objectives() -> dict[str, Objective]:
    tables: dict[str, Any] = {
        "logistic": {"samples": 6, "lambda": 0.1},
        "least-squares": {"samples": 4},
        "quadratic": {},
        "sine": {},
    }
    drawn = {
        name: problem(name, AGENTS, dimension=D, **table).objective(range(AGENTS), AGENTS)
        for name, table in tables.items()
    }
    return drawn | {f"{loss} rows": rows_of_different_numbers(loss) for loss in ("logistic", "square")}


@pytest.mark.parametrize("kind", objectives())
def test_the_mean_over_an_agents_samples_is_its_gradient(kind: str) -> None:
    objective, x = objectives()[kind], normal(AGENTS, D)
    assert isinstance(objective, Sampled)
    counts, gradients = objective.sample_counts(), objective.sample_gradients(x)
    assert gradients.shape == (AGENTS, counts.max(), D)
    assert_close(gradients.sum(axis=1) / counts[:, None], objective(x)[1], 1e-12)
    for own, m in zip(gradients, counts, strict=True):
        assert not own[m:].any()


def test_counts_are_those_of_the_data() -> None:
    found = {
        kind: objective.sample_counts().tolist()
        for kind, objective in objectives().items()
        if isinstance(objective, Sampled)
    }
    assert found == {
        "logistic": [6] * AGENTS,
        "least-squares": [4] * AGENTS,
        "quadratic": [1] * AGENTS,
        "sine": [1] * AGENTS,
        "logistic rows": OWN_COUNTS,
        "square rows": OWN_COUNTS,
    }


def test_one_sample_is_the_loss_of_one_row() -> None:
    """By hand, with its whole regulariser: −label·a/(1 + e^{label·aᵀx}) + 2λω x/(1 + ωx²)²."""
    rng = np.random.default_rng(0)
    features = [rng.standard_normal((m, D)) for m in OWN_COUNTS]
    labels = [rng.choice([-1.0, 1.0], m) for m in OWN_COUNTS]
    x = normal(AGENTS, D)
    gradients = rows_of_different_numbers("logistic").sample_gradients(x)

    def by_hand(i: int, s: int) -> Array:
        a = labels[i][s] * features[i][s]
        return np.asarray(-a / (1 + np.exp(a @ x[i])) + 2 * 0.1 * 2.0 * x[i] / (1 + 2.0 * x[i] ** 2) ** 2)

    for i, m in enumerate(OWN_COUNTS):
        assert_close(gradients[i, :m], np.array([by_hand(i, s) for s in range(m)]), 1e-12)


def test_an_objective_that_offers_no_samples_is_refused_by_a_method_that_draws_them(tmp_path: Path) -> None:
    """A Python file's objective is one function: nobody can say what a sample of it would be."""
    own = """
class Own:
    dimension = 2
    def value(self, x): return float(x @ x)
    def gradient(self, x): return 2 * x
def objective(agent, agents): return Own()
"""
    (tmp_path / "own.py").write_text(own)
    tables = {"problem.name": "file", "problem.path": str(tmp_path / "own.py"), "run.rounds": 2}
    small = tables | {"network.topology": "ring", "network.agents": 4}
    assert run(Experiment.load(overrides=small | {"algorithm.name": "dgd"})).rounds == 2
    with pytest.raises(BadInput, match=r"algorithm.name = 'privsgp-vr'.*offer no single samples"):
        run(Experiment.load(overrides=small | {"algorithm.name": "privsgp-vr"}))
