"""Single samples: they add up to the objective, whatever its kind, and nobody's padding counts."""

from __future__ import annotations

import numpy as np
import pytest
from core.programs import assert_close, normal, problem

from dpp2.algorithms.samples import sample_counts, sample_gradients
from dpp2.arrays import Array
from dpp2.problems.base import Objective
from dpp2.problems.rows import logistic_rows, square_rows

AGENTS, D = 4, 3
OWN_COUNTS = [2, 5, 1, 5]


def rows_of_different_numbers(loss: str) -> Objective:
    rng = np.random.default_rng(0)
    features = [rng.standard_normal((m, D)) for m in OWN_COUNTS]
    labels = [rng.choice([-1.0, 1.0], m) for m in OWN_COUNTS]
    return (logistic_rows if loss == "logistic" else square_rows)(features, labels, 0.1, 2.0)


def objectives() -> dict[str, Objective]:
    tables = {"logistic": {"samples": 6, "lambda": 0.1}, "least-squares": {"samples": 4}, "quadratic": {}, "sine": {}}
    drawn = {
        name: problem(name, AGENTS, dimension=D, **table).objective(range(AGENTS), AGENTS)
        for name, table in tables.items()
    }
    return drawn | {f"{loss} rows": rows_of_different_numbers(loss) for loss in ("logistic", "square")}


@pytest.mark.parametrize("kind", objectives())
def test_the_mean_over_an_agents_samples_is_its_gradient(kind: str) -> None:
    objective, x = objectives()[kind], normal(AGENTS, D)
    counts, gradients = sample_counts(objective), sample_gradients(objective, x)
    assert gradients.shape == (AGENTS, counts.max(), D)
    assert_close(gradients.sum(axis=1) / counts[:, None], objective(x)[1], 1e-12)
    for own, m in zip(gradients, counts, strict=True):
        assert not own[m:].any()


def test_counts_are_those_of_the_data() -> None:
    found = {kind: sample_counts(objective).tolist() for kind, objective in objectives().items()}
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
    gradients = sample_gradients(rows_of_different_numbers("logistic"), x)

    def by_hand(i: int, s: int) -> Array:
        a = labels[i][s] * features[i][s]
        return np.asarray(-a / (1 + np.exp(a @ x[i])) + 2 * 0.1 * 2.0 * x[i] / (1 + 2.0 * x[i] ** 2) ** 2)

    for i, m in enumerate(OWN_COUNTS):
        assert_close(gradients[i, :m], np.array([by_hand(i, s) for s in range(m)]), 1e-12)
