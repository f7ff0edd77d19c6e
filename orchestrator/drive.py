"""Drives synchronous rounds over nodes: prepares them, hands out credit, watches. It never sees a vector.

Strict: one round at a time, for demonstrations. Windowed: a credit of many rounds, within which neighbours keep
each other in step by the data itself. A node that is late, or gone for a while, is waited for and named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc

from node.limits import BACKOFF_MOST, CALL_SECONDS, CHANNEL_OPTIONS
from node.v1 import wire_pb2, wire_pb2_grpc

_RETRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)


class DriveFailed(Exception):
    """The run cannot go on; the message names the node and why."""


@dataclass
class Seen:
    """What is known of one node."""

    round: int = 0
    finished: bool = False
    waiting_for: list[int] = field(default_factory=list)
    frames: int = 0
    bytes: int = 0
    refused: int = 0


class Drive:
    """One run over the nodes at `addresses` (by name)."""

    def __init__(self, addresses: Mapping[int, str], run_id: str, digest: str, *, window: int) -> None:
        self.run_id, self.digest, self.window = run_id, digest, window
        self.seen = {node: Seen() for node in addresses}
        self._addresses = addresses
        self._until = 0
        self._news = asyncio.Event()
        self._failure: str | None = None

    async def run(self, progress: Callable[[Drive], None]) -> None:
        """Until every node has finished; `progress` is called whenever something has been heard."""
        tasks = [asyncio.create_task(self._follow(node)) for node in self._addresses]
        try:
            while not all(seen.finished for seen in self.seen.values()):
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

    def late(self) -> list[int]:
        """Agents that somebody waits for at the round where everything hangs."""
        return sorted({agent for seen in self.seen.values() if seen.round == self.round for agent in seen.waiting_for})

    async def _follow(self, node: int) -> None:
        """Prepare, release and watch one node, again and again if it goes away and comes back."""
        wait = 0.05
        async with grpc.aio.insecure_channel(self._addresses[node], options=CHANNEL_OPTIONS) as channel:
            control = wire_pb2_grpc.ControlStub(channel)
            while not self.seen[node].finished:
                try:
                    await self._attend(node, control)
                    wait = 0.05
                except grpc.aio.AioRpcError as error:
                    if error.code() not in _RETRY:
                        self._failure = f"node {node} ({self._addresses[node]}): {error.details()}"
                        self._news.set()
                        return
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, BACKOFF_MOST)

    async def _attend(self, node: int, control: Any) -> None:
        run, seen = self.run_id, self.seen[node]
        reply = await control.Prepare(wire_pb2.PrepareRequest(run=run, digest=self.digest), timeout=CALL_SECONDS)
        seen.round = reply.round
        released = 0
        async for report in control.Watch(wire_pb2.WatchRequest(run=run)):
            self._hear(node, report)
            while self.window == 1 and not seen.finished and seen.round >= self._credit():
                await asyncio.sleep(0.001)  # strict: wait for the slowest
            if released < (until := self._credit()):
                await control.Release(wire_pb2.ReleaseRequest(run=run, until=until), timeout=CALL_SECONDS)
                released = until

    def _hear(self, node: int, report: Any) -> None:
        seen = self.seen[node]
        seen.round, seen.finished, seen.waiting_for = report.round, report.finished, list(report.waiting_for)
        seen.frames, seen.bytes, seen.refused = report.frames_sent, report.bytes_sent, report.refused
        if report.failure:
            self._failure = f"node {node}: {report.failure}"
        self._news.set()

    def _credit(self) -> int:
        return self.round + self.window


async def stop(addresses: Mapping[int, str], run_id: str) -> None:
    """Tell every node that the run is over; one that does not answer has ended already."""

    async def one(address: str) -> None:
        async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            with suppress(grpc.aio.AioRpcError):
                await wire_pb2_grpc.ControlStub(channel).Stop(wire_pb2.StopRequest(run=run_id), timeout=5)

    await asyncio.gather(*(one(address) for address in addresses.values()))
