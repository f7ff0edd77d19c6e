"""`dpp2 bench scale`: its counts against a plain loop, its figures on networks that are small enough to run here."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from dpp2 import BadInput, Experiment
from dpp2.orchestrator.cli.bench import bench
from dpp2.partition import blocks
from dpp2.prepared import PreparedRun
from dpp2.studies.bench import scale
from dpp2.studies.bench.benchmark import Bench
from dpp2.studies.bench.scale_numbers import EmbeddedRun, NodesRun, exponent, planned
from dpp2.studies.bench.scale_run import SETTINGS, embedded


def prepared(agents: int) -> PreparedRun:
    return PreparedRun.of(Experiment.load(overrides=[*SETTINGS, f"network.agents={agents}"]))


@pytest.mark.parametrize("hosts", [2, 3, 7])
def test_rows_sent_are_those_that_a_loop_counts(hosts: int) -> None:
    graph = prepared(60).graph
    owner = blocks(60, hosts)
    needed = {(i, owner[j]) for edge in graph.edges.tolist() for i, j in (edge, edge[::-1]) if owner[i] != owner[j]}
    counted = np.zeros((hosts, hosts), dtype=int)
    for agent, host in needed:
        counted[owner[agent], host] += 1
    np.testing.assert_array_equal(scale.rows_sent(graph, owner), counted)


def test_frames_are_little_more_than_the_rows_in_them() -> None:
    run = prepared(400)
    owner = blocks(400, 2)
    least = int(scale.rows_sent(run.graph, owner).sum()) * 2 * 80
    assert least < scale.frame_bytes(run, owner) < 1.05 * least


def test_one_embedded_run() -> None:
    found = embedded(300)
    assert (found.agents, found.edges) == (300, 1500)
    assert found.rounds_per_second > 0
    assert found.setup_seconds > 0


def test_exponents_of_powers_are_found() -> None:
    sizes = [10.0, 1e3, 1e4, 1e5]
    assert exponent(sizes, [1.0, *(2e-3 * size**1.2 for size in sizes[1:])]) == pytest.approx(1.2)


def test_the_paper_plan_names_what_saturates_first() -> None:
    run = EmbeddedRun(10**6, 5 * 10**6, 1.0, 1.0, 1.0, 1.0, rounds_per_second=2.0, bytes_per_agent=100.0)
    slow = NodesRun(10**6, 2, None, 1.0, rounds_per_second=1.0, frame_bytes=10**6, least_bytes=10**6)
    spread, full = planned([run], [slow], busiest=10**5, phases=2)
    assert spread.compute == pytest.approx(0.005)
    assert spread.wire == pytest.approx(8e-5)
    assert spread.delay == pytest.approx(0.4e-3)
    assert spread.handling == pytest.approx(0.05)  # half a second for a million bytes
    assert spread.saturates_first == "handling frames"
    assert planned([run], [], busiest=10**5, phases=2)[0].saturates_first == "computing"
    assert full.agents == 10**8


def test_the_whole_benchmark_on_small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that cannot run are told, and the rest is measured nevertheless."""
    monkeypatch.setattr(scale, "_EMBEDDED", (100, 200))
    monkeypatch.setattr(scale, "_NODES", (2,))
    monkeypatch.setattr(scale, "_MOST_OVER_NODES", 100)
    monkeypatch.setattr(scale, "together", lambda agents, count: [[[0]]])  # and nobody hosts the others
    measured = scale.SCALE.measure(Bench())
    assert [run.agents for run in measured.embedded] == [100, 200]
    assert measured.nodes[0].failure is not None
    shown = scale.SCALE.table(measured)
    assert any("not run: " in row[1] for row in shown.rows)
    assert any(row[0].startswith("on paper: 200 agents on 100 hosts") for row in shown.rows)
    assert asdict(measured)["embedded"][0]["agents"] == 100


def test_nodes_are_measured_in_turns_with_the_embedded_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "block_rounds", lambda agents: 4)
    found = scale._over_nodes(40, 2, lambda what: None)
    assert found.failure is None
    assert found.rounds_per_second > 0
    assert found.of_embedded > 0
    assert 0 < found.cpu_of_embedded < 1  # forty agents take no time, and frames do
    assert found.frame_bytes > found.least_bytes > 0


def test_single_sizes_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that are too large for nodes are measured embedded alone."""
    monkeypatch.setattr(scale, "_MOST_OVER_NODES", 99)
    measured = scale.SCALE.measure(Bench(sizes=(100,)))
    assert [run.agents for run in measured.embedded] == [100]
    assert not measured.nodes
    assert any(row[0].startswith("on paper: 100 agents") for row in scale.SCALE.table(measured).rows)


@pytest.mark.parametrize("sizes", ["", "10", "1e5", "1000,", "2000000"])
def test_sizes_that_are_none_are_refused(sizes: str) -> None:
    with pytest.raises(BadInput, match=r"--agents.*whole numbers from 100 to 1,000,000"):
        bench("scale", agents=sizes)
    with pytest.raises(BadInput, match=r"only the scale benchmark takes sizes"):
        bench("core", agents="1000")
