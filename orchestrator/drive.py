"""Drives synchronous rounds over nodes: prepares them, hands out credit, watches. It never sees a vector.

Strict: one round at a time, for demonstrations. Windowed: a credit of many rounds, within which neighbours keep
each other in step by the data itself. A node that is late, or gone for a while, is waited for and named. The run ends
where the first node's own budget ends: nobody can be made to go further, and the others are told. A node that says
why it cannot go on ends the run; with `patience`, so does a time in which nothing moves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc

from dpp2.node.cluster import Cluster
from dpp2.node.errors import plain
from dpp2.node.limits import BACKOFF_FIRST, BACKOFF_MOST, CALL_SECONDS, CHANNEL_OPTIONS
from dpp2.node.tls import Identity, node_name, open_channel
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc

_RETRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
_STOP_SECONDS = 5.0
_SILENT_SECONDS = 3.0  # nodes report every second, even if nothing moves
_NAMED = 8  # nodes in one sentence


class DriveFailed(Exception):
    """The run cannot go on; the message names the node and why."""


@dataclass
class NodeStatus:
    """What is known of one node."""

    prepared: bool = False
    here: bool = False  # it answers now
    trouble: str = ""  # why not
    heard: float = 0.0  # when it last did
    allowed: int = 0
    reason: str = ""
    round: int = 0
    most: int = 0  # rounds that it has ever said it has completed
    finished: bool = False
    waiting_for: list[int] = field(default_factory=list)
    frames: int = 0
    bytes: int = 0
    refused: int = 0


class Drive:
    """One run over the nodes of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        run_id: str,
        digest: str,
        *,
        window: int,
        identity: Identity | None = None,
        patience: float | None = None,
    ) -> None:
        """`patience`: seconds without any progress after which the run is given up; None: it waits."""
        self.cluster, self.run_id, self.digest, self.window = cluster, run_id, digest, window
        self.seen = {node: NodeStatus() for node in cluster.nodes()}
        self.diverged, self.ended = False, ""  # and why
        self._identity, self._patience = identity, patience
        self._progress, self._progressed = 0, time.monotonic()
        self._prepared = asyncio.Event()
        self._news = asyncio.Event()
        self._moved = asyncio.Event()  # replaced whenever a node was heard of
        self._failure: str | None = None

    async def run(self, progress: Callable[[Drive], None]) -> None:
        """Until every node has finished, or one has diverged; `progress` is called whenever something was heard."""
        tasks = [asyncio.create_task(self._follow(node)) for node in self.seen]
        try:
            while not self.diverged and not all(seen.finished for seen in self.seen.values()):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.2)
                self._news.clear()
                progress(self)
                self._check_patience()
                if self._failure:
                    raise DriveFailed(self._failure)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def round(self) -> int:
        """Rounds that every node has completed."""
        return min(seen.round for seen in self.seen.values())

    @property
    def last(self) -> NodeStatus:
        """The node whose budget, or experiment, ends first; known once all are prepared."""
        return min(self.seen.values(), key=lambda seen: seen.allowed)

    def late(self) -> list[int]:
        """Agents that are not there, or that somebody waits for at the round where everything hangs."""
        absent = {agent for node, seen in self.seen.items() if not seen.prepared for agent in self._agents(node)}
        hanging = [seen for seen in self.seen.values() if seen.round == self.round]
        return sorted(absent or {agent for seen in hanging for agent in seen.waiting_for})

    def absent(self) -> str:
        """Which nodes are missing, have gone or are silent, and why, in one sentence; empty if all are there."""
        found = [f"{self._name(node)} {why}" for node, seen in self.seen.items() if (why := self._why_absent(seen))]
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return "; ".join(found[:_NAMED]) + more

    def _why_absent(self, seen: NodeStatus) -> str:
        if seen.finished:
            return ""
        if not seen.here:
            reason = f" ({seen.trouble})" if seen.trouble else ""
            return f"has gone{reason}" if seen.prepared else f"is not there yet{reason}"
        return "does not answer: it is busy, paused or cut off" if self._silent(seen) else ""

    def _silent(self, seen: NodeStatus) -> bool:
        return time.monotonic() - seen.heard > _SILENT_SECONDS and self._prepared.is_set()

    def waited_for(self) -> set[int]:
        """Nodes that do not answer; if all do, those whose rows are missing where everything hangs.

        A node that has come further has sent its rows: whoever still names it has said so before they arrived.
        """
        silent = {node for node, seen in self.seen.items() if seen.here and not seen.finished and self._silent(seen)}
        late = set(self.late())
        named = [node for node in self.seen if late.intersection(self._agents(node))]
        return silent or {node for node in named if self.seen[node].round <= self.round}

    def stuck(self) -> str:
        """Who waits for whom, in one sentence, if nothing has moved for a while; empty otherwise."""
        if time.monotonic() - self._progressed < _SILENT_SECONDS or not self._prepared.is_set():
            return ""
        waiting = [node for node, seen in self.seen.items() if seen.waiting_for and seen.round == self.round]
        refused = sum(seen.refused for seen in self.seen.values())
        note = f"; nodes have turned away {refused} frames or calls, and their logs say which" if refused else ""
        note += self._fallen_back()
        agents = ", ".join(map(str, self.late()[:_NAMED]))
        nodes = ", ".join(map(str, waiting[:_NAMED]))
        return f"no round ends: nodes {nodes} wait for rows of agents {agents}{note}" if waiting else ""

    def _fallen_back(self) -> str:
        """Nodes that have been further than they are. A checkpoint explains it, and so does an old copy of a home."""
        back = [(node, seen) for node, seen in self.seen.items() if seen.round < seen.most]
        said = [f"; {self._name(node)} was in round {seen.most} and is back in {seen.round}" for node, seen in back]
        return "".join(said[:_NAMED]) + (": a home must not come from a backup" if said else "")

    def _check_patience(self) -> None:
        moved = sum(seen.prepared + seen.round + seen.finished for seen in self.seen.values())
        now = time.monotonic()
        if moved != self._progress:
            self._progress, self._progressed = moved, now
        elif self._patience is not None and now - self._progressed > self._patience:
            why = "; ".join(found for found in (self.absent(), self.stuck()) if found)
            self._fail(f"given up after {self._patience:g} s without progress: {why or 'nobody says why'}")

    def _agents(self, node: int) -> tuple[int, ...]:
        return self.cluster.agents_of_node(node)

    def _name(self, node: int) -> str:
        """A node as its operator knows it."""
        agents, address = self._agents(node), self.cluster.addresses[node]
        several = f"agents {', '.join(map(str, agents[:_NAMED]))}{', …' if len(agents) > _NAMED else ''}; "
        return f"node {node} ({several if len(agents) > 1 else ''}{address})"

    async def _follow(self, node: int) -> None:
        """One node until it has finished. Whatever ends this early ends the run: nobody else would hear of it."""
        address = self.cluster.addresses[node]
        try:
            await self._attend_again_and_again(node, address)
        except grpc.aio.AioRpcError as error:
            self._fail(f"{self._name(node)}: {plain(str(error.details()))}")
        except Exception as error:
            self._fail(f"{self._name(node)}: {type(error).__name__}: {plain(str(error))}")

    def _fail(self, why: str) -> None:
        """The first reason counts: others follow from it."""
        self._failure = self._failure or why
        self._news.set()

    async def _attend_again_and_again(self, node: int, address: str) -> None:
        """Prepare, release and watch one node, also after it went away and came back."""
        wait = BACKOFF_FIRST
        async with open_channel(self._identity, address, node_name(self._agents(node)), CHANNEL_OPTIONS) as channel:
            control = wire_pb2_grpc.ControlStub(channel)
            while not self.seen[node].finished:
                try:
                    await self._attend(node, control)
                    wait = BACKOFF_FIRST
                except grpc.aio.AioRpcError as error:
                    if error.code() not in _RETRY:
                        raise
                    self.seen[node].here, self.seen[node].trouble = False, _reason(error)
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, BACKOFF_MOST)

    async def _attend(self, node: int, control: Any) -> None:
        """One life of a node: prepare it, then hear of it, while credit goes out beside that."""
        run, seen = self.run_id, self.seen[node]
        reply = await control.Prepare(wire_pb2.PrepareRequest(run=run, digest=self.digest), timeout=CALL_SECONDS)
        seen.round, seen.allowed, seen.reason = reply.round, reply.allowed, plain(reply.reason)
        seen.prepared, seen.here, seen.heard = True, True, time.monotonic()
        self._note_prepared()
        releasing = asyncio.create_task(self._release(control))
        try:
            async for report in control.Watch(wire_pb2.WatchRequest(run=run)):
                self._hear(node, report)
                if releasing.done():
                    releasing.result()  # what went wrong with it, if anything did
        finally:
            releasing.cancel()
            await asyncio.wait({releasing})

    def _note_prepared(self) -> None:
        """Once all are prepared, credit goes out: silence counts from then on."""
        if not self._prepared.is_set() and all(seen.prepared for seen in self.seen.values()):
            for seen in self.seen.values():
                seen.heard = time.monotonic()
            self._prepared.set()

    async def _release(self, control: Any) -> None:
        """Once all are prepared, hand out credit as the slowest node comes on, half a window at a time, to the end."""
        await self._prepared.wait()
        released, last = 0, False
        while not last:
            moved = self._moved
            until, last = self._credit()
            if last or until - released >= max(1, self.window // 2):
                request = wire_pb2.ReleaseRequest(run=self.run_id, until=until, last=last)
                await control.Release(request, timeout=CALL_SECONDS)
                released = until
            else:
                await moved.wait()

    def _hear(self, node: int, report: Any) -> None:
        seen = self.seen[node]
        seen.round, seen.finished, seen.waiting_for = report.round, report.finished, list(report.waiting_for)
        seen.most = max(seen.most, seen.round)
        seen.frames, seen.bytes, seen.refused = report.frames_sent, report.bytes_sent, report.refused
        seen.here, seen.heard = True, time.monotonic()
        if report.diverged:
            self.diverged, self.ended = True, plain(report.failure)
        elif report.failure:
            self._fail(f"{self._name(node)} has failed in round {report.round}: {plain(report.failure)}")
        elif report.finished and report.round < self.last.allowed:
            rounds = f"has ended after {report.round} rounds where {self.last.allowed} were due"
            who = "somebody else has told it that they were the last (without TLS anybody can)"
            self._fail(f"{self._name(node)} {rounds}: {who}; the same command goes on")
        self._news.set()
        self._moved.set()
        self._moved = asyncio.Event()

    def _credit(self) -> tuple[int, bool]:
        """Up to which round, and whether that is the end."""
        until = min(self.round + self.window, self.last.allowed)
        return until, until == self.last.allowed


def _reason(error: grpc.aio.AioRpcError) -> str:
    """Why a node does not answer: gRPC's details end with the cause, but for TLS on one side only."""
    details = plain(str(error.details() or ""))
    cause = details.rpartition(": ")[2]
    if "WRONG_VERSION_NUMBER" in details:
        return "it speaks plaintext, but --tls was given here"
    if cause == "Socket closed":
        return "it closed the connection, as a node with --tls does to whoever comes without"
    return cause[:80] or error.code().name.lower().replace("_", " ")


async def stop(cluster: Cluster, run_id: str, identity: Identity | None = None) -> None:
    """Tell every node that the run is over; one that does not answer has ended already."""

    async def one(node: int, address: str) -> None:
        async with open_channel(identity, address, node_name(cluster.agents_of_node(node)), CHANNEL_OPTIONS) as channel:
            with suppress(grpc.aio.AioRpcError):
                request = wire_pb2.StopRequest(run=run_id)
                await wire_pb2_grpc.ControlStub(channel).Stop(request, timeout=_STOP_SECONDS)

    await asyncio.gather(*(one(node, address) for node, address in cluster.nodes().items()))
