"""Streams between neighbouring nodes: who may speak on them, how they are dialled, and dialled again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dpp2.node.admission import Admission, peer_certificate
from dpp2.node.cluster import Cluster
from dpp2.node.errors import NodeFailed, PeerFault, Refusals
from dpp2.node.hosting import Hosting, Neighbour
from dpp2.node.limits import (
    BACKOFF_FIRST,
    BACKOFF_MOST,
    CHANNEL_OPTIONS,
    OPEN_SECONDS,
    WINDOW,
    WINDOW_MOST,
    fixed_window,
)
from dpp2.node.links import STREAM_ENDED, wake
from dpp2.node.memory import longest_message
from dpp2.node.proofs import CHALLENGE, Metadata, challenge, prove, proven
from dpp2.node.ranges import read_ranges
from dpp2.node.shell import Shell, largest_frame
from dpp2.node.tls import Identity, node_name, open_channel, proven_names, set_name, told_agents, unproven

log = logging.getLogger("dpp2.node")

SERVICE, METHOD = "dpp2.node.v1.Peer", "Exchange"
EXCHANGE = f"/{SERVICE}/{METHOD}"


def transport_limits(hosting: Hosting) -> list[tuple[str, int]]:
    """gRPC's own limits, above ours: it refuses unread, with the same status, but tells nobody who could count."""
    return [
        ("grpc.max_receive_message_length", longest_message(hosting.form, tuple(hosting.foreign))),
        ("grpc.max_send_message_length", longest_message(hosting.form, tuple(hosting.owned))),
    ]


class Door:
    """Lets the streams of one neighbour in, one by one and not too fast. Of those that wait the newest stays."""

    def __init__(self) -> None:
        self._opens = 0.0  # when the next one may come in
        self._waiting: asyncio.Future[None] | None = None

    async def enter(self) -> None:
        loop = asyncio.get_running_loop()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(PeerFault("replaced", "a newer stream waits, and one is enough"))
        waiting = self._waiting = loop.create_future()
        turn = loop.call_at(self._opens, wake, waiting)
        try:
            await waiting
        finally:
            turn.cancel()
            self._waiting = None if self._waiting is waiting else self._waiting
            del waiting  # its exception would keep this frame, and this frame it
        self._opens = loop.time() + OPEN_SECONDS


class Peers:
    """All streams of one run at one node."""

    def __init__(
        self,
        shell: Shell,
        cluster: Cluster,
        identity: Identity | None,
        refusals: Refusals,
        admission: Admission | None = None,
    ) -> None:
        """`admission`: there is one where there is an identity."""
        self._shell, self._agents = shell, shell.machine.agents
        self._cluster, self._identity, self._refusals = cluster, identity, refusals
        self._admission = admission
        hosts = {neighbour.node: cluster.agents_of_node(neighbour.node) for neighbour in self._agents.neighbours}
        self._sets = {set_name(agents): agents for agents in hosts.values()}
        self._told = told_agents(self._agents.hosting.owned)
        self._told_of: set[int] = set()  # nodes that seem to know more of us than we do
        self._doors = {neighbour.node: Door() for neighbour in self._agents.neighbours}

    def dial(self) -> list[asyncio.Task[None]]:
        """One task for each neighbour that we are to dial: the lower-numbered node does."""
        ours = min(self._agents.hosting.owned)
        return [asyncio.create_task(self._dial(n)) for n in self._agents.neighbours if ours < n.node]

    async def answer(self, context: Any) -> None:
        """A neighbour has dialled."""
        metadata = dict(context.invocation_metadata())
        names = None if self._identity is None else proven_names(context.auth_context())
        neighbour, need = self._welcome(metadata, names)
        self._check_need(neighbour, need)
        self._shell.check_unread(neighbour)
        await self._doors[neighbour.node].enter()
        since = self._shell.machine.k
        await context.send_initial_metadata((*self._metadata(since), *self._proof(metadata, context)))
        await self._talk(neighbour, need, context, since)

    async def _dial(self, neighbour: Neighbour) -> None:
        """Keep a stream open to a neighbour, for as long as this node lives."""
        address, name = self._target(neighbour)
        room = min(max(WINDOW, largest_frame(self._agents.hosting)), WINDOW_MOST)
        options = [*CHANNEL_OPTIONS, *fixed_window(room), *transport_limits(self._agents.hosting)]
        wait = BACKOFF_FIRST
        async with open_channel(self._identity, address, name, options) as channel:
            method: Any = channel.stream_stream(EXCHANGE)  # bytes: the codec reads them
            while True:
                since = self._shell.machine.k
                asked = challenge()
                call = method(metadata=(*self._metadata(since), *self._challenge(asked)))
                try:
                    metadata = dict(await call.initial_metadata())
                    if "dpp2-run" in metadata:  # otherwise it turned us away: it is not prepared yet
                        need, pem = self._recognise(neighbour, metadata, asked)
                        wait = BACKOFF_FIRST
                        await self._while_admitted(pem, self._talk(neighbour, need, call, since))
                except PeerFault as fault:
                    self._refusals.count(fault)
                except STREAM_ENDED:
                    pass  # not there yet, or gone: a late neighbour is waited for
                except Exception:  # a fault of ours: without this task nobody would ever dial that neighbour again
                    log.exception("the stream to node %d ends", neighbour.node)
                finally:
                    call.cancel()
                await asyncio.sleep(wait)  # not in `finally`: a node that stops does not wait
                wait = min(2 * wait, BACKOFF_MOST)

    async def _talk(self, neighbour: Neighbour, need: int, stream: Any, since: int) -> None:
        if await self._shell.greet(neighbour, stream):
            await self._shell.speak(neighbour, need, stream, since)

    def _proof(self, metadata: Mapping[str, Any], context: Any) -> Metadata:
        if self._identity is None:
            return ()
        return prove(self._identity, metadata, peer_certificate(context.auth_context()))

    def _challenge(self, asked: bytes) -> Metadata:
        return () if self._identity is None else ((CHALLENGE, asked),)

    def _recognise(self, neighbour: Neighbour, metadata: Mapping[str, Any], asked: bytes) -> tuple[int, bytes | None]:
        """From which round on the neighbour that we dialled needs frames, and its certificate, which it has proved."""
        found, need = self._welcome(metadata, None)  # TLS has checked the name in its certificate
        address, name = self._target(neighbour)
        if found != neighbour:
            raise PeerFault("unknown sender", f"{address} hosts other agents")
        pem = None
        if self._identity is not None and self._admission is not None:
            pem = proven(self._identity, metadata, asked, name)
            self._admission.admit(pem, datetime.now(UTC))
        self._check_need(neighbour, need)
        return need, pem

    def _check_need(self, neighbour: Neighbour, need: int) -> None:
        """A neighbour rests on rounds that this home knows nothing of: a backup. Its word counts if it has proved who
        it is; without TLS anybody could say it, so the log alone does.
        """
        if self._shell.machine.has_sent_more(need):
            older = NodeFailed(
                f"this home is older than what it has sent to agents {list(neighbour.theirs[:5])}, which are in round "
                f"{need}: it is a copy or a backup, and a second noisy copy of one value would leak it; "
                "run under another id"
            )
            if self._identity is not None:
                self._shell.break_off(older)
            elif neighbour.node not in self._told_of:
                self._told_of.add(neighbour.node)
                log.error("if that is node %d, and not somebody else (there is no TLS): %s", neighbour.node, older)
        self._shell.machine.check_need(need)

    async def _while_admitted(self, pem: bytes | None, talk: Coroutine[Any, Any, None]) -> None:
        if pem is None or self._admission is None:
            await talk
        else:
            await self._admission.during(pem, talk)

    def _target(self, neighbour: Neighbour) -> tuple[str, str]:
        """Where to dial a neighbour (one of the links may have an address of its own), and the name it must prove."""
        name = node_name(self._cluster.agents_of_node(neighbour.node))
        for ours in neighbour.ours if self._cluster.links else ():
            for theirs in neighbour.theirs:
                if (override := self._cluster.links.get((min(ours, theirs), max(ours, theirs)))) is not None:
                    return override, name
        return self._cluster.addresses[neighbour.node], name

    def _metadata(self, since: int) -> tuple[tuple[str, str], ...]:
        return (
            ("dpp2-run", self._agents.run_id),
            ("dpp2-agents", self._told),
            ("dpp2-need", str(since)),
        )

    def _welcome(self, metadata: Mapping[str, Any], proven: set[str] | None) -> tuple[Neighbour, int]:
        """Who is at the other end, and from which round on it needs frames. `proven`: the names in its certificate."""
        if "dpp2-run" not in metadata:
            raise PeerFault("bad metadata", "dpp2-run is missing")
        if metadata["dpp2-run"] != self._agents.run_id:
            raise PeerFault("wrong run", f"this node runs {self._agents.run_id[:8]}…")
        try:
            agents = self._hosted(str(metadata["dpp2-agents"]))
            need = int(metadata["dpp2-need"])
        except (KeyError, ValueError):
            raise PeerFault("bad metadata", "dpp2-agents and dpp2-need must be numbers") from None
        _check_proven(agents, proven)
        for neighbour in self._agents.neighbours:
            if neighbour.node == agents[0] and set(agents) >= set(neighbour.theirs):
                return neighbour, need
        raise PeerFault("not a neighbour", f"no neighbouring node hosts {list(agents[:5])}")

    def _hosted(self, told: str) -> Sequence[int]:
        """Ascending, the agents that `dpp2-agents` tells of: ranges, or the name of a neighbouring node's set."""
        return self._sets[told] if told in self._sets else read_ranges(told)


def _check_proven(agents: Sequence[int], proven: set[str] | None) -> None:
    """Under TLS a peer speaks for the agents in its certificate alone."""
    if proven is not None and (others := unproven(agents, proven)):
        raise PeerFault("impostor", f"the certificate does not speak for agents {others[:5]}")
