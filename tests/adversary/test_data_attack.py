"""What of the agents' data comes back, against data that are drawn again from the experiment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpp2.adversary.attacks.samples import Pairs, fitted_samples, hessian
from dpp2.problems.logistic import Logistic
from tests.adversary.attacked import BY_NAME, attacked, paper_run, small

QUADRATIC = {"network.topology": "ring", "network.agents": 6, "run.rounds": 150, "problem.dimension": 4}


def test_quadratics_come_back_with_their_centres() -> None:
    """f = ½c‖x − b‖²: the Hessian is cI and the gradient at 0 is −cb."""
    estimate, score = attacked(QUADRATIC | {"problem.name": "quadratic"}).tried("data")
    assert score.data["hessian"] < 1e-3
    assert score.data["gradient_at_zero"] < 1e-3
    assert estimate.x is None


def test_least_squares_come_back_with_their_gram_matrices() -> None:
    _, score = attacked(QUADRATIC | {"problem.name": "least-squares", "run.rounds": 300}).tried("data")
    assert score.data["hessian"] < 1e-3


def test_nothing_comes_back_while_the_noise_stays() -> None:
    """The negative control."""
    noise = {"noise.decay": 1.0, "noise.u_w": 20.0, "noise.u_e": 20.0}
    _, score = attacked(QUADRATIC | {"problem.name": "quadratic"} | noise).tried("data")
    assert score.data["gradient_at_zero"] > 0.5


def test_few_samples_come_back_themselves() -> None:
    """label · features of each of two samples per agent, in no order."""
    run = small(problem__samples=2, problem__dimension=3, network__topology="complete", run__rounds=150)
    estimate, score = run.tried("data")
    assert estimate.data["samples"].shape == (6, 2, 3)
    assert score.data["samples"] < 1e-5


def test_what_a_problem_declares_decides_and_not_its_name() -> None:
    view = small(problem__samples=2, problem__dimension=3, network__topology="complete", run__rounds=150).everything
    renamed = replace(view.knowledge, problem={**view.knowledge.problem, "name": "another"})
    assert "samples" in BY_NAME["data"].run(replace(view, knowledge=renamed)).data
    undeclared = replace(view.knowledge, logistic_products=False)
    assert {"samples", "mean"}.isdisjoint(BY_NAME["data"].run(replace(view, knowledge=undeclared)).data)


def test_errors_are_measured_against_the_records_that_were_used() -> None:
    """Under record adjacency features are scaled down to a bound first; what comes back are the scaled ones."""
    run = small(
        problem__samples=2,
        problem__dimension=3,
        network__topology="complete",
        run__rounds=150,
        privacy__adjacency="record",
        privacy__feature_bound=0.5,
    )
    _, score = run.tried("data")
    assert score.data["samples"] < 1e-4
    assert score.data["gradient_at_zero"] < 1e-4
    assert score.data["hessian"] < 1e-4


def test_pairs_without_error_determine_the_samples_and_the_hessian() -> None:
    rng = np.random.default_rng(0)
    products = rng.standard_normal((1, 3, 4))
    problem = {"samples": 3, "dimension": 4, "lambda": 0.01, "omega": 2.0}
    objective, x = Logistic(products, 0.01, 2.0), 2 * rng.standard_normal((80, 4))
    pairs = Pairs.of(x, np.concatenate([objective(point[None])[1] for point in x]), np.zeros(80))
    found = fitted_samples(pairs, problem)
    distance = np.linalg.norm(found[:, None] - products[0], axis=2)
    assert distance.min(axis=0).max() < 1e-6
    h = 1e-5
    steps = [(objective(x[:1] + s)[1] - objective(x[:1] - s)[1])[0] / (2 * h) for s in h * np.eye(4)]
    np.testing.assert_allclose(hessian(products[0], x[0], problem), np.stack(steps, axis=1), atol=1e-8)


def test_it_says_what_it_lacks() -> None:
    view = small(run__rounds=9).everything
    assert str(BY_NAME["data"].needs(view)).startswith("needs d ≤ 200 and 2(d + 1) rounds")
    hidden = type(view)("global", view.observation, view.knowledge.hidden(), view.agents)
    assert BY_NAME["data"].needs(hidden) == "needs α and β, which this attacker does not know"


@pytest.mark.slow
def test_on_the_papers_run_hessians_and_the_mean_of_the_data_come_back() -> None:
    estimate, score = paper_run().tried("data")
    assert score.data["hessian"] < 2e-3
    assert score.data["gradient_at_zero"] < 5e-3
    np.testing.assert_allclose(estimate.data["mean"], -2 * estimate.data["gradient_at_zero"])
