"""The worst case over sets of colluders, who is weakest, and who holds the noise."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2.errors import BadInput
from dpp2.privacy import colluders as search
from dpp2.privacy.colluders import Cut, WorstCase, against_count, alone, cuts, with_remedy, worst_case, worst_of
from dpp2.privacy.correlated import Edges, Kind, NoiseNetwork, exposures
from dpp2.privacy.epsilon_value import Unsupported
from dpp2.privacy.holders import choose_holders
from tests.privacy.noise_networks import PAPER, edges_of, networks


def found(answer: WorstCase | Unsupported) -> WorstCase:
    assert isinstance(answer, WorstCase), answer
    return answer


def paper(kind: Kind = "gaussian", ratio: float = 30.0) -> NoiseNetwork:
    return NoiseNetwork.of(kind, PAPER, np.ones(50), ratio)


# --- worst case -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
def test_updates_of_the_inverse_find_what_plain_enumeration_finds(count: int) -> None:
    network = paper()
    quick = found(worst_case(network, count))
    plain = worst_of(network, combinations(range(50), count))
    assert quick.sets == plain.sets
    np.testing.assert_allclose(quick.exposure, plain.exposure, rtol=1e-9)
    for agent, colluders in enumerate(quick.colluders):
        assert exposures(network, colluders)[agent] == pytest.approx(quick.exposure[agent], rel=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(["gaussian", "laplace"]), st.data())
def test_no_smaller_set_is_worse(kind: Kind, data: st.DataObject) -> None:
    network = data.draw(networks(kind, most=6, holders="some"))
    worst = found(worst_case(network, 2)).exposure
    for size in (0, 1, 2):
        for colluders in combinations(range(network.agents), size):
            honest = ~np.isin(range(network.agents), colluders)
            assert (exposures(network, colluders)[honest] <= worst[honest] * (1 + 1e-9)).all()


@settings(deadline=None, max_examples=25)
@given(networks("gaussian", most=6))
def test_no_set_is_worse_than_all_neighbours(network: NoiseNetwork) -> None:
    worst = found(worst_case(network, network.agents - 1)).exposure
    np.testing.assert_allclose(worst, alone(network), rtol=1e-9)


def test_one_colluder_on_the_papers_graph_costs_three_percent() -> None:
    """[Σ⁻¹]_ii ≤ 1.0345/49 at a ratio of 30 and 1.0031/49 at 100: the account of spec 7."""
    assert 49 * found(worst_case(paper(ratio=30.0), 1)).largest ** 2 == pytest.approx(1.03448, abs=1e-5)
    assert 49 * found(worst_case(paper(ratio=100.0), 1)).largest ** 2 == pytest.approx(1.00311, abs=1e-5)


def test_too_many_sets_are_refused_with_what_it_would_take() -> None:
    answer = worst_case(paper(), 10)
    assert isinstance(answer, Unsupported)
    assert "10 colluders among 50 agents can be chosen in 1.03e+10 ways" in str(answer)
    assert "ask for fewer colluders, or name sets" in str(answer)


def test_named_sets_stand_in_for_a_search() -> None:
    network = paper()
    named = worst_of(network, [range(10), range(5, 15)])
    assert np.isnan(named.exposure[5:10]).all()  # colluders in both
    assert named.colluders[0] == tuple(range(5, 15))
    assert named.exposure[20] == max(exposures(network, range(10))[20], exposures(network, range(5, 15))[20])


def test_more_colluders_cost_more_and_two_are_cheap() -> None:
    curve = [found(answer).largest for answer in against_count(paper(), 2)]
    assert curve == sorted(curve)


def test_weakest_agents_come_first() -> None:
    worst = found(worst_case(paper(), 1))
    order = worst.weakest(50)
    assert worst.exposure[order[0]] == worst.largest
    assert list(worst.exposure[order]) == sorted(worst.exposure, reverse=True)


@pytest.mark.parametrize("count", [-1, 50])
def test_somebody_must_be_honest(count: int) -> None:
    with pytest.raises(BadInput, match="somebody is honest"):
        worst_case(paper(), count)


def test_refuses_an_agent_that_does_not_exist_and_a_set_of_everybody() -> None:
    with pytest.raises(BadInput, match="agents from 0 to 49"):
        worst_of(paper(), [[3, 50]])
    with pytest.raises(BadInput, match="leave somebody honest"):
        worst_of(paper(), [range(50)])


def test_without_edge_noise_nobody_is_cut_off_and_no_edge_would_help() -> None:
    assert cuts(NoiseNetwork.of("gaussian", edges_of(nx.path_graph(4)), np.ones(4), 0.0), 1) == []


def test_large_networks_are_searched_by_updates() -> None:
    """300 inverses of 300 × 300 become one: no refusal."""
    ring = edges_of(nx.circulant_graph(300, [1, 2, 3]))
    network = NoiseNetwork.of("gaussian", ring, np.ones(300), 30.0)
    assert search._operations(network, 1, quick=True) < search.MOST_OPERATIONS
    worst = found(worst_case(network, 1))
    np.testing.assert_allclose(worst.exposure, worst.exposure[0], rtol=1e-8)  # every agent is in the same place


# --- cuts -----------------------------------------------------------------------------------------------------


def test_a_cut_is_named_with_the_edge_that_would_help() -> None:
    """A ring of 0 … 4 with agent 5 hanging on 2."""
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [0, 4], [2, 5]])
    network = NoiseNetwork.of("gaussian", edges, np.ones(6), 30.0)
    (cut,) = found_cuts(network, 1)
    assert cut == Cut((2,), (5,), None)
    mended = with_remedy(network, cut)
    assert mended.edge is not None
    assert str(mended) == f"colluding, agent 2 disconnects agent 5; the edge {mended.edge} would help"
    better = network.with_edge(mended.edge, 30.0)
    assert found_cuts(better, 1) == []
    assert found(worst_case(better, 1)).largest < 0.5 < found(worst_case(network, 1)).largest


def test_the_edge_that_would_help_brings_laplace_noise_back() -> None:
    star = NoiseNetwork.of("laplace", np.array([[0, 1], [0, 2], [0, 3]]), np.array([0.0, 1.0, 0.0, 0.0]), 30.0)
    (cut,) = found_cuts(star, 1)
    assert cut.colluders == (0,)
    assert len(cut.agents) == 2
    assert found(worst_case(star, 1)).largest == np.inf


def test_the_papers_graph_has_no_cut_by_one() -> None:
    assert found_cuts(paper(), 1) == []


def test_cuts_by_many_are_refused() -> None:
    assert isinstance(cuts(paper(), 10), Unsupported)


def found_cuts(network: NoiseNetwork, count: int) -> list[Cut]:
    answer = cuts(network, count)
    assert not isinstance(answer, Unsupported)
    return answer


# --- holders --------------------------------------------------------------------------------------------------


def worst_with(agents: int, edges: Edges, holders: tuple[int, ...], count: int) -> float:
    own = np.zeros(agents)
    own[list(holders)] = 1.0
    return found(worst_case(NoiseNetwork.of("laplace", edges, own, 10.0), count)).largest - 1


@pytest.mark.parametrize("count", [0, 1])
def test_holders_are_the_best_of_all_choices(count: int) -> None:
    edges = edges_of(nx.random_geometric_graph(12, 0.5, seed=3))
    choice = choose_holders(12, edges, np.full(len(edges), 0.1), count)
    assert choice.method == "exact"
    distances = [worst_with(12, edges, holders, count) for holders in combinations(range(12), count + 1)]
    assert choice.distance == pytest.approx(min(distances), abs=1e-12)
    assert worst_with(12, edges, choice.holders, count) == pytest.approx(choice.distance, abs=1e-12)


def test_two_holders_of_the_papers_graph_are_three_edges_away_at_most() -> None:
    choice = choose_holders(50, PAPER, np.full(255, 1 / 30), 1)
    assert choice.method == "exact"
    assert choice.distance == pytest.approx(0.1)
    assert len(choice.holders) == 2


def test_search_finds_the_same_distance_where_it_can_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = choose_holders(50, PAPER, np.full(255, 1 / 30), 1)
    monkeypatch.setattr("dpp2.privacy.holders._MOST_STEPS", 0)
    searched = choose_holders(50, PAPER, np.full(255, 1 / 30), 1)
    assert searched.method == "search"
    assert searched.distance == pytest.approx(exact.distance)


@pytest.mark.parametrize(
    ("graph", "count", "fewest"),
    [(nx.star_graph(9), 1, 9), (nx.path_graph(10), 1, 2), (nx.balanced_tree(2, 3), 1, 8), (nx.cycle_graph(10), 2, 10)],
    ids=["star", "path", "tree", "ring"],
)
def test_every_part_that_can_be_cut_off_gets_holders(graph: nx.Graph, count: int, fewest: int) -> None:  # type: ignore[type-arg]
    agents, edges = graph.number_of_nodes(), edges_of(graph)
    choice = choose_holders(agents, edges, np.full(len(edges), 0.1), count)
    assert len(choice.holders) == fewest
    assert worst_with(agents, edges, choice.holders, count) == pytest.approx(choice.distance, abs=1e-9)
    assert np.isfinite(choice.distance)


def test_in_a_large_network_everybody_holds_noise() -> None:
    ring = edges_of(nx.cycle_graph(400))
    choice = choose_holders(400, ring, np.full(400, 0.1), 2)
    assert (len(choice.holders), choice.method) == (400, "everybody")


def test_refuses_more_colluders_than_agents() -> None:
    with pytest.raises(BadInput, match=r"privacy\.colluders"):
        choose_holders(3, np.array([[0, 1], [1, 2]]), np.ones(2), 3)
