"""Numbers have a bound: beyond it a neighbour is at fault, and a run of one's own has diverged, wherever it is run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dpp2 import BadInput, Experiment, Simulation
from dpp2.experiment import LARGEST_VALUE
from dpp2.node.codec import encode
from dpp2.node.status import STATUS
from tests.node.live import SECONDS, Live, live, one_each, small
from tests.node.test_hostile import VICTIM, dial, pair

GROWS: dict[str, Any] = {"problem__curvature": -1.0, "run__rounds": 400, "run__largest_value": 1e6}


@pytest.mark.parametrize("value", [2.0**51, -(2.0**51), np.nextafter(LARGEST_VALUE, np.inf)])
async def test_a_neighbour_that_sends_absurd_numbers_is_refused(value: float, tmp_path: Path) -> None:
    """Its agent, the round and the bound are named. What may be sent is taken."""
    async with pair(tmp_path, dimension=3) as nodes, nodes.channel(VICTIM, "node-0") as channel:
        call = dial(nodes, channel)
        await call.write(encode(nodes.run_id, 0, "y", [0], np.full((1, 3), LARGEST_VALUE)))
        await call.write(encode(nodes.run_id, 0, "z", [0], np.full((1, 3), value)))
        assert await call.code() == STATUS["too large"] == grpc.StatusCode.INVALID_ARGUMENT
        assert await call.details() == (
            "too large: round 0, phase 'z' from agents (0,) exceeds run.largest_value = 1.1e+12"
        )
        shell = nodes.nodes[VICTIM].shell
        assert shell is not None
        assert sorted(shell.machine.inbox._taken) == [0]


async def test_a_run_that_passes_the_bound_has_diverged_embedded_and_over_a_network(tmp_path: Path) -> None:
    """In the same round. Nobody sends it, so nobody is at fault."""
    experiment = small(**GROWS)
    embedded = Simulation(experiment)
    embedded.detector.check = lambda *seen: None  # type: ignore[method-assign]  # the watch may see it earlier
    embedded.advance(embedded.remaining)
    assert embedded.divergence is not None
    assert 0 < embedded.k < 400
    assert embedded.divergence.round == embedded.k - 1
    observation = embedded.result().observation
    assert observation is not None
    assert max(np.abs(observation[phase]).max() for phase in "yz") <= 1e6
    async with live(experiment, tmp_path, one_each(4)) as nodes:
        await nodes.prepare()
        await nodes.release(400)
        reports = [await nodes.watched(node) for node in await diverged(nodes)]
        assert {report.diverged for report in reports} == {True}
        assert {report.round for report in reports} == {embedded.k}
        assert reports[0].failure == (
            f"the run diverged: what round {embedded.k} would send exceeds run.largest_value = 1e+06"
        )
        assert not any(node.refusals.counts.total() for node in nodes.nodes.values())


async def diverged(nodes: Live) -> list[int]:
    """Nodes that have seen it themselves, once there is one."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = [n for n, node in nodes.nodes.items() if node.shell is not None and node.shell.diverged]
            if found:
                return found
            await asyncio.sleep(0.01)


def test_noise_beyond_the_bound_is_said_as_it_is() -> None:
    """No mode of the iteration grows, so none is blamed."""
    simulation = Simulation(small(run__largest_value=1e-9))
    simulation.advance(5)
    assert simulation.k == 0
    assert simulation.divergence is not None
    assert simulation.result().rounds == 0
    assert simulation.divergence.explanation.startswith("what round 0 would send exceeds run.largest_value = 1e-09")


def test_the_bound_is_part_of_the_experiment_if_it_is_set() -> None:
    resolved = small().resolve()
    assert resolved.digest != small(run__largest_value=1e6).resolve().digest
    assert resolved.digest == small(run__largest_value=LARGEST_VALUE).resolve().digest
    assert Experiment.load(overrides={"run.largest_value": 1e300}).run.largest_value == 1e300


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), "large"])
def test_a_bound_that_is_none(value: Any) -> None:
    with pytest.raises(BadInput, match=r"run\.largest_value"):
        Experiment.load(overrides={"run.largest_value": value})
