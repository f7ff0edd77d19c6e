"""One run's folder at one node: opened, restored from, written to in the one order that survives a crash."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing

from dpp2.privacy import MOST_ROUNDS
from node.disk import Disk
from node.effects import SaveCheckpoint
from node.errors import NodeFailed
from node.files import Checkpoint, Checkpoints, Journal, RecordFiles
from node.hosting import record_widths
from node.machine import HostedRun, Memory

_FACTS = "node.json"


class RunFolder:
    """Opening it restores: `memory` is what the node goes on with, `complaints` what is wrong with its checkpoints."""

    def __init__(self, disk: Disk, agents: HostedRun, *, telemetry: bool) -> None:
        self._disk = disk
        self._facts = {"agents": agents.hosting.owned, "run": agents.run_id, "digest": agents.digest}
        self._checkpoints = Checkpoints(disk)
        with ExitStack() as opened:
            # The journal first: it tells whether another node is at work in this folder.
            self.journal = opened.enter_context(closing(Journal(disk, len(agents.phases))))
            widths = record_widths(agents.hosting, telemetry)
            self.records = opened.enter_context(closing(RecordFiles(disk, widths)))
            usable = [found for found in self._checkpoints.load() if found.facts["run"] == agents.run_id]
            self.memory = Memory(usable[0] if usable else None, self.journal.known, self._released())
            self.records.cut(usable[0].k if usable else 0)
            self.note_released(self.memory.released)
            self._opened = opened.pop_all()

    @property
    def complaints(self) -> list[str]:
        return self._checkpoints.complaints

    def _released(self) -> int:
        """How much credit there has been; a file of another version says nothing of it."""
        content = self._disk.read(_FACTS)
        try:
            facts = {} if content is None else json.loads(content)
            released = facts.get("released", 0)
        except (ValueError, AttributeError):
            released = None
        if not isinstance(released, int) or not 0 <= released <= MOST_ROUNDS:
            raise NodeFailed(f"{self._disk.path(_FACTS)} is damaged: this node cannot go on")
        return released

    def note_released(self, rounds: int) -> None:
        """That many rounds may be begun, or have been when the node ends in order. Durable before anything is sent."""
        self._disk.replace(_FACTS, json.dumps(self._facts | {"released": rounds}).encode())
        self._disk.sync_names()

    def save(self, effect: SaveCheckpoint) -> None:
        """Takes as long as the disk does. The records first: a checkpoint speaks of records that are there."""
        self.records.sync()
        named = {name: self._facts[name] for name in ("run", "digest")}
        facts = {"round": effect.k, **named, "saved": effect.saved}
        self._checkpoints.save(Checkpoint(effect.state, facts))

    def close(self) -> None:
        self._opened.close()
