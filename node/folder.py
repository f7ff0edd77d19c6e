"""One run's folder at one node: opened, restored from, written to in the one order that survives a crash.

There are three ways to tell that the journal says everything: the node has ended in order and noted how many entries
there are; or the machine has not been started anew since, and mapped memory outlives a process; or every round that
was released since the checkpoint has its entries. Otherwise power was lost, and entries perhaps with it. How many
entries there are is noted with every release and every checkpoint: a journal with fewer has lost some, whatever else is
true. One that is cut later than at the last note, by other hands than ours, is not noticed. To run such
rounds again could send a second noisy copy of one value to a neighbour that lies about its own rows: the node stops,
unless it is told to trust the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeGuard

from dpp2.edge_keys import Hello
from dpp2.keys import fresh_key
from dpp2.node.disk import Disk
from dpp2.node.effects import SaveCheckpoint
from dpp2.node.errors import NodeFailed
from dpp2.node.files import Checkpoint, Checkpoints, RecordFiles
from dpp2.node.hellos import hellos_document, hellos_of
from dpp2.node.hosting import Hosting, record_widths
from dpp2.node.journal import Journal
from dpp2.node.machine import Memory
from dpp2.node.sealed import read_facts, write_facts
from dpp2.privacy import MOST_ROUNDS

_FACTS = "node.json"  # how far the node may have come
_ONCE = "run.json"  # what holds for the whole run, settled before anything is sent


@dataclass(frozen=True)
class Keeping:
    """What a node writes down, and what it believes of that."""

    every: int  # rounds between checkpoints
    telemetry: bool  # whether x, gradients and noise are written down, too
    trust_journal: bool = False  # also after a loss of power: its neighbours are honest


class RunFolder:
    """Opening it restores: `memory` is what the node goes on with, `nonce` what makes the run's keys its own.

    `complaints` has what is wrong and can be lived with. `seen` tells whether this run has begun here before, according
    to others than this folder.
    """

    def __init__(
        self, disk: Disk, hosting: Hosting, run_id: str, keeping: Keeping, seen: Callable[[], bool] = lambda: False
    ) -> None:
        self._disk, self._noting = disk, Lock()
        self._facts = {"agents": hosting.owned, "run": run_id, "digest": hosting.experiment.digest}
        self._checkpoints, phases = Checkpoints(disk), len(hosting.experiment.algorithm.phases)
        with ExitStack() as opened:
            # The journal first: it tells whether another node is at work in this folder.
            journal = Journal(disk, phases, trust=keeping.trust_journal)
            self.journal = opened.enter_context(closing(journal))
            widths = record_widths(hosting, keeping.telemetry)
            self.records = opened.enter_context(closing(RecordFiles(disk, widths)))
            usable = [found for found in self._checkpoints.load() if found.facts["run"] == run_id]
            self.complaints = [*self._checkpoints.complaints]
            self.memory = self._restore(usable[0] if usable else None, phases, trust=keeping.trust_journal)
            self.journal.begin()
            self._check_remembered(isinstance(hosting.experiment.run.seed, int), seen)
            self.note_released(self.memory.released)  # before the nonce: a nonce without this has lost it
            self._once = self._drawn_once(isinstance(hosting.experiment.run.seed, int))
            self.nonce = bytes.fromhex(self._once["nonce"])
            self.memory = replace(self.memory, hellos=hellos_of(self._once.get("hellos")))
            self.records.cut(usable[0].k if usable else 0)
            self._opened = opened.pop_all()

    # -- what is found -----------------------------------------------------------------------------------------

    _noted: dict[str, Any]  # what changes of the facts, as it is on disk

    def _restore(self, checkpoint: Checkpoint | None, phases: int, *, trust: bool) -> Memory:
        facts, known = read_facts(self._disk, _FACTS), self.journal.known
        if facts is None and (known or checkpoint is not None):
            raise NodeFailed(f"{self._disk.path(_FACTS)} is missing: {_CANNOT_TELL}; {_ANOTHER_ID}")
        released = 0 if facts is None else facts.get("released")
        if not _counts_rounds(released):
            raise NodeFailed(f"{self._disk.path(_FACTS)} is damaged: this node cannot go on")
        rounds = range(checkpoint.k if checkpoint else 0, released)
        silent = next((k for k in rounds if any((k, n) not in known for n in range(1, phases + 1))), None)
        if (silent is not None or self._is_short(facts)) and not self._is_complete(facts):
            lost = "power was lost, or the journal was"
            which = "earlier rounds" if silent is None else f"rounds {silent} to {released - 1}"
            what = f"{self.journal.path} may lack what was sent in {which}, since {lost}"
            if not trust:
                raise NodeFailed(f"{what}: {_CANNOT_TELL}; {_WAYS_OUT}")
            self.complaints.append(f"{what}; it is trusted, as --trust-journal says")
        uncovered = None if facts is None else facts.get("uncovered")
        if not (uncovered is None or _counts_rounds(uncovered)):
            raise NodeFailed(f"{self._disk.path(_FACTS)} is damaged: this node cannot go on")
        self._noted = {"released": released, "uncovered": uncovered}
        return Memory(checkpoint, known, released, uncovered)

    def _is_complete(self, facts: dict[str, Any] | None) -> bool:
        """Whether everything that has left has its entry in the journal."""
        if facts is None:
            return True
        if self._is_short(facts):
            return False
        if facts.get("ended") is not None:
            return bool(facts["ended"] == self.journal.entries)
        boot = self._disk.boot()
        return bool(boot) and boot == facts.get("boot") and not self.journal.fresh

    def _is_short(self, facts: dict[str, Any] | None) -> bool:
        """Whether the journal has had more entries than it has."""
        noted = 0 if facts is None else facts.get("entries", 0)
        return not isinstance(noted, int) or self.journal.entries < noted

    def _check_remembered(self, seeded: bool, seen: Callable[[], bool]) -> None:
        """A nonce without facts has lost them, and so has a run that others remember. A seeded one may be run again."""
        once, facts = (self._disk.read(name) is not None for name in (_ONCE, _FACTS))
        lost = not facts and (once or (not seeded and seen()))
        for name, gone in ((_ONCE, not once and self.memory.rounds_begun > 0), (_FACTS, lost)):
            if gone:
                path = self._disk.path(name)
                raise NodeFailed(f"this run has begun here before, and {path} is gone: {_CANNOT_TELL}; {_ANOTHER_ID}")

    def _drawn_once(self, seeded: bool) -> dict[str, Any]:
        """The run's nonce, drawn and durable before anything is sent, and beside it the hellos that the run rests on.

        A run with a public seed has no nonce: all follows from the seed. Own hellos follow from the nonce.
        """
        once = read_facts(self._disk, _ONCE)
        if once is not None:
            return once
        nonce = b"" if seeded else fresh_key()
        once = {"run": self._facts["run"], "nonce": nonce.hex()}
        write_facts(self._disk, _ONCE, once)
        return once

    # -- what is written ---------------------------------------------------------------------------------------

    def keep_hellos(self, hellos: Mapping[int, Hello]) -> None:
        """The first round rests on them. Durable before anything of it is sent."""
        self._once = self._once | {"hellos": hellos_document(hellos)}
        write_facts(self._disk, _ONCE, self._once)

    def keep_data(self, data: str) -> None:
        """A run goes on with the data that it began with: keys rest on them. Durable before anything is sent.

        `data` stands for them; it is empty where the experiment draws them.
        """
        known = self._once.get("data")
        if known not in (None, data):
            path = self._disk.path(_ONCE)
            raise NodeFailed(f"{path} knows of other data than those that are here now: {_ANOTHER_ID}")
        if data and known is None:
            self._once = self._once | {"data": data}
            write_facts(self._disk, _ONCE, self._once)

    def note_released(self, rounds: int) -> None:
        """That many rounds may be begun. Durable before anything is sent."""
        self._note(released=rounds)

    def note_uncovered(self, k: int) -> None:
        """Float64 does not carry the noise of round k. Durable before anything of it is sent."""
        self._note(uncovered=k)

    def note_end(self, rounds: int) -> None:
        """In order, after so many rounds were begun: the journal is durable, and nothing will be added."""
        self.journal.sync()
        self._note(released=rounds, ended=self.journal.entries)

    def _note(self, **news: int) -> None:
        """Checkpoints and releases are noted in threads of their own: none may take back what another has noted."""
        with self._noting:
            self._noted |= {"ended": None, **news, "boot": self._disk.boot(), "entries": self.journal.entries}
            write_facts(self._disk, _FACTS, self._facts | self._noted)

    def save(self, effect: SaveCheckpoint) -> None:
        """Takes as long as the disk does. What a checkpoint speaks of comes first: records, and what has left."""
        self.journal.sync()
        self.records.sync()
        self._note()
        named = {name: self._facts[name] for name in ("run", "digest")}
        facts = {"round": effect.k, **named, "saved": effect.saved}
        self._checkpoints.save(Checkpoint(effect.state, facts))

    def close(self) -> None:
        self._opened.close()


def may_have_sent(disk: Disk) -> bool:
    """Whether rounds were released in a run's folder, as far as it tells."""
    try:
        facts = read_facts(disk, _FACTS)
    except NodeFailed:  # damaged: there was something
        return True
    return facts is not None and facts.get("released") != 0


def _counts_rounds(noted: Any) -> TypeGuard[int]:
    return isinstance(noted, int) and 0 <= noted <= MOST_ROUNDS


_CANNOT_TELL = "nobody can tell what this node has sent, and a second noisy copy of one value would leak it"
_ANOTHER_ID = "run under another id"
_WAYS_OUT = f"{_ANOTHER_ID}, or say --trust-journal if its neighbours are honest"
