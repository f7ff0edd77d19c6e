"""Chebyshev mixing: how fast agents agree, and that the mean stays."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2.algorithms.chebyshev import Chebyshev
from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.topology import Graph
from dpp2.weights import spectrum, weight_matrix


def mixing(graph: nx.Graph[Any]) -> tuple[Chebyshev, Any]:
    P = weight_matrix(Graph.drawn(graph), "metropolis")
    return Chebyshev.of(spectrum(P)), P


def mixed(cheb: Chebyshev, P: Any, x: Array, steps: int) -> Array:
    before, x = x, cheb.first(x, P @ x)
    for weight in cheb.weights(steps):
        before, x = x, cheb.next(weight, x, P @ x, before)
    return x


def test_twenty_mixings_on_the_papers_graph_contract_by_4e_4() -> None:
    """Spec 7: 3.7e-4, where plain W reaches 0.35."""
    cheb, P = mixing(nx.random_geometric_graph(50, 0.3, seed=69))
    apart = np.eye(50) - 1 / 50
    left = np.linalg.norm(mixed(cheb, P, apart, 20), 2)
    assert left == pytest.approx(3.66e-4, rel=0.01)
    assert left == pytest.approx(cheb.contraction(20), rel=1e-6)
    plain = np.linalg.norm(np.linalg.matrix_power(np.eye(50) - P.toarray(), 20) - 1 / 50, 2)
    assert plain == pytest.approx(0.351, abs=1e-3)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 30), st.integers(1, 40), st.integers(0, 10**6))
def test_the_mean_stays_and_disagreement_keeps_its_bound(agents: int, steps: int, seed: int) -> None:
    graph = nx.compose(nx.random_labeled_tree(agents, seed=seed), nx.gnp_random_graph(agents, 0.2, seed=seed))
    cheb, P = mixing(graph)
    x = np.random.default_rng(seed).normal(5.0, 100.0, (agents, 3))
    after = mixed(cheb, P, x, steps)
    np.testing.assert_allclose(after.mean(axis=0), x.mean(axis=0), rtol=0, atol=1e-11)
    apart, left = (np.linalg.norm(rows - rows.mean(axis=0)) for rows in (x, after))
    assert left <= apart * cheb.contraction(steps) + 1e-10


def test_steps_are_the_polynomial_of_chebyshev() -> None:
    """On an eigenvector of eigenvalue λ, t steps multiply by T_t((1 − λ/c)/r)/T_t(1/r)."""
    cheb = Chebyshev(0.2, 1.8)
    for eigenvalue in (0.2, 0.5, 1.0, 1.3, 1.8):
        for steps in (1, 2, 3, 7):
            top, bottom = (
                np.polynomial.chebyshev.Chebyshev.basis(steps)(at / cheb.radius)
                for at in (1 - eigenvalue / cheb.centre, 1.0)
            )
            got = mixed(cheb, np.array([[eigenvalue]]), np.ones((1, 1)), steps)
            assert got[0, 0] == pytest.approx(top / bottom, rel=1e-12, abs=1e-14)


def test_a_complete_graph_agrees_at_once() -> None:
    cheb, P = mixing(nx.complete_graph(7))
    x = np.random.default_rng(0).standard_normal((7, 2))
    np.testing.assert_allclose(mixed(cheb, P, x, 1), np.tile(x.mean(axis=0), (7, 1)), atol=1e-14)
    assert cheb.steps_to(1e-4) == 1


@given(st.floats(1e-6, 1.0), st.floats(1e-12, 0.9))
def test_steps_to_is_the_fewest(smallest: float, target: float) -> None:
    cheb = Chebyshev(smallest, 1.5)
    steps = cheb.steps_to(target)
    assert cheb.contraction(steps) <= target
    assert steps == 1 or cheb.contraction(steps - 1) > target


def test_the_papers_graph_needs_22_mixings_for_2e_4() -> None:
    cheb, _ = mixing(nx.random_geometric_graph(50, 0.3, seed=69))
    assert cheb.steps_to(2e-4) == 22


@pytest.mark.parametrize("ends", [(0.0, 1.0), (1.0, 0.5), (math.nan, 1.0), (0.1, math.inf)])
def test_refuses_eigenvalues_of_a_graph_that_falls_apart(ends: tuple[float, float]) -> None:
    with pytest.raises(BadInput, match="λ_2"):
        Chebyshev(*ends)
