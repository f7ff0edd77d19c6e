"""What holds for every problem: the gradient is one, M_i bounds it tightly, agents do not depend on their company."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2.problems import PROBLEMS, Objective, ProblemSection
from dpp2.schema import parse_kind

AGENTS = 6
TABLES: dict[str, dict[str, Any]] = {
    "logistic": {"name": "logistic", "samples": 30, "lambda": 0.05},
    "quadratic": {"name": "quadratic", "curvature": [1.0, 2.0, 0.5, 3.0, 1.5, 4.0]},
    "least-squares": {"name": "least-squares"},
    "least-squares-deficient": {"name": "least-squares", "rank": 3, "samples": 7, "dimension": 8},
    "sine": {"name": "sine", "dimension": 4, "tilt": 2.0},
    "breast-cancer-iid": {"name": "classification", "lambda": 0.1},
    "breast-cancer-label": {"name": "classification", "split": "label"},
    "digits-dirichlet": {"name": "classification", "data": "digits", "split": "dirichlet", "omega": 3.0},
    "folder-logistic": {"name": "file", "path": "data", "lambda": 0.1, "omega": 2.0},
    "folder-squares": {"name": "file", "path": "data", "loss": "least-squares"},
    "python": {"name": "file", "path": "own.py"},
}
OWN = """
import numpy as np

class Bowl:
    dimension = 3

    def __init__(self, agent):
        self.curvature, self.smoothness = agent, agent + 1.0

    def value(self, x):
        return 0.5 * self.curvature * (x @ x) - np.cos(x).sum()

    def gradient(self, x):
        return self.curvature * x + np.sin(x)

def objective(agent, agents):
    assert 0 <= agent < agents
    return Bowl(agent)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python file, and a folder where agents hold different numbers of samples in different formats."""
    root = tmp_path_factory.mktemp("user")
    (root / "own.py").write_text(OWN)
    (root / "data").mkdir()
    rng = np.random.default_rng(5)
    for agent, samples in enumerate((3, 8, 3, 1, 8, 20)):
        features, labels = rng.standard_normal((samples, 4)), rng.choice([-1.0, 1.0], samples)
        if agent % 2:
            np.savez(root / "data" / f"agent-{agent}.npz", features=features, labels=labels)
        else:
            np.savetxt(root / "data" / f"agent-{agent}.csv", np.column_stack([features, labels]), delimiter=",")
    return root


@pytest.fixture(scope="module", params=TABLES)
def problem(request: pytest.FixtureRequest, files: Path) -> ProblemSection:
    table = dict(TABLES[request.param])
    if "path" in table:
        table["path"] = str(files / table["path"])
    return parse_kind("problem", "name", PROBLEMS, table).updated(seed=3).resolve(AGENTS)


@pytest.fixture(scope="module")
def objective(problem: ProblemSection) -> Objective:
    return problem.objective(range(AGENTS), AGENTS)


def points(objective: Objective, seed: int, size: float = 1.0) -> np.ndarray:
    return size * np.random.default_rng(seed).standard_normal((AGENTS, objective.dimension))


def test_shapes(objective: Objective) -> None:
    value, grad = objective(points(objective, 0))
    assert value.shape == (AGENTS,)
    assert grad.shape == (AGENTS, objective.dimension)
    assert objective.smoothness.shape == (AGENTS,)
    assert value.dtype == grad.dtype == objective.smoothness.dtype == np.float64


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([0.1, 1.0, 10.0]))
def test_gradient_is_that_of_the_value(objective: Objective, seed: int, size: float) -> None:
    x, u = points(objective, seed, size), points(objective, seed + 1)
    h = 1e-5 / np.linalg.norm(u)
    numeric = (objective(x + h * u)[0] - objective(x - h * u)[0]) / (2 * h)
    value, grad = objective(x)
    claimed = np.einsum("nd,nd->n", grad, u)
    scale = np.linalg.norm(grad, axis=1) * np.linalg.norm(u, axis=1) + 1e-4 * np.abs(value) + 1e-3
    assert (np.abs(numeric - claimed) <= 1e-4 * scale).all()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), apart=st.sampled_from([1e-3, 1.0, 10.0]))
def test_smoothness_bounds_gradient_differences(objective: Objective, seed: int, apart: float) -> None:
    x = points(objective, seed)
    other = x + points(objective, seed + 1, apart)
    change = np.linalg.norm(objective(x)[1] - objective(other)[1], axis=1)
    assert (change <= (1 + 1e-9) * objective.smoothness * np.linalg.norm(x - other, axis=1)).all()


def test_smoothness_is_reached(objective: Objective) -> None:
    """All these bend most at the origin, where power iteration on differences of gradients finds M_i itself."""
    u = points(objective, 7)
    h = 1e-4
    for _ in range(300):
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        u = (objective(h * u)[1] - objective(-h * u)[1]) / (2 * h)
    reached = np.linalg.norm(u, axis=1)
    assert (reached <= objective.smoothness * (1 + 1e-6)).all()
    assert (reached >= objective.smoothness * 0.98).all()


@pytest.mark.parametrize("owned", [[0], [3], [5, 2], [1, 3, 4]])
def test_an_agent_does_not_depend_on_its_company(
    problem: ProblemSection, objective: Objective, owned: list[int]
) -> None:
    """To the bit: an agent alone in a container holds the f_i of the embedded run."""
    x = points(objective, 11)
    some = problem.objective(owned, AGENTS)
    for part, whole in zip(some(x[owned]), objective(x), strict=True):
        np.testing.assert_array_equal(part, whole[owned])
    np.testing.assert_array_equal(some.smoothness, objective.smoothness[owned])


def test_evaluation_leaves_its_argument_alone(objective: Objective) -> None:
    x = points(objective, 2)
    x.flags.writeable = False
    first = objective(x)
    for once, again in zip(first, objective(x), strict=True):
        np.testing.assert_array_equal(once, again)


def test_resolving_twice_changes_nothing_and_survives_a_file(problem: ProblemSection) -> None:
    assert problem.resolve(AGENTS) == problem
    assert parse_kind("problem", "name", PROBLEMS, problem.table()).resolve(AGENTS) == problem


@pytest.mark.parametrize("name", ["least-squares", "sine", "classification"])
def test_the_seed_decides(name: str, build: Callable[..., ProblemSection]) -> None:
    first, again, other = (build(4, seed, name=name).objective(range(4), 4) for seed in (1, 1, 2))
    x = np.random.default_rng(0).standard_normal((4, first.dimension))
    np.testing.assert_array_equal(first(x)[1], again(x)[1])
    assert not np.allclose(first(x)[1], other(x)[1])
