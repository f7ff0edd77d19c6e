"""The matrices P: what Assumption 3 asks of them, over random connected graphs; and the two ways to their spectra."""

from __future__ import annotations

from typing import Any, get_args

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dpp2 import BadInput
from dpp2.topology import Graph, Weights
from dpp2.weights import DENSE_UP_TO, check_step, check_weights, edge_weights, lanczos_spectrum, spectrum, weight_matrix
from tests.core.programs import graph, matrix

KINDS = ["metropolis", "laplacian", "laplacian-spectral", "plain"]


@st.composite
def connected_graphs(draw: st.DrawFn) -> Graph:
    """A random tree and any further edges."""
    agents = draw(st.integers(2, 14))
    edges = {(draw(st.integers(0, i - 1)), i) for i in range(1, agents)}
    pairs = st.tuples(st.integers(0, agents - 1), st.integers(0, agents - 1)).filter(lambda p: p[0] < p[1])
    edges |= set(draw(st.lists(pairs, max_size=20)))
    drawn: Any = nx.Graph(sorted(edges))
    return Graph.of(drawn.nodes, drawn.edges())


def test_every_kind_is_tested() -> None:
    assert set(get_args(Weights)) == {*KINDS, "normalised"}


@given(connected_graphs(), st.sampled_from(KINDS))
@settings(deadline=None)
def test_P_is_admissible_on_every_connected_graph(drawn: Graph, kind: Any) -> None:
    """Symmetric, off-diagonals −w_ij on edges only, rows that sum to 0, PSD, null space span(1)."""
    P = weight_matrix(drawn, kind)
    check_weights(P, spectrum(P))
    dense = P.toarray()
    np.testing.assert_array_equal(dense, dense.T)
    linked = {(i, j) for i, j in drawn.edges.tolist()}
    for i in range(drawn.agents):
        for j in range(i + 1, drawn.agents):
            assert (dense[i, j] < 0) == ((i, j) in linked)
    np.testing.assert_allclose(dense.sum(axis=1), 0, atol=1e-13 * drawn.agents)
    eigenvalues = np.linalg.eigvalsh(dense)
    assert abs(eigenvalues[0]) < 1e-13 * max(1, eigenvalues[-1])
    assert eigenvalues[1] > 1e-6
    assert P.has_sorted_indices


@given(connected_graphs())
@settings(deadline=None)
def test_metropolis_weights(drawn: Graph) -> None:
    """I − P is doubly stochastic with positive diagonal, so λ_max(P) < 2; a row needs the neighbours' degrees alone."""
    P = weight_matrix(drawn, "metropolis").toarray()
    W = np.eye(drawn.agents) - P
    assert (W > -1e-15).all()
    assert (np.diag(W) > 0).all()
    assert np.linalg.eigvalsh(P)[-1] < 2
    for i in range(drawn.agents):
        for j in drawn.neighbours(i):
            assert W[i, j] == pytest.approx(1 / (1 + max(drawn.degrees[i], drawn.degrees[j])), rel=1e-14)


@given(connected_graphs())
@settings(deadline=None)
def test_laplacian_kinds_are_the_graph_laplacian_scaled(drawn: Graph) -> None:
    reference: Any = nx.Graph([(i, j) for i, j in drawn.edges.tolist()])
    plain = nx.laplacian_matrix(reference, nodelist=range(drawn.agents)).toarray()
    largest = np.linalg.eigvalsh(plain)[-1]
    np.testing.assert_array_equal(weight_matrix(drawn, "plain").toarray(), plain)
    scaled = plain / (drawn.degrees.max() + 1)
    np.testing.assert_allclose(weight_matrix(drawn, "laplacian").toarray(), scaled, atol=1e-14)
    np.testing.assert_allclose(weight_matrix(drawn, "laplacian-spectral").toarray(), plain / largest, atol=1e-13)


@pytest.mark.parametrize("topology", ["ring", "complete", "torus"])
def test_normalised_on_regular_graphs(topology: str) -> None:
    drawn = graph(topology, 12)
    degree = drawn.degrees[0]
    plain = weight_matrix(drawn, "plain").toarray()
    np.testing.assert_allclose(weight_matrix(drawn, "normalised").toarray(), plain / degree, atol=1e-15)


@pytest.mark.parametrize("topology", ["path", "star", "grid"])
def test_normalised_is_refused_where_degrees_differ(topology: str) -> None:
    """Its null vector D^½1 is not 1 there."""
    with pytest.raises(BadInput, match=r"all have the same degree, but they have \d to \d+ neighbours"):
        edge_weights(graph(topology, 12), "normalised")


def broken(change: Any) -> Any:
    dense = matrix("ring", 6).toarray()
    change(dense)
    return csr_array(dense)


def _asymmetric(P: Any) -> None:
    P[0, 1] += 0.25


def _leaky(P: Any) -> None:
    P[2, 2] += 0.125


def _indefinite(P: Any) -> None:
    P *= -1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_asymmetric, r"symmetric matrix, but \|P − Pᵀ\| reaches 0\.25"),
        (_leaky, r"rows that sum to 0, but one sums to 0\.125"),
        (_indefinite, r"positive semidefinite, but its least eigenvalue is -1\.33"),
    ],
)
def test_check_says_which_property_fails_and_by_how_much(change: Any, message: str) -> None:
    P = broken(change)
    with pytest.raises(BadInput, match=message):
        check_weights(P, spectrum(P))


def test_check_refuses_a_graph_that_falls_apart() -> None:
    two_pairs = Graph(4, np.array([[0, 1], [2, 3]]))
    P = weight_matrix(two_pairs, "metropolis")
    with pytest.raises(BadInput, match="the graph falls apart"):
        check_weights(P, spectrum(P))


def test_lanczos_agrees_with_the_dense_solver() -> None:
    """Above 2,000 agents spectra come from Lanczos: λ_max to full accuracy, λ̲ to three digits."""
    P = matrix("erdos-renyi", 300, seed=1)
    ours, dense = lanczos_spectrum(P), spectrum(P)
    assert ours.largest == pytest.approx(dense.largest, rel=1e-10)
    assert ours.connectivity == pytest.approx(dense.connectivity, rel=2e-3)
    assert abs(ours.smallest) < 1e-14


@pytest.mark.slow
def test_lanczos_is_what_large_networks_use() -> None:
    """2,100 agents, against the dense solver that they are spared."""
    P = matrix("erdos-renyi", 2100, seed=1, probability=0.01)
    assert P.shape[0] > DENSE_UP_TO
    found = spectrum(P)
    assert found == lanczos_spectrum(P)  # and a refusal is the same every time
    dense = np.linalg.eigvalsh(P.toarray())
    assert found.largest == pytest.approx(dense[-1], rel=1e-10)
    assert found.connectivity == pytest.approx(dense[1], rel=2e-3)
    check_weights(P, found)
    check_step(1.0, 0.9999 / dense[-1], found)
    with pytest.raises(BadInput, match=r"algorithm\.beta"):
        check_step(1.0, 1.0001 / dense[-1], found)
