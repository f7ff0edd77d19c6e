"""The asyncio around one run at one node: lets the machine go on whenever there is something for it, and waits."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import grpc
import numpy as np

from dpp2.errors import BadInput
from dpp2.node.codec import message_limit
from dpp2.node.errors import Diverged, NodeFailed, PeerFault, told
from dpp2.node.hosting import Hosting, Neighbour
from dpp2.node.inbox import Lane
from dpp2.node.limits import HELLO_SECONDS, UNREAD_STREAMS
from dpp2.node.links import Stream, serve
from dpp2.node.run import NodeRun

log = logging.getLogger("dpp2.node")

_SAID_AS_THEY_ARE = (NodeFailed, BadInput, OSError)  # their sentence is enough


def largest_frame(hosting: Hosting) -> int:
    """What an honest neighbour can send at most: a row of every agent that has a neighbour here."""
    return message_limit(hosting.form, tuple(hosting.foreign))


class Shell:
    """Runs one `NodeRun`."""

    def __init__(self, run: NodeRun) -> None:
        self.run, self.machine = run, run.machine
        self.failure = ""
        self.diverged = False
        self.frame_limit = largest_frame(run.machine.agents.hosting)
        self._waiter: asyncio.Future[None] | None = None  # of `run_rounds`, for anything that the machine may use
        self._round_over = asyncio.Event()
        self._idle = asyncio.Event()  # nothing to do, and Watch should tell
        self._saving: asyncio.Task[None] | None = None
        self._releasing = asyncio.Lock()
        self._greetings: dict[int, asyncio.Timeout] = {}  # by neighbouring node: those under way
        run.on_failure = self._broken_off

    @property
    def run_id(self) -> str:
        return self.machine.agents.run_id

    # -- rounds ------------------------------------------------------------------------------------------------

    async def run_rounds(self) -> None:
        """Every round that is released, until the last one or a failure."""
        machine = self.machine
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is what divergence looks like; it is reported
            while not machine.finished and self.run.failure is None:
                if not machine.ready:
                    await self._wait()
                    continue
                k = machine.k
                self._advance()
                if machine.k > k:
                    self._round_over.set()
                    if machine.k % 8 == 0:  # a node whose frames are always there already must let others speak
                        await asyncio.sleep(0)
        if self.run.failure is not None:
            self.fail(self.run.failure)
        self._idle.set()

    def _advance(self) -> None:
        self.run.advance()
        if self.run.saving is not None and self._saving is None:
            self._saving = asyncio.create_task(self._save())

    async def _wait(self) -> None:
        if self.machine.credit_used:
            self._idle.set()
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def wake(self) -> None:
        """The machine may have something to do."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _broken_off(self) -> None:
        """The rounds end; if they have ended, somebody else must hear of it."""
        if self.machine.finished and self.run.failure is not None:
            self.fail(self.run.failure)
        self.wake()

    async def _save(self) -> None:
        """Rounds go on meanwhile. Nothing counts as durable before it is."""
        try:
            await asyncio.to_thread(self.run.save)
            self.run.saved()
        except Exception as error:
            self.run.break_off(error)
        self._saving = None
        self.wake()

    async def saved_so_far(self) -> None:
        """Until the checkpoint that was begun last is on disk; it is not cancelled with whoever waits for it."""
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def release(self, until: int, *, last: bool) -> None:
        async with self._releasing:
            try:
                await asyncio.to_thread(self.run.note_released, until)
            except OSError as error:
                self.run.break_off(error)
            self.machine.release(until, last=last)
        self._idle.clear()
        self.wake()

    async def credit_used(self) -> None:
        """Until the credit is used up, the run has ended or cannot go on."""
        await self._idle.wait()
        self._idle.clear()

    def fail(self, error: Exception) -> None:
        """The run cannot go on. Watch says so; the log says why, with everything that nobody else may hear."""
        expected = isinstance(error, _SAID_AS_THEY_ARE)
        self.failure, self.diverged = told(error), isinstance(error, Diverged)
        sentence = str(error) if expected and str(error) else f"{type(error).__name__}: {error}"
        log.error("the run has failed in round %d: %s", self.machine.k, sentence, exc_info=None if expected else error)
        self._idle.set()

    def break_off(self, error: Exception) -> None:
        """Something outside the rounds says that they cannot go on."""
        self.run.break_off(error)
        self.wake()

    async def end(self) -> None:
        """Orderly: what has been run is durable. The round task must have ended."""
        try:
            self.machine.stop()
            while self.run.ready or self._saving is not None:
                await self.saved_so_far()
                self._advance()
            self.run.end()
        finally:
            self.run.close()

    # -- streams -----------------------------------------------------------------------------------------------

    async def greet(self, neighbour: Neighbour, stream: Stream) -> bool:
        """Where edges have secrets, hellos come first on every stream, both ways. False if the stream ends instead."""
        hellos = self.machine.hellos
        if not hellos.exchanged:
            return True
        try:
            async with asyncio.timeout(HELLO_SECONDS) as limit:
                self._greet_alone(neighbour.node, limit)
                await stream.write(hellos.to(neighbour.node))
                frame = await stream.read()
        except TimeoutError:
            if self._greetings.get(neighbour.node) is not limit:
                raise PeerFault("replaced", "a newer stream has come, and one is enough") from None
            raise PeerFault("bad hello", f"none came within {HELLO_SECONDS:g} s") from None
        if frame is grpc.aio.EOF:
            return False
        self.machine.meet(neighbour.node, frame)
        self.wake()
        return True

    def _greet_alone(self, node: int, limit: asyncio.Timeout) -> None:
        """A newer stream ends the greeting on an older one: each may hold a whole frame that is no hello."""
        older, self._greetings[node] = self._greetings.get(node), limit
        if older is not None:
            with suppress(RuntimeError):  # it is over
                older.reschedule(asyncio.get_running_loop().time())

    def check_unread(self, neighbour: Neighbour) -> None:
        """A peer that opens streams and does not read them gets no more."""
        if (unread := self.run.links[neighbour.node].unread) >= UNREAD_STREAMS:
            at = f"{unread} frames on earlier streams wait for node {neighbour.node} to read them"
            raise PeerFault("too many unread", at)

    async def speak(self, neighbour: Neighbour, need: int, stream: Stream, since: int) -> None:
        """Until the stream ends. The neighbour needs frames from round `need` on, and was asked for those `since`."""
        await serve(self.run.links[neighbour.node], stream, _Conversation(self, neighbour, need, since))

    async def wait_for_room(self, lane: Lane) -> None:
        """Until some of what this neighbour sent has been used."""
        while not self.machine.has_room(lane):
            self._round_over.clear()
            await self._round_over.wait()


class _Conversation:
    """One stream: a lane of the inbox one way, frames on their way the other."""

    def __init__(self, shell: Shell, neighbour: Neighbour, need: int, since: int) -> None:
        self._shell, self._machine, self._limit = shell, shell.machine, shell.frame_limit
        self._lane = shell.machine.open_lane(neighbour.node, since)
        self.outgoing = shell.run.open_stream(neighbour.node, need)

    def take(self, frame: bytes) -> bool:
        if len(frame) > self._limit:
            raise PeerFault("oversize", f"a frame of {len(frame)} bytes, where {self._limit} are the most")
        has_room = self._machine.take(frame, self._lane)
        if self._machine.ready:
            self._shell.wake()
        return has_room

    async def wait_for_room(self) -> None:
        await self._shell.wait_for_room(self._lane)
