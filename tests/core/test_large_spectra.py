"""Spectra of large networks: closed forms, a bounded amount of Lanczos, and bounds that admit nothing inadmissible."""

from __future__ import annotations

import time
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2 import BadInput, Experiment, weights
from dpp2.closed_spectra import closed_form
from dpp2.prepared import PreparedRun
from dpp2.topology import Graph
from dpp2.weights import DENSE_UP_TO, Spectrum, check_step, lanczos_spectrum, network_spectrum, spectrum, weight_matrix
from tests.core.programs import graph, matrix
from tests.core.test_weights import connected_graphs


def dense(drawn: Graph) -> Any:
    return np.linalg.eigvalsh(weight_matrix(drawn, "plain").toarray())


@pytest.mark.parametrize("topology", ["ring", "path", "star", "complete", "grid", "torus"])
@pytest.mark.parametrize("agents", [3, 4, 5, 9, 12, 30, 35, 36])
def test_closed_forms_are_the_eigenvalues(topology: str, agents: int) -> None:
    drawn = graph(topology, agents)
    known = closed_form(drawn)
    if known is None:  # a torus with two rows has doubled edges, which count once
        assert (topology, agents) == ("torus", 4)
        return
    values = dense(drawn)
    assert list(known) == pytest.approx([values[1], values[-1]], rel=1e-9)


@given(connected_graphs())
@settings(deadline=None)
def test_a_closed_form_is_never_given_to_another_graph(drawn: Graph) -> None:
    known = closed_form(drawn)
    if known is not None:
        values = dense(drawn)
        assert list(known) == pytest.approx([values[1], values[-1]], rel=1e-9)


@pytest.mark.parametrize("moved", [0, 7, 29])
def test_one_other_edge_and_a_grid_is_none(moved: int) -> None:
    """As many edges, as many agents: only the edges themselves tell."""
    edges = graph("torus", 30).edges.tolist()
    edges[moved] = [0, 17]
    assert closed_form(Graph.of(range(30), edges)) is None


@pytest.mark.parametrize("topology", ["tree", "grid", "small-world", "geometric"])
@pytest.mark.parametrize("kind", ["metropolis", "plain"])
def test_lanczos_finds_what_the_dense_solver_finds(topology: str, kind: str) -> None:
    P = matrix(topology, 400, weights=kind)
    found, values = lanczos_spectrum(P), np.linalg.eigvalsh(P.toarray())
    assert not found.bounded
    assert found.largest == pytest.approx(values[-1], rel=1e-9)
    assert found.largest >= values[-1] * (1 - 1e-14)  # from above: what is admitted is admissible
    assert found.connectivity == pytest.approx(values[1], rel=2e-3)


@given(connected_graphs(), st.sampled_from(["metropolis", "laplacian", "plain"]), st.floats(0.5, 1.5))
@settings(deadline=None)
def test_where_the_work_is_too_much_nothing_inadmissible_is_admitted(drawn: Graph, kind: Any, share: float) -> None:
    P = weight_matrix(drawn, kind)
    exact, beta = spectrum(P).largest, share / spectrum(P).largest
    bounded = Spectrum(0.0, float("nan"), weights._edge_bound(P), bounded=True)
    assert exact * (1 - 1e-13) <= bounded.largest <= 2 * P.diagonal().max() * (1 + 1e-13)
    if beta * exact >= 1 + 1e-12:
        with pytest.raises(BadInput, match=r"all that is known of this network is λ_max ≤"):
            check_step(1.0, beta, bounded)


def test_a_network_that_is_too_much_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    P = matrix("small-world", 300)
    monkeypatch.setattr(weights, "_WORK", 10 * P.nnz)
    found = lanczos_spectrum(P)
    assert found.bounded
    assert np.isnan(found.connectivity)
    assert np.linalg.eigvalsh(P.toarray())[-1] < found.largest < 2


@pytest.mark.parametrize(
    ("topology", "agents"), [("ring", 30_000), ("path", 30_000), ("grid", 10_000), ("tree", 9_999)]
)
def test_long_thin_networks_start_in_seconds(topology: str, agents: int) -> None:
    """A ring of 30,000 never got to round 0: Lanczos was asked for every digit of λ_max, without a limit."""
    settings_ = {"network.topology": topology, "network.agents": agents, "problem.name": "quadratic"}
    experiment = Experiment.load(overrides=settings_)
    began = time.process_time()
    prepared = PreparedRun.of(experiment)
    assert time.process_time() - began < 5
    assert agents > DENSE_UP_TO
    assert 0 < prepared.spectrum.connectivity < prepared.spectrum.largest < 2


def test_the_step_is_refused_on_a_large_ring_from_the_exact_bound_on() -> None:
    drawn = graph("ring", 10_000)
    found = network_spectrum(drawn, np.full(len(drawn.edges), 1 / 3))
    check_step(0.1, 0.1 / (4 / 3) * (1 - 1e-12), found)
    with pytest.raises(BadInput, match=r"algorithm\.beta"):
        check_step(0.1, 0.1 / (4 / 3) * (1 + 1e-12), found)


TWINS: dict[str, Any] = {
    "ring": nx.cycle_graph,
    "path": nx.path_graph,
    "star": lambda agents: nx.star_graph(agents - 1),
    "complete": nx.complete_graph,
    "tree": lambda agents: nx.full_rary_tree(2, agents),
}


@pytest.mark.parametrize("topology", TWINS)
@pytest.mark.parametrize("agents", [2, 3, 4, 11])
def test_shapes_are_those_of_networkx(topology: str, agents: int) -> None:
    theirs = TWINS[topology](agents)
    np.testing.assert_array_equal(graph(topology, agents).edges, Graph.of(theirs.nodes, theirs.edges()).edges)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (1, 5), (2, 2), (2, 3), (3, 3), (3, 4), (5, 7)])
def test_grids_are_those_of_networkx(rows: int, columns: int, periodic: bool) -> None:
    theirs: Any = nx.grid_2d_graph(rows, columns, periodic=periodic)
    ours = graph("torus" if periodic else "grid", rows * columns)
    np.testing.assert_array_equal(ours.edges, Graph.of(theirs.nodes, theirs.edges()).edges)


@given(st.integers(3, 40), st.data(), st.floats(0, 1), st.integers(0, 2**32))
@settings(deadline=None, max_examples=200)
def test_small_worlds_are_those_of_networkx_to_the_edge(agents: int, data: Any, rewire: float, seed: int) -> None:
    neighbours = data.draw(st.integers(2, agents))
    theirs: Any = nx.watts_strogatz_graph(agents, neighbours, rewire, seed=seed)
    section = Experiment.load(
        overrides={
            "network.topology": "small-world",
            "network.agents": agents,
            "network.neighbours": neighbours,
            "network.rewire": rewire,
            "network.seed": seed,
        }
    ).network
    np.testing.assert_array_equal(section.any_graph.edges, Graph.of(theirs.nodes, theirs.edges()).edges)
