"""The embedded run around the rounds: blocks, records, metrics, what a result holds."""

from __future__ import annotations

import ast
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment, Records, Simulation, run
from dpp2.embedded import blocks_of
from tests.core.programs import host, matrix, normal, problem

SMALL: dict[str, Any] = {
    "run.rounds": 6,
    "network.topology": "ring",
    "network.agents": 5,
    "problem.name": "quadratic",
    "problem.dimension": 3,
}


def small(**overrides: Any) -> Experiment:
    return Experiment.load(overrides=SMALL | {key.replace("__", ".", 1): value for key, value in overrides.items()})


# --- records --------------------------------------------------------------------------------------------------


def test_records_cannot_be_written_to() -> None:
    result = run(small())
    for records in (result.observation, result.truth, result.metrics):
        assert records is not None
        for name in records:
            with pytest.raises(ValueError, match="read-only"):
                records[name][...] = 0
            with pytest.raises(ValueError, match="read-only"):
                records[name][0] += 1


def test_records_are_read_by_name_or_key() -> None:
    records = Records({"x": np.ones((2, 3)), "eta": np.zeros(2)})
    assert records.x is records["x"]
    assert list(records) == ["x", "eta"]
    assert len(records) == 2
    assert dict(records).keys() == {"x", "eta"}
    assert repr(records) == "Records(x: (2, 3), eta: (2,))"
    with pytest.raises(AttributeError, match="no array 'y' here, only x, eta"):
        _ = records.y
    with pytest.raises(KeyError):
        _ = records["y"]


def test_records_do_not_seal_the_array_they_were_made_from() -> None:
    """A recorder goes on writing into its buffer after it has given out a result."""
    buffer = np.zeros(3)
    records = Records({"x": buffer})
    buffer[0] = 1
    assert records.x[0] == 1


def test_shapes_and_names_of_a_result() -> None:
    """(K, N, d) for what was sent and kept, K + 1 rows of metrics, x^K apart (docs/experiments.md)."""
    result = run(small())
    assert result.observation is not None
    assert result.truth is not None
    assert {name: array.shape for name, array in result.observation.items()} == {
        "y": (6, 5, 3),
        "z": (6, 5, 3),
        "P": (5, 5),
    }
    kept = {name: array.shape for name, array in result.truth.items()}
    assert kept == {"x": (6, 5, 3), "grad": (6, 5, 3), "w": (6, 5, 3), "e": (6, 5, 3), "eta": (6,)}
    assert {array.shape for array in result.metrics.values()} == {(7,)}
    assert result.x.shape == (5, 3)
    assert all(array.dtype == np.float64 for array in result.observation.values())


def test_observation_holds_nothing_private() -> None:
    observation = run(small()).observation
    assert observation is not None
    assert set(observation) == {"y", "z", "P"}


def test_without_telemetry_no_truth_is_kept() -> None:
    full, none = run(small()), run(small(run__telemetry="none"))
    assert not none.truth
    assert none.observation is not None
    assert full.observation is not None
    np.testing.assert_array_equal(none.observation.y, full.observation.y)


def test_without_records_the_run_is_the_same() -> None:
    with_, without = run(small()), run(small(), record=False)
    assert not without.observation
    assert not without.truth
    np.testing.assert_array_equal(with_.x, without.x)
    np.testing.assert_array_equal(with_.metrics.gap, without.metrics.gap)


def test_metrics_count_rounds_and_bytes() -> None:
    """Two phases of d float64 over each direction of each edge; x^0 has cost nothing."""
    metrics = run(small()).metrics
    assert metrics.round.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert metrics.bytes.tolist() == [0] + [2 * 2 * 5 * 3 * 8] * 6


def test_objective_is_the_sum_of_the_agents_values() -> None:
    simulation = Simulation(small())
    simulation.advance(6)
    result = simulation.result()
    assert result.truth is not None
    objective = simulation.experiment.problem.objective(range(5), 5)
    for k in range(6):
        assert result.metrics.objective[k] == pytest.approx(objective(result.truth.x[k])[0].sum(), rel=1e-12)
    assert result.metrics.objective[6] == pytest.approx(objective(result.x)[0].sum(), rel=1e-12)


def test_asking_for_a_result_midway_disturbs_nothing() -> None:
    asked, left = Simulation(small()), Simulation(small())
    asked.advance(3)
    assert asked.result().rounds == 3
    asked.advance(10)
    left.advance(6)
    np.testing.assert_array_equal(asked.result().x, left.result().x)
    np.testing.assert_array_equal(asked.result().metrics.gap, left.result().metrics.gap)


def test_remaining_and_gap() -> None:
    simulation = Simulation(small())
    assert simulation.remaining == 6
    simulation.advance(4)
    assert (simulation.remaining, simulation.k) == (2, 4)
    assert simulation.gap == simulation.result().metrics.gap[3]
    simulation.advance(99)
    assert simulation.remaining == 0


def test_run_without_arguments_is_the_papers_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Simulation.advance
    monkeypatch.setattr(Simulation, "advance", lambda self, rounds: advance(self, 2))
    result = run()
    assert result.experiment.digest == Experiment.load().resolve().digest
    assert result.rounds == 2
    assert result.run_id == result.experiment.digest[:32]
    assert result.rounds_per_second > 0


# --- the driver -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("agents", "size"), [(1, 1), (10, 3), (9, 3), (5, 100)])
def test_blocks_cover_every_agent_once_in_order(agents: int, size: int) -> None:
    blocks = blocks_of(agents, size)
    assert [agent for block in blocks for agent in block] == list(range(agents))
    assert max(map(len, blocks)) <= size


@pytest.mark.parametrize("block", [1, 2, 100])
def test_every_phase_is_shown_in_order_and_complete(block: int) -> None:
    """What `sent` sees is what the channels carry: y of all agents, then z of all agents."""
    section, noise = problem("quadratic", 5, dimension=2), {"u_w": 1.0, "u_e": 1.0, "decay": 0.9, "grid": 0}
    network = host(matrix("ring", 5), section, normal(5, 2), noise=noise, block=block)
    seen: list[tuple[str, np.ndarray]] = []
    private = network.round(0, lambda phase, rows: seen.append((phase, rows.copy())))
    assert [phase for phase, _ in seen] == ["y", "z"]
    assert all(rows.shape == (5, 2) for _, rows in seen)
    assert len(private) == len(network.blocks)
    np.testing.assert_array_equal(seen[0][1], normal(5, 2) + np.concatenate([p.noise["w"] for p in private]))


def test_restoring_a_state_copies_it() -> None:
    network = host(matrix("ring", 5), problem("quadratic", 5, dimension=2), normal(5, 2), block=2)
    state = network.state()
    assert set(state) == {"x", "d", "q"}
    network.restore(state)
    state["x"][...] = 0
    assert network.state()["x"].all()


def test_gradient_of_all_agents_in_their_order() -> None:
    section, x = problem("quadratic", 5, dimension=2, curvature=[1.0, 2.0, 3.0, 4.0, 5.0]), normal(5, 2)
    for block in (1, 2, 5):
        network = host(matrix("ring", 5), section, x, block=block)
        np.testing.assert_allclose(network.gradient(x), section.objective(range(5), 5)(x)[1], rtol=1e-14)


def test_a_round_changes_no_array_that_was_given_out() -> None:
    """States are replaced, not written into: what a record or a checkpoint holds stays what it was."""
    network = host(matrix("ring", 5), problem("sine", 5, dimension=2), normal(5, 2))
    before = network.blocks[0].state
    copies = {name: array.copy() for name, array in network.state().items()}
    network.round(0, lambda phase, rows: None)
    for name, copy in copies.items():
        np.testing.assert_array_equal(getattr(before, name), copy)


def test_threads_of_a_blocked_network_end_with_it() -> None:
    import gc

    before = threading.active_count()
    for _ in range(3):
        simulation = Simulation(small(), block=2)
        simulation.advance(6)
        del simulation
    gc.collect()
    for thread in threading.enumerate()[before:]:
        thread.join(timeout=5)
    assert threading.active_count() <= before


# --- one door -------------------------------------------------------------------------------------------------


def test_a_snapshot_stays_as_it_was_taken() -> None:
    simulation = Simulation(small())
    simulation.advance(3)
    snapshot = simulation.snapshot(since=1)
    kept = {name: array.copy() for name, array in {**snapshot.state, **snapshot.records}.items()}
    simulation.advance(3)
    simulation.result()
    assert (snapshot.k, snapshot.since, snapshot.diverged) == (3, 1, False)
    assert len(snapshot.records["y"]) == 2
    for name, array in {**snapshot.state, **snapshot.records}.items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_nobody_else_writes_the_insides_of_a_run() -> None:
    """A run is left and taken up again by `snapshot` and `restore` alone."""
    root = Path(__file__).parent.parent.parent
    paths = [
        path
        for room in ("store", "node", "orchestrator", "adversary", "studies")
        for path in (root / room).rglob("*.py")
    ]
    nodes = ((path, node) for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    written = [
        f"{path.name}: {ast.unparse(node)}"
        for path, node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]
    assert written
    assert [name for name in written if ".simulation." in name or ": simulation." in name] == []
