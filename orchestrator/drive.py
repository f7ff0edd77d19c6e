"""Drives synchronous rounds over nodes: prepares them, hands out credit, watches. It never sees a vector.

Strict: one round at a time, for demonstrations. Windowed: a credit of many rounds, within which neighbours keep
each other in step by the data itself. A node that is late, or gone for a while, is waited for and named. The run ends
where the first node's own budget ends: nobody can be made to go further, and the others are told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc

from node.cluster import Cluster
from node.limits import BACKOFF_FIRST, BACKOFF_MOST, CALL_SECONDS, CHANNEL_OPTIONS
from node.tls import Identity, node_name, open_channel
from node.v1 import wire_pb2, wire_pb2_grpc

_RETRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
_STOP_SECONDS = 5.0


class DriveFailed(Exception):
    """The run cannot go on; the message names the node and why."""


@dataclass
class NodeStatus:
    """What is known of one node."""

    prepared: bool = False
    allowed: int = 0
    reason: str = ""
    round: int = 0
    finished: bool = False
    waiting_for: list[int] = field(default_factory=list)
    frames: int = 0
    bytes: int = 0
    refused: int = 0


class Drive:
    """One run over the nodes of a cluster."""

    def __init__(
        self, cluster: Cluster, run_id: str, digest: str, *, window: int, identity: Identity | None = None
    ) -> None:
        self.cluster, self.run_id, self.digest, self.window = cluster, run_id, digest, window
        self.seen = {node: NodeStatus() for node in cluster.nodes()}
        self.diverged = False
        self._identity = identity
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

    def _agents(self, node: int) -> tuple[int, ...]:
        return self.cluster.agents_of_node(node)

    async def _follow(self, node: int) -> None:
        """One node until it has finished. Whatever ends this early ends the run: nobody else would hear of it."""
        address = self.cluster.addresses[node]
        try:
            await self._attend_again_and_again(node, address)
        except grpc.aio.AioRpcError as error:
            self._fail(f"node {node} ({address}): {error.details()}")
        except Exception as error:
            self._fail(f"node {node} ({address}): {type(error).__name__}: {error}")

    def _fail(self, why: str) -> None:
        self._failure = why
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
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, BACKOFF_MOST)

    async def _attend(self, node: int, control: Any) -> None:
        """One life of a node: prepare it, then hear of it, while credit goes out beside that."""
        run, seen = self.run_id, self.seen[node]
        reply = await control.Prepare(wire_pb2.PrepareRequest(run=run, digest=self.digest), timeout=CALL_SECONDS)
        seen.round, seen.allowed, seen.reason, seen.prepared = reply.round, reply.allowed, reply.reason, True
        if all(other.prepared for other in self.seen.values()):
            self._prepared.set()
        await self._prepared.wait()
        releasing = asyncio.create_task(self._release(control))
        try:
            async for report in control.Watch(wire_pb2.WatchRequest(run=run)):
                self._hear(node, report)
                if releasing.done():
                    releasing.result()  # what went wrong with it, if anything did
        finally:
            releasing.cancel()
            await asyncio.wait({releasing})

    async def _release(self, control: Any) -> None:
        """Hand out credit as the slowest node comes on, half a window at a time, until the end has been named."""
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
        seen.frames, seen.bytes, seen.refused = report.frames_sent, report.bytes_sent, report.refused
        if report.diverged:
            self.diverged = True
        elif report.failure:
            self._fail(f"node {node}: {report.failure}")
        self._news.set()
        self._moved.set()
        self._moved = asyncio.Event()

    def _credit(self) -> tuple[int, bool]:
        """Up to which round, and whether that is the end."""
        until = min(self.round + self.window, self.last.allowed)
        return until, until == self.last.allowed


async def stop(cluster: Cluster, run_id: str, identity: Identity | None = None) -> None:
    """Tell every node that the run is over; one that does not answer has ended already."""

    async def one(node: int, address: str) -> None:
        async with open_channel(identity, address, node_name(cluster.agents_of_node(node)), CHANNEL_OPTIONS) as channel:
            with suppress(grpc.aio.AioRpcError):
                request = wire_pb2.StopRequest(run=run_id)
                await wire_pb2_grpc.ControlStub(channel).Stop(request, timeout=_STOP_SECONDS)

    await asyncio.gather(*(one(node, address) for node, address in cluster.nodes().items()))
