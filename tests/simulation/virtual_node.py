"""One node of a simulated cluster: the real run on a virtual disk, with lives that end and begin again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from node.inbox import Lane
from node.run import Keeping, NodeRun, open_run
from reference import Reference
from virtual_disk import VirtualDisk
from virtual_ledger import VirtualLedger


class Wrong(AssertionError):
    """Something that must never happen has happened."""


class VirtualNode:
    """`run` is what a process has in memory once it is prepared; without a process `up` is False."""

    def __init__(self, name: int, reference: Reference, keeping: Keeping, rng: random.Random) -> None:
        self.name, self._reference, self._keeping = name, reference, keeping
        self.disk, self.ledger = VirtualDisk(rng), VirtualLedger()
        self.up, self.life, self.settled = True, 0, False
        self.run: NodeRun | None = None
        self.sent = 0  # rounds of which anything has ever left
        self.awake = False  # the machine may have something to do

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
            agents = self._reference.hosted[self.name]
            self.run = open_run(agents, self.disk, self.ledger, self._keeping)
            self.awake = True
            self.check_ledger()

    def advance(self) -> None:
        run = self.prepared
        self.awake = run.advance()
        self._check_failure()
        if run.machine.finished and not self.settled:
            run.settle(self.ledger)
            self.settled = True
            self.check_ledger()

    def save(self) -> None:
        """The disk has taken its time."""
        self.prepared.save()
        self.prepared.saved()
        self.awake = True

    def release(self, until: int, *, last: bool) -> None:
        self.prepared.machine.release(until, last=last)
        self.awake = True

    def take(self, frame: bytes, lane: Lane, sender: int) -> None:
        if frame not in self._reference.frames[sender, self.name]:
            raise Wrong(f"node {self.name} was sent rows by node {sender} that are not the run's")
        self.awake |= self.prepared.machine.take(frame, lane)

    def left(self, frames: list[bytes], receiver: int) -> None:
        """These frames are on their way."""
        rounds = self._reference.frames[self.name, receiver]
        for frame in frames:
            if frame not in rounds:
                raise Wrong(f"node {self.name} sends node {receiver} rows that are not the run's")
            self.sent = max(self.sent, rounds[frame] + 1)
        self.check_ledger()

    def check_ledger(self) -> None:
        if any(charged < self.sent for charged in self.ledger.charged(self._reference.run_id)):
            raise Wrong(f"node {self.name} has sent {self.sent} rounds and is charged for fewer")

    def _check_failure(self) -> None:
        if (failure := self.prepared.failure) is not None:
            raise Wrong(f"node {self.name} has failed: {failure!r}")

    # -- ends of a life ----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Told to stop: what has been run is durable, and what was sent is settled."""
        if (run := self.run) is not None:
            run.machine.stop()
            while run.advance() or run.saving is not None:
                self._check_failure()
                if run.saving is not None:
                    run.save()
                    run.saved()
            run.close()
            run.settle(self.ledger)
            self.check_ledger()
        self._gone(self.disk.kill)

    def kill(self) -> None:
        self._gone(self.disk.kill)

    def lose_power(self) -> None:
        self._gone(self.disk.lose_power)

    def _gone(self, disk: Callable[[], Any]) -> None:
        disk()
        self.up, self.run, self.awake, self.settled = False, None, False, False

    def start(self) -> None:
        self.up, self.life = True, self.life + 1

    # -- the end -----------------------------------------------------------------------------------------------

    def check_result(self) -> None:
        """On disk is what the embedded run computes, and charged is what was sent."""
        reference, agents = self._reference, self._reference.hosted[self.name]
        self.stop()
        again = open_run(agents, self.disk, VirtualLedger(), self._keeping)
        if again.machine.k != reference.rounds:
            raise Wrong(f"node {self.name} ends in round {again.machine.k}, not {reference.rounds}")
        again.close()
        for name in reference.records:
            if self.disk.read(f"records/{name}.f64") != reference.records_of(self.name, name):
                raise Wrong(f"node {self.name} has other records of {name} than the embedded run")
        for name, array in reference.state.items():
            if getattr(again.machine.state, name).tobytes() != array[list(agents.hosting.owned)].tobytes():
                raise Wrong(f"node {self.name} ends with another {name} than the embedded run")
        charged = self.ledger.charged(reference.run_id)
        if any(rounds != reference.rounds for rounds in charged):
            raise Wrong(f"node {self.name} is charged for {charged} rounds and not for {reference.rounds}")
