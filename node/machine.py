"""The agents of one node in one run, as a machine: frames, credit and news of the disk in, effects out.

No clock, no files, no sockets. Whoever runs it calls `advance` after every input and carries the effects out in order.

Crash safety in three rules. A frame's digest is journalled before it leaves, so a replay cannot send other bytes.
Records are on disk before the checkpoint that speaks of them. What was sent is on record, too, so a neighbour that
comes back gets everything it lacks from there, and neighbours that die together can still catch up with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpp2.algorithms.base import Broadcast, Private, Program, Round
from dpp2.edge_keys import Hello
from dpp2.keys import derive
from dpp2.node.codec import payload, within
from dpp2.node.effects import Effect, Failed, Finished, KeepHellos, NoteUncovered, Record, SaveCheckpoint
from dpp2.node.errors import Diverged, PeerFault, Uncovered
from dpp2.node.files import Checkpoint
from dpp2.node.fingerprints import Fingerprint, fingerprinting
from dpp2.node.hellos import Hellos
from dpp2.node.hosting import Hosting, Neighbour, private_records, state_arrays
from dpp2.node.inbox import Inbox, Lane
from dpp2.node.keyring import Keyring
from dpp2.node.mixing import Mixer
from dpp2.node.outbox import Outbox, SentDigests
from dpp2.privacy.grid import uncovered


@dataclass(frozen=True, eq=False)
class RunSetup:
    """What a node needs for a run, before its folder tells what was drawn for it."""

    run_id: str
    hosting: Hosting
    neighbours: Sequence[Neighbour]
    keyring: Keyring

    def agents(self, nonce: bytes) -> HostedRun:
        return HostedRun.of(self, nonce)


@dataclass(frozen=True, eq=False)
class HostedRun:
    """The agents of one node, set up for one run."""

    run_id: str
    hosting: Hosting
    neighbours: Sequence[Neighbour]
    program: Callable[[Mapping[int, Hello]], Program]  # of the hellos of the neighbours' agents
    mixer: Mixer
    start: Any  # the state at round 0
    fingerprint: Fingerprint
    hellos: Mapping[int, Hello]  # of the hosted agents; empty where edges have no secrets to agree on
    data: str  # stands for the data that come from outside, under the key of this node; empty where there are none

    @classmethod
    def of(cls, setup: RunSetup, nonce: bytes) -> HostedRun:
        """With keys that are those of this node in this run alone."""
        hosting, neighbours, run_id = setup.hosting, setup.neighbours, setup.run_id
        secrets = setup.keyring.secrets(run_id).with_nonce(nonce)
        agents = hosting.agents.with_secrets(secrets)
        start = agents.start(agents.program_without_edges())
        key, digest = secrets.agent_keys(hosting.owned)[0], agents.data_digest
        fingerprint = fingerprinting(derive(key, "seal", run_id))
        mixer, hellos = hosting.mixer(neighbours), agents.hellos()
        data = derive(key, "data", run_id, digest).hex() if digest else ""
        return cls(run_id, hosting, neighbours, agents.program, mixer, start, fingerprint, hellos, data)

    @property
    def phases(self) -> tuple[str, ...]:
        return self.hosting.experiment.algorithm.phases

    @property
    def digest(self) -> str:
        return self.hosting.experiment.digest


@dataclass(frozen=True, eq=False)
class Memory:
    """What a node remembers when it starts: where it goes on, and what has left before.

    A loss of power takes the last entries of the journal. So everything that was released counts as begun, unless the
    node has ended in order since.
    """

    checkpoint: Checkpoint | None
    known: Mapping[tuple[int, int], bytes]  # digests by round and phase
    released: int  # rounds
    uncovered: int | None = None  # the first round whose noise float64 did not carry
    hellos: Mapping[int, Hello] = field(default_factory=dict)  # that the run rests on

    @property
    def rounds_begun(self) -> int:
        """Rounds of which anything may ever have left."""
        journalled = max((round_ + 1 for round_, _ in self.known), default=0)
        return max(journalled, self.released, self.checkpoint.k if self.checkpoint else 0)


class _Saves:
    """Which checkpoints there are. There are two files, not more: one is written at a time."""

    def __init__(self, every: int, checkpoint: Checkpoint | None) -> None:
        self.every = every
        self.newest: int | None = None
        self.last_two = [0, 0]
        self.writing: int | None = None
        if checkpoint is not None:
            self.newest = checkpoint.k
            self.last_two = [int(checkpoint.facts["saved"]), checkpoint.k]

    def saved(self, k: int) -> None:
        self.last_two, self.newest, self.writing = [self.last_two[1], k], k, None


class RoundMachine:
    """`rounds` is how many it may run in all, `until` the orchestrator's credit."""

    def __init__(
        self, agents: HostedRun, memory: Memory, rounds: int, *, every: int, telemetry: bool, only_covered: bool = False
    ) -> None:
        """`only_covered`: stop before a round whose noise float64 does not carry."""
        self.agents, self.rounds, self._telemetry = agents, rounds, telemetry
        self._only_covered, self._uncovered = only_covered, memory.uncovered
        self.k, self.state = 0, agents.start
        self.until = 0
        self.finished = False  # and durable
        self.failed = self._stopping = False
        self.hellos = Hellos(agents.run_id, agents.hellos, agents.neighbours, memory.hellos)
        self.program = None if self.hellos.missing() else agents.program(self.hellos.met)
        self.outbox = Outbox(agents.run_id, agents.hosting, agents.neighbours)
        self._digests = SentDigests(agents.phases, memory.known, memory.rounds_begun)
        self._saves = _Saves(every, memory.checkpoint)
        self.inbox = self._new_inbox()
        self._open: tuple[Round, Broadcast] | None = None  # the round that is being run, and what it said last
        self.ready = True  # `advance` may have something to do
        if memory.checkpoint is not None:
            self.k, self.state = memory.checkpoint.k, type(agents.start)(**memory.checkpoint.state)
            self.inbox.advance(self.k)
            self.inbox.forget(self.durable)

    def _new_inbox(self) -> Inbox:
        agents = self.agents
        senders = {neighbour.node: neighbour.theirs for neighbour in agents.neighbours}
        return Inbox(agents.run_id, agents.hosting.form, senders, agents.fingerprint)

    # -- how it stands -----------------------------------------------------------------------------------------

    @property
    def durable(self) -> int:
        """Rounds before this one we shall never need again, even if the newer checkpoint turns out damaged."""
        return self._saves.last_two[0]

    @property
    def rounds_begun(self) -> int:
        """Rounds of which anything may ever have left, before a crash as well."""
        return max(self._digests.rounds, self.k)

    @property
    def credit_used(self) -> bool:
        """Whether it waits for nothing but credit, or will never go on."""
        return self.finished or self.failed or (self._open is None and self.k >= self.until)

    def waiting_for(self) -> list[int]:
        """Agents whose rows the current round lacks, or whose hello the first one."""
        missing = (self.inbox.missing(self.k, phase) for phase in self.outbox.sent)
        return sorted(self.hellos.missing().union(*missing)) if not self.finished else []

    def check_need(self, need: int) -> None:
        """From which round on a neighbour needs frames: its rounds rest on what has left here."""
        if not 0 <= need <= self.rounds_begun:
            raise PeerFault("bad metadata", f"no neighbour can be in round {str(need)[:20]}, as dpp2-need says")

    def has_sent_more(self, need: int) -> bool:
        """Whether a neighbour that speaks the truth proves that this node has forgotten rounds which it has sent."""
        return self.rounds_begun < need <= self.agents.hosting.experiment.run.rounds

    # -- input -------------------------------------------------------------------------------------------------

    def release(self, until: int, *, last: bool = False) -> None:
        """Credit: rounds before `until` may be run, and no more after them if they are the last."""
        if last:  # a round that is open is run to its end
            self.rounds = min(self.rounds, max(until, self.k + (self._open is not None)))
        self.until = min(max(self.until, until), self.rounds)
        self.ready = True

    def meet(self, node: int, frame: bytes) -> None:
        """What a neighbour said first on a new stream, where streams begin with hellos."""
        self.hellos.meet(node, frame)
        self.ready = True

    def open_lane(self, node: int, since: int) -> Lane:
        """A neighbour has a new stream to this node, on which it was asked for frames from round `since` on."""
        return self.inbox.lane(node, since)

    def take(self, frame: bytes, lane: Lane) -> bool:
        """What a neighbour sent; a fault leaves everything as it was. False if there is enough in hand of this one."""
        if self.inbox.take(frame, lane):
            self.ready = True
        return not self.inbox.has_enough(lane)

    def has_room(self, lane: Lane) -> bool:
        """Whether more should be read on this lane."""
        return not self.inbox.has_enough(lane)

    def saved(self, k: int) -> None:
        """The checkpoint at round k is durable."""
        self._saves.saved(k)
        self.inbox.forget(self.durable)
        self._digests.forget(self.durable)
        self.ready = True

    def stop(self) -> None:
        """Run no further round, and save what has been run."""
        self._stopping = self.ready = True

    # -- output ------------------------------------------------------------------------------------------------

    def advance(self) -> list[Effect]:
        """Go on until something is missing, and no further than the end of a round: what must be done, in order."""
        effects: list[Effect] = []
        self.ready = False
        try:
            if self._stopping:
                self._save_if_due(effects)
            elif not self.failed and (self._open is not None or self._begin(effects)):
                self._go_on(effects)
        except Exception as error:  # whatever a round program raises: nobody else would hear of it
            self.failed = True
            effects.append(Failed(error))
        return effects

    def _begin(self, effects: list[Effect]) -> bool:
        """The next round, if there is credit for it and the disk keeps up."""
        if not self._save_if_due(effects) or self.k >= self.until or not self._acquainted(effects):
            return False
        assert self.program is not None
        program = self.program.round(self.state, self.k)
        message = next(program)
        if not message.covered:
            self._uncover(effects)
        self._broadcast(effects, program, message, ())
        return True

    def _acquainted(self, effects: list[Effect]) -> bool:
        """Whether there is a program: once all hellos are here. They are written down before anything leaves."""
        if self.program is None and not self.hellos.missing():
            self.program = self.agents.program(self.hellos.met)
            self.hellos.settle()
            effects.append(KeepHellos(dict(self.hellos.met)))
        return self.program is not None

    def _uncover(self, effects: list[Effect]) -> None:
        """Nothing of this round has left yet."""
        if self._uncovered is None or self.k < self._uncovered:
            self._uncovered = self.k
            effects.append(NoteUncovered(self.k))
        if self._only_covered:
            raise Uncovered(f"the run stops before round {self.k}, to keep its budget: {uncovered(self.k).reason}")

    def _go_on(self, effects: list[Effect]) -> None:
        """Through every phase for which everything is here."""
        assert self._open is not None
        (program, message), k, inbox = self._open, self.k, self.inbox
        while inbox.complete(k, message.phase):
            received, fingerprints = inbox.pop(k, message.phase)
            try:
                message = program.send(self.agents.mixer.mix(message.rows, received))
            except StopIteration as done:
                self._end(effects, *done.value)
                return
            self._broadcast(effects, program, message, fingerprints)

    def _broadcast(self, effects: list[Effect], program: Round, message: Broadcast, inputs: Sequence[bytes]) -> None:
        """`inputs`: fingerprints of what the message rests on."""
        k, phase, rows = self.k, message.phase, message.rows
        content = payload(rows)
        if not within(content, self.agents.hosting.form.largest):
            largest = self.agents.hosting.form.largest
            raise Diverged(f"the run diverged: what round {k} would send exceeds run.largest_value = {largest:.4g}")
        entry = self._digests.check(k, phase, inputs, self.agents.fingerprint(content))
        if entry is not None:
            effects.append(entry)
        self.outbox.send(k, phase, rows, effects)
        self._open = program, message

    def _end(self, effects: list[Effect], state: Any, private: Private) -> None:
        """State, sent rows and k change together, once the round is to be recorded."""
        rows: dict[str, Any] = self.outbox.sent
        if self._telemetry:
            rows = rows | private_records(self.state.x, private)
        effects.append(Record(rows))
        self.state, self.k, self.outbox.sent, self._open = state, self.k + 1, {}, None
        self.inbox.advance(self.k)
        self.ready = True

    def _save_if_due(self, effects: list[Effect]) -> bool:
        """Begin a checkpoint at round k where one belongs; False while the one before is not durable."""
        saves, over = self._saves, self.k >= self.rounds
        due = over or self._stopping or (self.k > 0 and self.k % saves.every == 0)
        if due and saves.newest != self.k and saves.writing != self.k:
            if saves.writing is not None:
                return False
            saves.writing = self.k
            effects.append(SaveCheckpoint(self.k, state_arrays(self.state), saves.last_two[1]))
        if over and saves.newest == self.k and not self.finished and not self._stopping:
            self.finished = True
            effects.append(Finished())
        return True
