"""When a node ends: it is told to, its run has failed and it has said so, or no orchestrator has called for long."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress

from dpp2.node.errors import NodeFailed, Refusals
from dpp2.node.limits import CONTRADICTION_SECONDS, CONTRADICTIONS, FAREWELL_SECONDS
from dpp2.node.machine import RoundMachine


class Lifetime:
    """`stopped` ends the node."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self._said_why = asyncio.Event()
        self._heard = time.monotonic()

    def hear(self) -> None:
        """An orchestrator has called, or listens."""
        self._heard = time.monotonic()

    def said_why(self) -> None:
        """An orchestrator has been told why the run failed."""
        self._said_why.set()

    async def end_after_saying_why(self) -> None:
        """A run that failed ends the node, so that whoever started it can act. First an orchestrator may hear why."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._said_why.wait(), FAREWELL_SECONDS)
        self.stopped.set()

    async def over(self, patience: float | None) -> bool:
        """Until the node is to end; True if it was because nobody has called for `patience` seconds."""
        while not self.stopped.is_set():
            left = None if patience is None else self._heard + patience - time.monotonic()
            if left is not None and left <= 0:
                return True
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopped.wait(), left)
        return False


class Contradictions:
    """Notices a round that hangs because frames in the name of one neighbour contradict each other.

    Without TLS anybody can send the first of them. The neighbour's own frame is then refused again and again.
    Only what contradicts an agent that the round waits for counts: a neighbour's lies do not end a wait for another.
    """

    def __init__(self, machine: RoundMachine, refusals: Refusals) -> None:
        self._machine, self._refusals = machine, refusals
        self._round, self._since, self._before = -1, 0.0, Counter[int]()

    def look(self, now: float) -> NodeFailed | None:
        """Called now and then; why the run cannot go on, if so."""
        machine, refused = self._machine, self._refusals.contradicted
        waiting = machine.waiting_for()
        if machine.k != self._round or not waiting:
            self._round, self._since, self._before = machine.k, now, refused.copy()
        often = {agent for agent, times in refused.items() if times - self._before[agent] >= CONTRADICTIONS}
        hopeless = sorted(often.intersection(waiting))
        if now - self._since < CONTRADICTION_SECONDS or not hopeless:
            return None
        return NodeFailed(
            f"round {machine.k} waits for agents {hopeless[:5]}, and what comes in their name contradicts what came "
            "before: somebody else speaks for them, which only TLS can tell, or they have lost their files"
        )
