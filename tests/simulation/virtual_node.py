"""One node of a simulated cluster: the real run on a virtual disk, with lives that end and begin again."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import replace
from typing import Any, cast

from dpp2.algorithms.base import Broadcast, Private, Program, Round
from dpp2.node.errors import NodeFailed, PeerFault
from dpp2.node.files import read_records
from dpp2.node.folder import Keeping
from dpp2.node.hellos import hellos_of
from dpp2.node.inbox import Lane
from dpp2.node.machine import HostedRun
from dpp2.node.run import NodeRun, open_run
from dpp2.node.sealed import read_facts
from dpp2.node.v1 import wire_pb2
from tests.simulation.damage import damage, damageable, falls_back_to, older_is_whole
from tests.simulation.reference import Reference
from tests.simulation.virtual_disk import VirtualDisk
from tests.simulation.virtual_ledger import VirtualLedger


class Wrong(AssertionError):
    """Something that must never happen has happened."""


class _Changed:
    """A round program that computes something else."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def round(self, state: Any, k: int) -> Round:
        honest = self._program.round(state, k)
        message = next(honest)
        while True:
            mixed = yield Broadcast(message.phase, message.rows + 1.0)
            try:
                message = honest.send(mixed)
            except StopIteration as done:
                value: tuple[Any, Private] = done.value
                return value


class _Setup:
    """Agents that are ready: their keys come from a seed, which their node does not know of. It draws a nonce."""

    def __init__(self, agents: HostedRun, check: Callable[[bytes], None] = lambda nonce: None) -> None:
        experiment = agents.hosting.experiment
        self.run_id, self.hosting = agents.run_id, copy(agents.hosting)
        self.hosting.experiment = replace(experiment, run=experiment.run.updated(seed="os"))
        self._agents, self._check = agents, check

    def agents(self, nonce: bytes) -> HostedRun:
        self._check(nonce)
        return self._agents


class VirtualNode:
    """`run` is what a process has in memory once it is prepared; without a process `up` is False."""

    def __init__(self, name: int, reference: Reference, keeping: Keeping, rng: random.Random) -> None:
        self.name, self._reference, self._keeping = name, reference, keeping
        self.disk, self.ledger = VirtualDisk(rng), VirtualLedger()
        self.up, self.life, self.settled = True, 0, False
        self.run: NodeRun | None = None
        self._rng = rng
        self._taken: dict[int, list[bytes]] = {}  # by sender, in this life
        self._released = 0  # rounds, as credit, ever
        self._begun = 0  # rounds of which anything was ever handed over to be sent
        self._orderly = True  # no life has ended otherwise
        self.sent = 0  # rounds of which anything has ever left
        self._journalled: set[int] = set()  # rounds begun, but for those of which the operator has said: never mind
        self._in_the_dark = False  # power was lost since it was prepared last
        self._ended = False  # the last life did, in order
        self._nonce = b""
        self._greeted = False  # has said hello to anybody, ever
        self.with_power = False  # a death in the middle of something takes the power, too

    def __str__(self) -> str:
        at = "" if self.run is None else f"@{self.run.machine.k}"
        return f"{self.name}{at}"

    @property
    def prepared(self) -> NodeRun:
        assert self.run is not None
        return self.run

    def prepare(self) -> None:
        """As a call of the orchestrator does; the first one in a life opens the run."""
        if self.run is None:
            try:
                self.run = self._opened()
            except OSError as error:
                self._expect_full(error)
                return
            self._in_the_dark = False
            self.check_ledger()

    def _opened(self) -> NodeRun:
        """If need be, the operator says that the neighbours are honest, as they are."""
        setup = _Setup(self._reference.hosted[self.name], self._check_nonce)
        try:
            return open_run(setup, self.disk, self.ledger, self._keeping)
        except NodeFailed as refusal:
            self._expect_refusal(refusal)
        with suppress(NodeFailed):
            open_run(setup, self.disk, self.ledger, self._keeping)
            raise Wrong(f"node {self.name} refuses to go on, and does when it is asked again")
        run = open_run(setup, self.disk, self.ledger, replace(self._keeping, trust_journal=True))
        self._journalled = {k for k in self._journalled if k < run.machine.k}
        return run

    def _expect_refusal(self, refusal: NodeFailed) -> None:
        if not self._in_the_dark or "--trust-journal" not in str(refusal):
            raise Wrong(f"node {self.name} cannot go on: {refusal}") from refusal

    def _expect_full(self, error: OSError) -> None:
        if error.errno != errno.ENOSPC or not self.disk.was_full:
            raise Wrong(f"node {self.name} has failed: {error!r}") from error

    def said_hello_to(self, peer: int) -> bytes:
        """How it begins a stream."""
        hellos = self.prepared.machine.hellos
        self._greeted = self._greeted or hellos.exchanged
        return hellos.to(peer) if hellos.exchanged else b""

    def meet_a_stranger(self, peer: int) -> PeerFault:
        """A neighbour whose hello the run rests on says another one, as if it had lost its files."""
        frame = wire_pb2.Frame.FromString(self._reference.hellos[peer, self.name])
        frame.hellos[-1].nonce = bytes(32)
        try:
            self.prepared.machine.meet(peer, frame.SerializeToString())
        except PeerFault as fault:
            if fault.kind == "other hello":
                return fault
            raise Wrong(f"node {self.name} does not see that node {peer} is another one: {fault}") from fault
        raise Wrong(f"node {self.name} does not see that node {peer} is another one")

    def _check_nonce(self, nonce: bytes) -> None:
        """Once anything has left, noise is drawn with the same nonce for ever."""
        if len(nonce) != 32 or ((self.sent or self._greeted) and nonce != self._nonce):
            raise Wrong(f"node {self.name} draws other noise than before")
        self._nonce = nonce

    def advance(self) -> None:
        run, before = self.prepared, self.prepared.machine.k
        run.advance()
        self._check_failure()
        if self.broken:
            return
        begun = run.machine.k + bool(run.machine.outbox.sent)
        self._begun = max(self._begun, begun)
        self._journalled.update(range(before, begun))
        if run.machine.finished and not self.settled:
            run.settle(self.ledger)
            self.settled = True
            self._check_settled(run)
            self._check_state(self.disk.durable())

    def save(self) -> None:
        """The disk has taken its time."""
        was_whole = older_is_whole(self.disk)
        self._save(self.prepared)
        self._check_failure()
        if was_whole and not older_is_whole(self.disk):
            raise Wrong(f"node {self.name} has kept a damaged checkpoint rather than the whole one before it")

    def _save(self, run: NodeRun) -> None:
        try:
            run.save()
            run.saved()
        except OSError as error:
            run.break_off(error)

    @property
    def broken(self) -> bool:
        """The run has failed, and the process is about to end."""
        return self.run is not None and self.run.failure is not None

    def release(self, until: int, *, last: bool) -> None:
        self._released = max(self._released, until)
        try:
            self.prepared.note_released(until)
        except OSError as error:
            self.prepared.break_off(error)
        self._check_failure()
        self.prepared.machine.release(until, last=last)

    def take(self, frame: bytes, lane: Lane, sender: int) -> None:
        if frame not in self._reference.frames[sender, self.name]:
            raise Wrong(f"node {self.name} was sent rows by node {sender} that are not the run's")
        self.prepared.machine.take(frame, lane)
        self._taken.setdefault(sender, []).append(frame)

    def comparable(self, sender: int) -> list[bytes]:
        """Frames taken in this life, of rounds that may have to be run again: other bytes in their place are seen."""
        rounds, altered = self._reference.frames[sender, self.name], self._reference.altered[sender, self.name]
        since = falls_back_to(self.disk)
        return [frame for frame in self._taken.get(sender, ()) if rounds[frame] >= since and frame in altered]

    def take_altered(self, frame: bytes, lane: Lane, sender: int) -> PeerFault:
        """In the place of a frame that was taken before comes another one."""
        try:
            self.prepared.machine.take(self._reference.altered[sender, self.name][frame], lane)
        except PeerFault as fault:
            if fault.kind == "other bytes":
                return fault
            raise Wrong(f"node {self.name} does not see that node {sender} changes its rows: {fault}") from fault
        raise Wrong(f"node {self.name} does not see that node {sender} changes its rows")

    def left(self, frames: list[bytes], receiver: int) -> None:
        """These frames are on their way."""
        rounds = self._reference.frames[self.name, receiver]
        if not self.sent and self.prepared.machine.hellos.exchanged:
            self._check_hellos()
        for frame in frames:
            if frame not in rounds or rounds[frame] >= self._reference.rounds:
                raise Wrong(f"node {self.name} sends node {receiver} rows that are not the run's")
            self.sent = max(self.sent, rounds[frame] + 1)
        self.check_ledger()

    def _check_hellos(self) -> None:
        """The first frame leaves: what it rests on outlives a loss of power."""
        once = read_facts(self.disk.durable(), "run.json")
        if hellos_of((once or {}).get("hellos")) != self.prepared.machine.hellos.met:
            raise Wrong(f"node {self.name} sends rows that rest on hellos which are not on disk")

    def check_ledger(self) -> None:
        """Of every agent for which an account is kept."""
        charged = self.ledger.charged(self._reference.run_id)
        kept = len(self.prepared.budget.account.mechanisms) if self.sent else 0
        if len(charged) < kept or any(rounds < self.sent for rounds in charged):
            raise Wrong(f"node {self.name} has sent {self.sent} rounds and is charged for fewer")

    def _check_settled(self, run: NodeRun) -> None:
        """Charged is exactly what was begun, never more than was released, and without crashes no round more."""
        self.check_ledger()
        begun = run.machine.rounds_begun
        if any(rounds != begun for rounds in self.ledger.charged(self._reference.run_id)):
            raise Wrong(f"node {self.name} has begun {begun} rounds and is not charged for exactly these")
        if begun > self._released:
            raise Wrong(f"node {self.name} is charged for {begun} rounds, and {self._released} were released")
        if self._orderly and begun != self._begun:
            raise Wrong(f"node {self.name} is charged for {begun} rounds, and was seen to begin {self._begun}")

    def _check_failure(self) -> None:
        """A full disk is nothing that a node could do anything about; nothing else may happen to it."""
        if (failure := self.prepared.failure) is not None:
            if not isinstance(failure, OSError):
                raise Wrong(f"node {self.name} has failed: {failure!r}") from failure
            self._expect_full(failure)
            self._orderly = False

    # -- ends of a life ----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Told to stop: what has been run is durable, and what was sent is settled."""
        if (run := self.run) is not None:
            run.machine.stop()
            while run.ready or run.saving is not None:
                run.advance()
                self._check_failure()
                if run.saving is not None:
                    self._save(run)
            ended = False
            with suppress(OSError) if self.disk.was_full else nullcontext():
                run.end()
                ended = self._ended = True
            run.close()
            run.settle(self.ledger)
            self._check_settled(run)
            self._orderly &= ended  # what a full disk did not take counts as begun: too much, never too little
        self._gone(self.disk.kill)

    def kill(self) -> None:
        self._orderly = False
        self._gone(self.disk.kill)

    def lose_power(self) -> None:
        """While it is down, nothing that matters is lost: it has ended in order, or is in the dark already."""
        if self.up:
            self._in_the_dark, self._orderly = True, False
        elif not self._ended:
            self._in_the_dark = True
        self._gone(self.disk.lose_power)

    @property
    def damageable(self) -> bool:
        return damageable(self.disk)

    def damage(self) -> None:
        """While it is down, a byte of its checkpoints changes. It must go on."""
        damage(self.disk, self._rng)

    def come_back_changed(self) -> None:
        """Gone, and started with other data: it must find out before it sends a round again, and differently."""
        (self.lose_power if self._rng.random() < 0.5 else self.kill)()
        if self._rng.random() < 0.3 and self.damageable:
            self.damage()
        self.start()
        agents = self._reference.hosted[self.name]
        other = replace(agents, program=lambda met: cast(Program, _Changed(agents.program(met))))
        try:
            run = open_run(_Setup(other, self._check_nonce), self.disk, self.ledger, self._keeping)
        except NodeFailed as refusal:
            self._expect_refusal(refusal)
            self.kill()
            return
        if run.machine.k in self._journalled:
            run.machine.release(run.machine.k + 1)
            run.advance()
            if run.machine.outbox.frames or not isinstance(run.failure, NodeFailed):
                raise Wrong(f"node {self.name} sends other rows for round {run.machine.k} than before")
        self.kill()

    def _gone(self, disk: Callable[[], Any]) -> None:
        disk()
        self.up, self.run, self.settled = False, None, False
        self._taken = {}

    def start(self) -> None:
        self.up, self.life, self._ended = True, self.life + 1, False

    # -- the end -----------------------------------------------------------------------------------------------

    def check_result(self) -> None:
        """On disk is what the embedded run computes, and charged is what was sent."""
        reference = self._reference
        self.disk.fuse = None
        self.disk.free()
        self.stop()
        self._check_state(self.disk)
        for name in reference.records:
            expected = reference.records_of(self.name, name)
            numbers = len(expected) // 8 // reference.rounds
            if read_records(self.disk, name, range(reference.rounds), numbers).tobytes() != expected:
                raise Wrong(f"node {self.name} has other records of {name} than the embedded run")
        charged = self.ledger.charged(reference.run_id)
        if any(rounds != reference.rounds for rounds in charged):
            raise Wrong(f"node {self.name} is charged for {charged} rounds and not for {reference.rounds}")

    def _check_state(self, disk: VirtualDisk) -> None:
        """A node that has finished has its last state on disk, and records of every round."""
        reference, agents = self._reference, self._reference.hosted[self.name]
        again = open_run(_Setup(agents), disk, VirtualLedger(), self._keeping)
        if again.machine.k != reference.rounds:
            raise Wrong(f"node {self.name} has finished, and on disk it is in round {again.machine.k}")
        again.close()
        for name, array in reference.state.items():
            if getattr(again.machine.state, name).tobytes() != array[list(agents.hosting.owned)].tobytes():
                raise Wrong(f"node {self.name} ends with another {name} than the embedded run")
