"""A network that takes its time, on one machine: a relay on every link that hands everything on later.

It needs neither rights nor a kernel with netem, so the rows can be measured anywhere. A timer may be a millisecond
late, so the delay is measured, too, by an echo through a relay of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dpp2.prepared import PreparedRun
from dpp2.studies.bench.contenders import REPETITIONS, nodes, separately

_MOST = 1 << 20  # bytes that one direction of a connection holds; then nothing is read until some are due
_ECHOES = 40
_SOON = 2e-4  # seconds by which something may leave too early, rather than a whole tick of the timer too late


@dataclass(frozen=True)
class Delayed:
    """A network with a process for each agent, where everything takes `one_way` seconds, as measured."""

    agents: int
    one_way: float
    rounds_per_second: float
    cpu_per_round: float  # seconds of a node

    @property
    def most(self) -> float:
        """Rounds per second of nodes that need no time: each of a round's two phases waits for one message."""
        return 1 / (2 * self.one_way)

    @property
    def besides(self) -> float:
        """Seconds of a round beyond these two delays."""
        return 1 / self.rounds_per_second - 2 * self.one_way


class DelayingRelays:
    """A `Tap` that hears nothing: a relay in the place of every link."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._servers: list[asyncio.Server] = []
        self._ends: set[_End] = set()

    async def start(
        self, addresses: Mapping[int, str], links: Sequence[tuple[int, int]]
    ) -> Mapping[tuple[int, int], str]:
        return {link: f"127.0.0.1:{await self.to(addresses[max(link)])}" for link in links}  # the higher one listens

    async def to(self, address: str) -> int:
        """The port of a relay to this address."""
        loop, (host, port) = asyncio.get_running_loop(), address.split(":")

        def answered() -> _End:
            dialled = _End(self._seconds, self._ends)
            here = _End(self._seconds, self._ends, dialled)
            here.dialling = asyncio.ensure_future(loop.create_connection(lambda: dialled, host, int(port)))
            return here

        server = await loop.create_server(answered, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for end in list(self._ends):
            end.close()
        await asyncio.gather(*(server.wait_closed() for server in self._servers))

    def finish(self, run: Path) -> object:
        return None


class _End(asyncio.Protocol):
    """One end of a connection: what it hears, the other end says so many seconds later."""

    def __init__(self, seconds: float, open_ends: set[_End], other: _End | None = None) -> None:
        self._seconds, self._open = seconds, open_ends
        self._other = other
        if other is not None:
            other._other = self
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[float, bytes]] = deque()  # when something is due, and what
        self._held = 0  # bytes of these
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.dialling: asyncio.Future[Any] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        self._waiting.append((self._loop.time() + self._seconds, data))
        self._held += len(data)
        if self._held > _MOST and self._transport is not None:
            self._transport.pause_reading()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._hand_on)

    def _hand_on(self) -> None:
        assert self._other is not None
        self._timer, sink = None, self._other._transport
        while sink is not None and self._waiting and self._waiting[0][0] <= self._loop.time() + _SOON:
            data = self._waiting.popleft()[1]
            self._held -= len(data)
            sink.write(data)
        if self._held <= _MOST and self._transport is not None:
            self._transport.resume_reading()
        if self._waiting:
            wait = max(self._waiting[0][0] - self._loop.time(), _SOON)  # not there yet: it is being dialled
            self._timer = self._loop.call_later(wait, self._hand_on)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other end goes, too. What is still waiting is lost, as with a line that is cut."""
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._other is not None:
            self._other.close()

    def close(self) -> None:
        if self.dialling is not None:
            self.dialling.cancel()
        if self._transport is not None:
            self._transport.close()


async def measured_delay(seconds: float) -> float:
    """One way through a relay, as it is here and now: half of the median time of an echo."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    relays, times = DelayingRelays(seconds), []
    try:
        port = await relays.to(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(_ECHOES):
            began = time.perf_counter()
            writer.write(b"?")
            await reader.readexactly(1)
            times.append(time.perf_counter() - began)
        writer.close()
    finally:
        await relays.stop()
        server.close()
        await server.wait_closed()
    return median(times) / 2


async def delayed(prepared: PreparedRun, seconds: float) -> Delayed:
    """A process for each agent, with a relay on every link."""
    agents, rounds = prepared.graph.agents, max(10, min(100, int(1 / seconds)))
    one_way = await measured_delay(seconds)
    async with nodes(prepared, separately(agents, agents), tap=DelayingRelays(seconds)) as side:
        await side.block(max(5, rounds // 5))
        before = sum(used.cpu for used in await side.used())
        rates = [rounds / await side.block(rounds) for _ in range(REPETITIONS)]
        cpu = sum(used.cpu for used in await side.used()) - before
    return Delayed(agents, one_way, median(rates), cpu / (agents * rounds * REPETITIONS))
