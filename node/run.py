"""One run at one node without asyncio: the round machine, its folder and its links. Carries effects out, in order.

The asyncio shell around it waits, reads and writes streams; the simulated cluster of the tests does so in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpp2.arrays import Array
from dpp2.budget import RunBudget
from node.disk import Disk, RealDisk
from node.effects import Failed, Finished, JournalEntry, Record, SaveCheckpoint, Send
from node.files import Checkpoints
from node.folder import RunFolder
from node.machine import HostedRun, RoundMachine
from node.queues import Link, Outgoing


class Ledgers(Protocol):
    """Where agents are charged: in full before the first message leaves, for what was sent when the run ends."""

    def reserve(self, budget: RunBudget) -> None: ...

    def settle(self, budget: RunBudget) -> None: ...


@dataclass(frozen=True)
class Keeping:
    """What a node writes down."""

    every: int  # rounds between checkpoints
    telemetry: bool  # whether x, gradients and noise are written down, too


def open_run(agents: HostedRun, disk: Disk, ledgers: Ledgers, keeping: Keeping) -> NodeRun:
    """Go on where the node's own files left off, as far as its own budget goes."""
    with ExitStack() as opened:  # whatever goes wrong here, the folder is free again for the next call
        folder = opened.enter_context(closing(RunFolder(disk, agents, telemetry=keeping.telemetry)))
        budget = RunBudget([agents.hosting.agents], agents.run_id, folder.memory.rounds_begun)
        ledgers.reserve(budget)  # before the first message leaves
        machine = RoundMachine(
            agents, folder.memory, budget.allowance.rounds, every=keeping.every, telemetry=keeping.telemetry
        )
        run = NodeRun(machine, folder, budget)
        opened.pop_all()
    return run


class NodeRun:
    """`saving` is the checkpoint that was begun last, for whoever owns the disk's time; `failure` ends everything."""

    def __init__(self, machine: RoundMachine, folder: RunFolder, budget: RunBudget) -> None:
        self.machine, self.folder, self.budget = machine, folder, budget
        self.links = {neighbour.node: Link(neighbour) for neighbour in machine.agents.neighbours}
        self.saving: SaveCheckpoint | None = None
        self.failure: Exception | None = None
        self._recorded = machine.k  # rounds
        self._released = folder.memory.released
        self._broken = False  # what was to be done cannot be: nothing after it may be done either
        self._carry_out: dict[type, Callable[[Any], None]] = {
            JournalEntry: self._journal,
            Send: self._send,
            Record: self._record,
            SaveCheckpoint: self._begin_saving,
            Failed: self._fail,
            Finished: lambda effect: None,
        }

    def advance(self) -> None:
        """Let the machine go on and carry its effects out."""
        carry_out = self._carry_out
        try:
            for effect in self.machine.advance():
                carry_out[type(effect)](effect)
        except Exception as error:
            self.machine.outbox.sent = {}  # some of it may not be in the journal
            self.break_off(error)

    def _journal(self, effect: Any) -> None:
        self.folder.journal.append(effect.round, effect.phase, effect.digest)

    def _send(self, effect: Any) -> None:
        for node in effect.nodes:
            self.links[node].send(effect.round, effect.frame)

    def _record(self, effect: Any) -> None:
        for name, values in effect.rows.items():
            self.folder.records.append(name, values)
        self._recorded += 1

    def _begin_saving(self, effect: SaveCheckpoint) -> None:
        self.folder.records.push()
        self.saving = effect

    def _fail(self, effect: Failed) -> None:
        self.failure = effect.error

    def note_released(self, until: int) -> None:
        """Before `RoundMachine.release`: after a loss of power nobody could tell which of these rounds were begun."""
        rounds = min(until, self.machine.rounds)
        if rounds > self._released:
            self.folder.note_released(rounds)
            self._released = rounds

    @property
    def ready(self) -> bool:
        """Whether `advance` may have something to do."""
        return self.machine.ready and not self._broken

    def save(self) -> None:
        """Write the checkpoint that was begun. May run beside everything else, in a thread of its own."""
        assert self.saving is not None
        self.folder.save(self.saving)

    def saved(self) -> None:
        """It is durable."""
        assert self.saving is not None
        self.machine.saved(self.saving.k)
        self.saving = None

    def break_off(self, error: Exception) -> None:
        """Something outside has failed, without which the run cannot go on."""
        self._broken, self.failure, self.saving = True, error, None

    def open_stream(self, node: int, need: int) -> Outgoing:
        """A neighbour has connected that needs frames from round `need` on: those that it has missed come first."""
        return self.links[node].open(self._frames_since(node, need), need)

    def _frames_since(self, node: int, need: int) -> Iterator[bytes]:
        """Everything sent from round `need` until now, for a neighbour that has just connected."""
        machine, records = self.machine, self.folder.records
        shape = (len(machine.agents.hosting.owned), machine.agents.hosting.dimension)

        def recorded(k: int, phase: str) -> Array:
            return records.read(phase, k).reshape(shape)

        frame = machine.outbox.frame
        rounds = range(need, self._recorded)
        before = (frame(node, k, phase, recorded(k, phase)) for k in rounds for phase in machine.agents.phases)
        current = machine.outbox.sent.items() if need <= machine.k else ()
        return chain(before, [frame(node, machine.k, phase, rows) for phase, rows in current])

    def settle(self, ledgers: Ledgers) -> None:
        """Charged is what was sent; a kill before this leaves the charge for everything that was allowed."""
        self.budget.k = self.machine.rounds_begun
        ledgers.settle(self.budget)

    def end(self) -> None:
        """In order, once everything is saved: now it is known what has left."""
        self.folder.note_released(self.machine.rounds_begun)

    def close(self) -> None:
        self.folder.close()


def final_state(folder: Path) -> dict[str, Any]:
    """State arrays of a finished node, for whoever merges the folders."""
    checkpoint = Checkpoints(RealDisk(folder)).load()[0]
    return {**checkpoint.state, "k": np.array(checkpoint.k)}
