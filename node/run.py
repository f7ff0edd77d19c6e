"""One run at one node without asyncio: the round machine, its folder and its links. Carries effects out, in order.

The asyncio shell around it waits, reads and writes streams; the simulated cluster of the tests does so in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpp2.budget import RunBudget
from dpp2.node.disk import Disk, RealDisk
from dpp2.node.effects import Failed, Finished, JournalEntry, KeepHellos, NoteUncovered, Record, SaveCheckpoint, Send
from dpp2.node.errors import NodeFailed
from dpp2.node.files import Checkpoints
from dpp2.node.folder import Keeping, RunFolder
from dpp2.node.hosting import Hosting, Neighbour
from dpp2.node.limits import rounds_in_hand
from dpp2.node.machine import HostedRun, RoundMachine
from dpp2.node.queues import Link, Outgoing


class Ledgers(Protocol):
    """Where agents are charged: in full before the first message leaves, for what was sent when the run ends."""

    def has_seen(self, budget: RunBudget) -> bool: ...

    def reserve(self, budget: RunBudget) -> None: ...

    def settle(self, budget: RunBudget) -> None: ...


class Hostable(Protocol):
    """What can be run here, once the run's nonce is known; `RunSetup` is it."""

    @property
    def run_id(self) -> str: ...

    @property
    def hosting(self) -> Hosting: ...

    def agents(self, nonce: bytes) -> HostedRun: ...


def open_run(setup: Hostable, disk: Disk, ledgers: Ledgers, keeping: Keeping, *, seen: bool = False) -> NodeRun:
    """Go on where the node's own files left off, as far as its own budget goes.

    `seen`: the node remembers this run. A ledger is charged after the folder is durable, so what a ledger knows has a
    folder, unless it was lost.
    """
    with ExitStack() as opened:  # whatever goes wrong here, the folder is free again for the next call
        budget = RunBudget([setup.hosting.agents], setup.run_id)
        found = RunFolder(disk, setup.hosting, setup.run_id, keeping, lambda: seen or ledgers.has_seen(budget))
        folder = opened.enter_context(closing(found))
        budget.k = folder.memory.rounds_begun
        if folder.memory.uncovered is not None:
            budget.uncover(folder.memory.uncovered)
        ledgers.reserve(budget)  # before the first message leaves
        agents = setup.agents(folder.nonce)
        folder.keep_data(agents.data)
        machine = RoundMachine(
            agents,
            folder.memory,
            budget.allowance.rounds,
            every=keeping.every,
            telemetry=keeping.telemetry,
            only_covered=budget.stops_uncovered,
        )
        run = NodeRun(machine, folder, budget, ledgers)
        opened.pop_all()
    return run


class NodeRun:
    """`saving` is the checkpoint that was begun last, for whoever owns the disk's time; `failure` ends everything."""

    def __init__(self, machine: RoundMachine, folder: RunFolder, budget: RunBudget, ledgers: Ledgers) -> None:
        self.machine, self.folder, self.budget, self._ledgers = machine, folder, budget, ledgers
        self.links = {neighbour.node: self._link(neighbour) for neighbour in machine.agents.neighbours}
        self.saving: SaveCheckpoint | None = None
        self.failure: Exception | None = None
        self.on_failure: Callable[[], None] = lambda: None  # for whoever waits
        self._recorded = machine.k  # rounds
        self._released = folder.memory.released
        self._broken = False  # what was to be done cannot be: nothing after it may be done either
        self._carry_out: dict[type, Callable[[Any], None]] = {
            KeepHellos: lambda effect: self.folder.keep_hellos(effect.hellos),
            JournalEntry: self._journal,
            Send: self._send,
            Record: self._record,
            NoteUncovered: self._uncover,
            SaveCheckpoint: self._begin_saving,
            Failed: self._fail,
            Finished: lambda effect: None,
        }

    def advance(self) -> None:
        """Let the machine go on and carry its effects out. After something could not be done, nothing is."""
        if self._broken:
            return
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

    def _uncover(self, effect: NoteUncovered) -> None:
        """Folder and ledger know of it before the round leaves: a kill must not leave a finite ε behind."""
        self.folder.note_uncovered(effect.round)
        self.budget.uncover(effect.round)
        self._ledgers.reserve(self.budget)

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
        """It is durable. If the run has broken off meanwhile, nobody needs to know."""
        if self.saving is not None:
            self.machine.saved(self.saving.k)
            self.saving = None

    def break_off(self, error: Exception) -> None:
        """Something outside has failed, without which the run cannot go on."""
        self._broken, self.saving = True, None
        self.failure = self.failure or error  # the first says why
        self.on_failure()

    def _link(self, neighbour: Neighbour) -> Link:
        """With room for as many rounds as are read from this neighbour at a time."""
        form = self.machine.agents.hosting.form
        size = form.round_size(neighbour.ours)
        return Link(neighbour, len(form.phases), rounds_in_hand(size) * size)

    def open_stream(self, node: int, need: int) -> Outgoing:
        """A neighbour has connected that needs frames from round `need` on: those that it has missed come first."""
        return self.links[node].open(partial(self._frames_since, node), need)

    def _frames_since(self, node: int, first: int) -> Iterator[bytes]:
        """Everything sent from phase `first` until now, counted through all rounds, for a neighbour that lacks it."""
        machine, frame, phases = self.machine, self.machine.outbox.frame, len(self.machine.agents.phases)
        current = islice(machine.outbox.sent.items(), max(0, first - phases * machine.k), None)
        now = [frame(node, machine.k, phase, rows) for phase, rows in current]
        return chain(self._recorded_frames(node, range(first, phases * self._recorded)), now)

    def _recorded_frames(self, node: int, counted: range) -> Iterator[bytes]:
        """Phases are counted through all rounds, and read when they are asked for. A damaged one ends the run."""
        machine, hosting = self.machine, self.machine.agents.hosting
        phases = machine.agents.phases
        for k, phase in (divmod(n, len(phases)) for n in counted):
            try:
                rows = self.folder.records.read(phases[phase], k)
            except NodeFailed as error:
                self.break_off(error)
                raise
            yield machine.outbox.frame(node, k, phases[phase], rows.reshape(len(hosting.owned), hosting.dimension))

    def settle(self, ledgers: Ledgers) -> None:
        """Charged is what was sent; a kill before this leaves the charge for everything that was allowed."""
        self.budget.k = self.machine.rounds_begun
        ledgers.settle(self.budget)

    def end(self) -> None:
        """In order, once everything is saved: now it is known what has left."""
        self.folder.note_end(self.machine.rounds_begun)

    def close(self) -> None:
        self.folder.close()

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Whatever goes wrong meanwhile, the folder is free again for the next call."""
        try:
            yield
        except BaseException:
            self.close()
            raise


def final_state(folder: Path) -> dict[str, Any]:
    """State arrays of a finished node, for whoever merges the folders."""
    checkpoints = Checkpoints(RealDisk(folder))
    usable = checkpoints.load()
    if not usable:
        raise NodeFailed("; ".join(checkpoints.complaints) or "there is no checkpoint")
    checkpoint = usable[0]
    return {**checkpoint.state, "k": np.array(checkpoint.k)}
