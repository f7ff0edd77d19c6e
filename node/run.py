"""One run at one node: rounds, what is kept for a peer that must catch up, checkpoints. asyncio only to wait.

Crash safety in three rules. A frame's digest is journalled before it leaves, so a replay cannot send other bytes.
Records are on disk before the checkpoint that speaks of them. What was sent is on record, too, so a neighbour that
comes back gets everything it lacks from there, and neighbours that die together can still catch up with each other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dpp2.algorithms.base import Private
from dpp2.arrays import Array
from dpp2.keys import derive
from node.codec import encode, finite, payload
from node.errors import Diverged
from node.files import Checkpoints, Journal, RecordFiles
from node.fingerprints import fingerprinting
from node.hosting import Hosting, Neighbour, private_records, record_widths, state_arrays
from node.inbox import Inbox, Lane
from node.keyring import Keyring
from node.limits import ROUNDS_IN_HAND
from node.links import Link


class NodeRun:
    """The agents of one node in one run. `rounds` is how many it may have, which is known once it is allowed some."""

    def __init__(
        self,
        hosting: Hosting,
        neighbours: Sequence[Neighbour],
        keyring: Keyring,
        run_id: str,
        folder: Path,
        *,
        every: int,
        telemetry: bool,
    ) -> None:
        self.hosting, self.neighbours, self.run_id, self.every = hosting, neighbours, run_id, every
        self.rounds, self._telemetry = 0, telemetry
        self.finished = False  # and durable
        self.phases = hosting.experiment.algorithm.phases
        self.program = hosting.program(keyring, run_id)
        self.mixer = hosting.mixer(neighbours)
        self.links = {neighbour.node: Link(neighbour) for neighbour in neighbours}
        self._alike: dict[tuple[int, ...], list[Link]] = {}  # neighbours that get the same rows share one frame
        for link in self.links.values():
            self._alike.setdefault(link.neighbour.ours, []).append(link)
        self._fingerprint = fingerprinting(derive(keyring.agents[hosting.owned[0]], "seal", run_id))
        senders = {neighbour.node: neighbour.theirs for neighbour in neighbours}
        # After a restart from the older checkpoint a neighbour may be two checkpoints ahead, and one round on top.
        self.inbox = Inbox(
            run_id, self.phases, senders, hosting.dimension, ahead=2 * every + 2, fingerprint=self._fingerprint
        )
        self.sent: dict[str, Array] = {}  # in the round in the middle of which we are
        self.saved = [0, 0]  # rounds of the last two checkpoints
        self._newest: int | None = None  # the round of the newest, if there is one
        self._saving: asyncio.Task[None] | None = None
        self.k, self.state = 0, hosting.start(self.program, keyring, run_id)
        self.until = 0  # the orchestrator's credit
        self.frames = self.bytes = 0
        self._used = asyncio.Event()  # a round is over
        self._changed = asyncio.Event()
        self._arrival: asyncio.Future[None] | None = None  # somebody waits for a phase to be complete
        self._idle = asyncio.Event()
        self.checkpoints = Checkpoints(folder)
        with ExitStack() as opened:
            # The journal first: it tells whether another node is at work in this folder.
            self.journal = opened.enter_context(closing(Journal(folder / "journal.bin", self.phases)))
            widths = record_widths(hosting, telemetry)
            self.records = opened.enter_context(closing(RecordFiles(folder / "records", widths)))
            self.complaints = self._restore()
            facts = {"agents": hosting.owned, "run": run_id, "digest": hosting.experiment.digest}
            (folder / "node.json").write_text(json.dumps(facts))
            self._opened = opened.pop_all()

    @property
    def durable(self) -> int:
        """Rounds before this one we shall never need again, even if the newer checkpoint turns out damaged."""
        return self.saved[0]

    @property
    def begun(self) -> int:
        """Rounds of which anything has ever left, before a crash as well, or a loss of power that took the journal."""
        return max(self.journal.rounds, self.k)

    def waiting_for(self) -> list[int]:
        """Agents whose rows the current round lacks."""
        missing = (self.inbox.missing(self.k, phase) for phase in self.sent)
        return sorted(set().union(*missing)) if not self.finished else []

    # -- rounds ------------------------------------------------------------------------------------------------

    async def go(self) -> None:
        """Run every round that is released, until the last one."""
        while True:
            while self.k < self.until:
                await self._round(self.k)
                if self.k % self.every == 0:
                    await self.checkpoint()
                if self.k % 8 == 0:  # a node whose frames are always there already must let others speak
                    await asyncio.sleep(0)
            if self.k >= self.rounds:
                break
            self._changed.clear()
            self._idle.set()
            await self._changed.wait()
        await self.checkpoint()
        await self.saved_so_far()
        self.finished = True
        self._idle.set()

    def release(self, until: int, *, last: bool = False) -> None:
        """Credit: rounds before `until` may be run, and no more after them if they are the last."""
        if last:
            self.rounds = min(self.rounds, max(until, self.k))
        self.until = max(self.until, min(until, self.rounds))
        self._changed.set()
        self._idle.clear()

    async def exhausted(self) -> None:
        """Until the credit is used up, the run has ended or cannot go on."""
        await self._idle.wait()
        self._idle.clear()

    def give_up(self) -> None:
        self._idle.set()

    async def _round(self, k: int) -> None:
        x = self.state.x
        inputs: list[bytes] = []
        generator = self.program.round(self.state, k)
        message = next(generator)
        while True:
            content = payload(message.rows)
            if not finite(content):
                raise Diverged(f"the run diverged: round {k} has left the range of floating point")
            self.journal.check(k, message.phase, inputs, self._fingerprint(content))
            self._send(k, message.phase, message.rows)
            received, inputs = await self._received(k, message.phase)
            try:
                message = generator.send(self.mixer.mix(message.rows, received))
            except StopIteration as done:
                self.state, private = done.value
                break
        self._record(x, private)
        self.sent, self.k = {}, k + 1
        self.inbox.advance(self.k)
        self._used.set()

    async def _received(self, k: int, phase: str) -> tuple[list[bytes], list[bytes]]:
        """What all neighbours sent, and their fingerprints."""
        while not self.inbox.complete(k, phase):
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self.inbox.pop(k, phase)

    def take(self, frame: bytes, lane: Lane) -> bool:
        """What a neighbour sent; a fault leaves everything as it was. False if there is enough in hand of this one."""
        if self.inbox.take(frame, lane) and self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        return not self.inbox.has(lane, ROUNDS_IN_HAND)

    async def room(self, lane: Lane) -> None:
        """Until some of what this neighbour sent has been used."""
        while self.inbox.has(lane, ROUNDS_IN_HAND):
            self._used.clear()
            await self._used.wait()

    def _send(self, k: int, phase: str, rows: Array) -> None:
        self.sent[phase] = rows
        for ours, links in self._alike.items():
            frame = self._frame(ours, k, phase, rows)
            for link in links:
                link.send(k, frame)
            self.frames += len(links)
            self.bytes += len(links) * len(frame)

    def _frame(self, ours: tuple[int, ...], k: int, phase: str, rows: Array) -> bytes:
        return encode(self.run_id, k, phase, ours, self.hosting.rows_of(ours, rows))

    def frames_since(self, neighbour: Neighbour, need: int) -> Iterator[bytes]:
        """Everything sent from round `need` until now, for a neighbour that has just connected."""
        shape = (len(self.hosting.owned), self.hosting.dimension)
        before = (
            self._frame(neighbour.ours, k, phase, self.records.read(phase, k).reshape(shape))
            for k in range(need, self.k)
            for phase in self.phases
        )
        current = self.sent.items() if need <= self.k else ()
        return chain(before, [self._frame(neighbour.ours, self.k, phase, rows) for phase, rows in current])

    # -- files -------------------------------------------------------------------------------------------------

    def _record(self, x: Array, private: Private) -> None:
        for name, values in self.sent.items():
            self.records.append(name, values)
        if self._telemetry:
            for name, values in private_records(x, private).items():
                self.records.append(name, values)

    async def checkpoint(self) -> None:
        """Begin a checkpoint at round k, if there is none yet; the disk takes its time while rounds go on.

        Nothing counts as durable before it is. The one before must be complete: there are two files, not more.
        """
        await self.saved_so_far()
        if self._newest != self.k:
            facts = {"round": self.k, "run": self.run_id, "digest": self.hosting.experiment.digest}
            facts |= {"saved": self.saved[1]}
            self._saving = asyncio.create_task(self._save(self.k, state_arrays(self.state), facts))

    async def saved_so_far(self) -> None:
        """Until the checkpoint that was begun last is on disk; it is not cancelled with whoever waits for it."""
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def _save(self, k: int, arrays: dict[str, Array], facts: dict[str, Any]) -> None:
        self.records.push()
        await asyncio.to_thread(self._write, arrays, facts)
        self.saved, self._newest = [self.saved[1], k], k
        self.inbox.forget(self.durable)
        self.journal.forget(self.durable)

    def _write(self, arrays: dict[str, Array], facts: dict[str, Any]) -> None:
        self.records.sync()  # first: a checkpoint speaks of records that are there
        self.checkpoints.save(arrays, facts)

    def _restore(self) -> list[str]:
        """Go on from the newest usable checkpoint of this run; returns what is wrong with others."""
        found, complaints = self.checkpoints.load()
        usable = [pair for pair in found if pair[1]["run"] == self.run_id]
        if usable:
            arrays, facts = usable[0]
            self.k, self.saved = int(facts["round"]), [int(facts["saved"]), int(facts["round"])]
            self._newest = self.k
            self.state = type(self.state)(**arrays)
            self.inbox.advance(self.k)
            self.inbox.forget(self.durable)
        self.records.cut(self.k)
        return complaints

    async def end(self) -> None:
        """Orderly: what has been run is durable."""
        try:
            await self.checkpoint()
            await self.saved_so_far()
        finally:
            self.close()

    def close(self) -> None:
        self._opened.close()


def final_state(folder: Path) -> dict[str, Any]:
    """State arrays of a finished node, for whoever merges the folders."""
    found, _ = Checkpoints(folder).load()
    arrays, facts = found[0]
    return {**arrays, "k": np.array(int(facts["round"]))}
