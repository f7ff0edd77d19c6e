"""Agents on a real network compute what the embedded run computes, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from dpp2 import Simulation
from dpp2.node.server import run_folder
from dpp2.orchestrator.merge import load_node_records
from tests.node.live import assert_same_run, live, networked, one_each, small

TOPOLOGIES = (
    "geometric",
    "ring",
    "path",
    "star",
    "complete",
    "grid",
    "torus",
    "tree",
    "erdos-renyi",
    "small-world",
    "file",
)
EDGES = "0 1\n0 2\n1 2\n2 3\n3 4\n4 5\n3 5\n"


def shape(topology: str, tmp_path: Path) -> dict[str, Any]:
    if topology != "file":
        return {"network.topology": topology, "network.agents": 6}
    (tmp_path / "own.edges").write_text(EDGES)
    return {"network.topology": "file", "network.path": str(tmp_path / "own.edges"), "network.agents": 6}


@pytest.mark.parametrize("groups", [one_each(6), [[0, 5], [1, 3, 4], [2]]], ids=["one each", "several"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
async def test_every_topology(topology: str, groups: list[list[int]], tmp_path: Path) -> None:
    assert_same_run(await networked(small(**shape(topology, tmp_path)), tmp_path / "nodes", groups))


@pytest.mark.parametrize("groups", [one_each(4), [[0, 3], [1, 2]]], ids=["one each", "pairs"])
@pytest.mark.parametrize("damping", [0.0, 1.0])
async def test_damping(damping: float, groups: list[list[int]], tmp_path: Path) -> None:
    assert_same_run(await networked(small(algorithm__damping=damping), tmp_path, groups))


@pytest.mark.parametrize("problem", ["quadratic", "least-squares", "logistic", "sine"])
async def test_problems(problem: str, tmp_path: Path) -> None:
    assert_same_run(await networked(small(problem__name=problem), tmp_path, [[0], [1, 2], [3]]))


@pytest.mark.parametrize("weights", ["metropolis", "laplacian", "laplacian-spectral", "plain", "normalised"])
async def test_weights(weights: str, tmp_path: Path) -> None:
    experiment = small(network__weights=weights, algorithm__beta=0.01)
    assert_same_run(await networked(experiment, tmp_path, one_each(4)))


@pytest.mark.parametrize("start", ["zero", "normal"])
async def test_starting_points(start: str, tmp_path: Path) -> None:
    assert_same_run(await networked(small(run__start=start), tmp_path, one_each(4)))


async def test_eight_agents_and_rounds_that_no_checkpoint_divides(tmp_path: Path) -> None:
    experiment = small(network__topology="torus", network__agents=8, run__rounds=23)
    assert_same_run(await networked(experiment, tmp_path, one_each(8)))


async def test_everybody_in_one_node(tmp_path: Path) -> None:
    assert_same_run(await networked(small(), tmp_path, [[0, 1, 2, 3]]))


async def test_two_agents(tmp_path: Path) -> None:
    experiment = small(network__topology="path", network__agents=2)
    assert_same_run(await networked(experiment, tmp_path, one_each(2)))


async def test_strict_rounds(tmp_path: Path) -> None:
    """One round of credit at a time."""
    async with live(small(run__rounds=6), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        for until in range(1, 7):
            await nodes.release(until)
            await nodes.reach(until)
            assert {node.shell.machine.k for node in nodes.nodes.values() if node.shell} == {until}
        await nodes.finish()
    assert_same_run(nodes)


async def test_without_telemetry_only_frames_are_kept(tmp_path: Path) -> None:
    nodes = await networked(small(run__telemetry="none"), tmp_path, one_each(4))
    kept = {file.stem for home in nodes.homes for file in (run_folder(home, nodes.run_id) / "records").iterdir()}
    assert kept == set(nodes.simulation.experiment.algorithm.phases)
    embedded = nodes.simulation
    embedded.advance(embedded.remaining)
    merged = nodes.merged()
    assert merged.result().x.tobytes() == embedded.result().x.tobytes()
    assert not merged.result().truth
    for phase, rows in embedded.recorder.sent_arrays.items():
        assert rows.tobytes() == merged.recorder.sent_arrays[phase].tobytes()


@pytest.mark.parametrize("groups", [one_each(4), [[0, 1], [2, 3]]], ids=["one each", "pairs"])
async def test_keys_from_files(groups: list[list[int]], tmp_path: Path) -> None:
    nodes = await networked(small(run__seed="os"), tmp_path, groups)
    assert_same_run(nodes)
    keys = [*tmp_path.rglob("*.key")]
    assert len(keys) == 5
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}


@pytest.mark.parametrize("name", ["eta.key", "node-0-keys/agent-0.key"])
async def test_a_key_that_others_can_read_is_refused(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(small(run__seed="os"), tmp_path, one_each(4)) as nodes:
        (tmp_path / name).chmod(0o640)
        with pytest.raises(grpc.aio.AioRpcError, match="key is not accepted at this node") as refused:
            await nodes.prepare(0)
        assert "only its owner can read" in caplog.text
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert nodes.nodes[0].shell is None
        (tmp_path / name).chmod(0o600)
        await nodes.prepare()
        await nodes.finish()
    assert_same_run(nodes)


@pytest.mark.parametrize("at", [3, 5, 11])
async def test_a_node_that_comes_back(at: int, tmp_path: Path) -> None:
    """Stopped in the middle, before, at and after checkpoints; it resumes on the same port."""
    async with live(small(run__rounds=20), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(at)
        await nodes.reach(at)
        await nodes.nodes[1].stop()
        await nodes.release(20, 0, 2, 3)
        await nodes.start_one(1)
        await nodes.prepare(1)
        await nodes.finish()
    assert_same_run(nodes)


async def test_all_come_back(tmp_path: Path) -> None:
    """Everybody at once: what was sent is in the checkpoints."""
    async with live(small(run__rounds=20), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(13)
        await nodes.reach(13)
        await nodes.stop()
        for node in nodes.groups:
            await nodes.start_one(node)
        await nodes.prepare()
        await nodes.finish()
    assert_same_run(nodes)


async def test_a_damaged_checkpoint_costs_nothing_but_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with live(small(run__rounds=20), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(12)
        await nodes.reach(12)
        await nodes.nodes[1].stop()
        newest = run_folder(tmp_path / "node-1", nodes.run_id) / "checkpoint.bin"
        newest.write_bytes(newest.read_bytes()[:-7])
        await nodes.start_one(1)
        await nodes.prepare(1)
        await nodes.finish()
    assert "checkpoint.bin is damaged and is not used" in caplog.text
    assert_same_run(nodes)


async def test_a_home_serves_one_run_after_the_other(tmp_path: Path) -> None:
    """Another experiment in the same homes: its own journal and records, and nobody's noise."""
    for damping in (0.0, 1.0):
        assert_same_run(await networked(small(algorithm__damping=damping), tmp_path, one_each(4)))


async def test_folders_of_another_run_are_not_merged(tmp_path: Path) -> None:
    nodes = await networked(small(), tmp_path, one_each(4))
    with pytest.raises(ValueError, match="records of run"):
        load_node_records(Simulation(small(run__seed=2)), [run_folder(home, nodes.run_id) for home in nodes.homes])
    with pytest.raises(ValueError, match="folders of all 4 agents, each once, but agent 0 is missing"):
        load_node_records(Simulation(small()), [run_folder(home, nodes.run_id) for home in nodes.homes[1:]])


async def test_a_node_without_any_whole_checkpoint_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its neighbours have everything on record, and its journal makes sure that it sends what it has sent before."""
    async with live(small(run__rounds=20), tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(12)
        await nodes.reach(12)
        await nodes.nodes[1].stop()
        for name in ("checkpoint.bin", "checkpoint-before.bin"):
            (run_folder(tmp_path / "node-1", nodes.run_id) / name).write_bytes(b"gone")
        await nodes.start_one(1)
        await nodes.prepare(1)
        shell = nodes.nodes[1].shell
        assert shell is not None
        assert shell.machine.k == 0
        await nodes.finish()
    for name in ("checkpoint.bin", "checkpoint-before.bin"):
        assert f"{name} is damaged and is not used" in caplog.text
    assert_same_run(nodes)
