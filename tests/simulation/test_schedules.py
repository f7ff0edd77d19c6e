"""Thousands of random schedules of a whole cluster, each to the bytes of the embedded run and an exact ledger."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dpp2.node.effects import Effect
from dpp2.node.errors import NodeFailed
from dpp2.node.files import Checkpoint, Checkpoints
from dpp2.node.machine import RoundMachine
from tests.simulation.cluster import Cluster, simulate
from tests.simulation.reference import ALGORITHM_NAMES
from tests.simulation.virtual_node import VirtualNode

ALWAYS, CHUNK = 2_000, 100
SELDOM, LARGE_CHUNK = 50_000, 1_000


@pytest.mark.parametrize("first", range(0, ALWAYS, CHUNK))
def test_every_schedule_ends_as_the_embedded_run_does(first: int) -> None:
    for seed in range(first, first + CHUNK):
        simulate(seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(ALWAYS, ALWAYS + SELDOM, LARGE_CHUNK))
def test_many_more_schedules(first: int) -> None:
    for seed in range(first, first + LARGE_CHUNK):
        simulate(seed)


def test_a_seed_decides_everything() -> None:
    """Otherwise a failure could not be shown again."""
    for seed in range(20):
        first: list[str] = []
        again: list[str] = []
        for told in (first, again):
            Cluster(seed, told.append).run()
        assert first == again
        assert len(first) > 50


def test_schedules_are_of_all_kinds() -> None:
    """What should be tried is tried: every algorithm, every fault, lives upon lives."""
    told: list[str] = []
    for seed in range(100):
        Cluster(seed, told.append).run()
    kinds = {one.split()[0] for one in told}
    assert set(ALGORITHM_NAMES) <= kinds
    faults = {"kill", "kill_soon", "lose_power", "lose_power_everywhere", "stop", "come_back_changed", "cut"}
    faults |= {"fill_disk", "free_disk", "bury"}
    assert faults | {"damage", "alter_a_frame", "repeat_a_frame", "orchestrator_dies", "give_up", "notice"} <= kinds
    assert sum(one.startswith("start ") for one in told) > 150


def test_hellos_are_waited_for_and_forged(monkeypatch: pytest.MonkeyPatch) -> None:
    """In runs whose edges have secrets: before a round rests on them, and after that."""
    told, waited, acquainted = list[str](), list[bool](), RoundMachine._acquainted

    def noticed(self: RoundMachine, effects: list[Effect]) -> bool:
        waited.append(not acquainted(self, effects))
        return not waited[-1]

    monkeypatch.setattr(RoundMachine, "_acquainted", noticed)
    for cluster in (Cluster(seed, told.append) for seed in range(300)):
        if cluster.reference.hellos:
            cluster.run()
    assert sum(waited) > 10
    assert sum(one.startswith("say_another_hello") for one in told) >= 3


def test_nodes_are_refused_and_trusted_after_a_loss_of_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both because entries may be missing, and because some are damaged."""
    said: list[str] = []
    refused = VirtualNode._expect_refusal

    def noted(self: VirtualNode, refusal: NodeFailed) -> None:
        said.append(str(refusal))
        refused(self, refusal)

    monkeypatch.setattr(VirtualNode, "_expect_refusal", noted)
    for seed in range(100):
        simulate(seed)
    assert sum("may lack what was sent in rounds" in one for one in said) > 20
    assert any("journal.bin is damaged (entry" in one for one in said)


def test_some_schedules_end_before_the_allowance_does() -> None:
    """There alone a node that does not settle is charged for more than it has sent."""
    early = [cluster for cluster in map(Cluster, range(100)) if cluster.reference.rounds < cluster.allowed]
    assert 15 <= len(early) <= 45


def test_nodes_go_on_from_the_older_checkpoint_and_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nobody would notice that the newer one is not checked."""
    load, went_on_from = Checkpoints.load, []

    def noticed(self: Checkpoints) -> list[Checkpoint]:
        usable = load(self)
        if self.complaints:
            went_on_from.append(len(usable))
        return usable

    monkeypatch.setattr(Checkpoints, "load", noticed)
    for seed in range(100):
        simulate(seed)
    assert went_on_from.count(1) >= 3
    assert went_on_from.count(0) >= 3


def test_a_schedule_can_be_shown_again() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.simulation.replay", "7"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=root)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[-1] == "as it should be"
