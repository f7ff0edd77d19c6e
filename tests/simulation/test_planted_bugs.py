"""A simulation is worth what it finds: bugs that are planted here, one at a time, and must be reported soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from node.effects import Record, SaveCheckpoint
from node.files import Checkpoint, Checkpoints, Journal, _parse
from node.folder import RunFolder
from node.inbox import Inbox
from node.machine import RoundMachine
from node.run import NodeRun
from tests.simulation.cluster import command, first_failure

Patch = pytest.MonkeyPatch


def no_journal(patch: Patch) -> None:
    """A frame leaves and its digest is not in the journal: a node that comes back with other data sends other rows."""
    patch.setattr(Journal, "append", lambda *entry: None)


def checkpoint_before_records(patch: Patch) -> None:
    """A checkpoint is durable before the records that it speaks of: a loss of power takes them."""

    def save(self: Any, effect: SaveCheckpoint) -> None:
        facts = {"round": effect.k, "run": self._facts["run"], "digest": "", "saved": effect.saved}
        self._checkpoints.save(Checkpoint(effect.state, facts))
        self.records.sync()

    patch.setattr(RunFolder, "save", save)


def state_before_records(patch: Patch) -> None:
    """State and k go on, and the records of the round are written when the next one ends: a checkpoint lacks them."""
    write = NodeRun._record

    def late(self: Any, effect: Record) -> None:
        held, self.folder.held = getattr(self.folder, "held", None), effect
        if held is not None:
            write(self, held)

    patch.setattr(NodeRun, "_record", late)


def served_too_late(patch: Patch) -> None:
    """A neighbour that comes back is sent what it needs from one round later on."""
    serve = NodeRun._frames_since
    patch.setattr(NodeRun, "_frames_since", lambda self, node, need: serve(self, node, need + 1))


def durable_too_early(patch: Patch) -> None:
    """A checkpoint counts as durable when it is begun: the run is called finished, and a loss of power undoes it."""

    def begin(self: Any, effect: SaveCheckpoint) -> None:
        self.folder.records.push()
        self.saving = effect
        self.machine.saved(effect.k)

    patch.setattr(NodeRun, "_begin_saving", begin)
    patch.setattr(NodeRun, "saved", lambda self: setattr(self, "saving", None))


def charged_too_little(patch: Patch) -> None:
    """At the end of a life rounds are charged that are over, and not the one of which something has left."""

    def settle(self: Any, ledgers: Any) -> None:
        self.budget.k = self.machine.k
        ledgers.settle(self.budget)

    patch.setattr(NodeRun, "settle", settle)


def credit_not_noted(patch: Patch) -> None:
    """Credit is used before it is durable. A loss of power takes the journal; then too little is charged for."""
    patch.setattr(NodeRun, "note_released", lambda self, until: None)


def not_settled(patch: Patch) -> None:
    """At the end of a life everything that was allowed stays charged."""
    patch.setattr(NodeRun, "settle", lambda self, ledgers: None)


def forgotten_too_early(patch: Patch) -> None:
    """Of rounds before the newer checkpoint nothing is remembered, though the older one may have to do."""
    patch.setattr(RoundMachine, "durable", property(lambda self: self._saves.last_two[1]))


def checksum_ignored(patch: Patch) -> None:
    """A damaged checkpoint is used."""

    def load(self: Any) -> list[Checkpoint]:
        contents = [self._disk.read(name) for name in (self._newer, self._older)]
        self._newer_is_whole = contents[0] is not None
        return [_parse(content[32:]) for content in contents if content is not None]

    patch.setattr(Checkpoints, "load", load)


def damaged_one_kept(patch: Patch) -> None:
    """When a checkpoint is saved, a damaged one becomes the older one, in the place of a whole one."""
    save = Checkpoints.save

    def keep(self: Any, checkpoint: Checkpoint) -> None:
        self._newer_is_whole = self._disk.read(self._newer) is not None
        save(self, checkpoint)

    patch.setattr(Checkpoints, "save", keep)


def other_rows_not_seen(patch: Patch) -> None:
    """A neighbour may take back what it has sent."""
    patch.setattr(Inbox, "_compare", lambda *seen: None)


BUGS: dict[Callable[[Patch], None], tuple[int, str]] = {  # with the most schedules that it may take, and what is said
    no_journal: (20, "sends other rows"),
    checkpoint_before_records: (500, "is shorter than"),
    state_before_records: (20, "is shorter than|nothing can happen any more"),
    served_too_late: (20, "nothing can happen any more|no end"),
    durable_too_early: (20, "has finished, and on disk"),
    charged_too_little: (200, "is charged for fewer"),
    credit_not_noted: (200, "is charged for fewer|no neighbour can be in round"),
    not_settled: (20, "is not charged for exactly these"),
    forgotten_too_early: (200, "does not see that"),
    checksum_ignored: (100, "can't decode|was sent before with other bytes|that are not the run's|Expecting"),
    damaged_one_kept: (200, "has kept a damaged checkpoint"),
    other_rows_not_seen: (50, "does not see that"),
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    most, said = BUGS[bug]
    bug(monkeypatch)
    failure = first_failure(range(most))
    assert failure, f"{bug.__name__} was not found in {most} schedules"
    seed = int(failure.removeprefix("schedule ").partition(":")[0])
    assert command(seed) in failure
    assert any(one in failure for one in said.split("|")), failure
