"""A neighbour that misbehaves: agent 0, with its own certificate, in a process of its own.

`python -m dpp2.studies.bench.hostile_peer` reads its settings as one line of JSON on stdin, then the name of one
abuse after the other, and answers each with the CPU time that it has used so far. It is honest to one node and abuses
the other, and sends both the rows that are due (zeros, which nobody can tell from real ones), so that the run goes on
unless it is the abuse to stop it.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import uvloop

from dpp2.node.codec import encode
from dpp2.node.limits import CHANNEL_OPTIONS, STREAMS
from dpp2.node.links import STREAM_ENDED
from dpp2.node.peers import EXCHANGE
from dpp2.node.tls import Identity, node_name, open_channel
from dpp2.node.v1 import wire_pb2, wire_pb2_grpc

_OFTEN = 1.0  # seconds between two bad frames: each costs the neighbour its stream, and its rows are late
_AT_ONCE = 64  # calls of a flood
_STREAMS = 1000
_CONNECTIONS = 60  # of a flood of them
_WRONG: list[dict[str, str]] = [{"need": "-1"}, {"need": "9" * 4000}, {"agents": "1"}, {"run": "0"}, {"agents": "x"}]
_RELEASE = "/dpp2.node.v1.Control/Release"
_HANDSHAKE = 20_000  # bytes that pass before a line becomes slow


@dataclass(frozen=True)
class Target:
    """A node, and what its neighbour 0 knows of the run."""

    agent: int
    address: str
    identity: Identity | None
    run: str
    phases: tuple[str, ...]
    dimension: int

    def channel(self, address: str = "") -> Any:
        options = [*CHANNEL_OPTIONS, ("grpc.max_receive_message_length", -1)]
        return open_channel(self.identity, address or self.address, node_name([self.agent]), options)

    def frame(self, n: int, value: float = 0.0) -> bytes:
        """The n-th phase, counted through all rounds."""
        k, phase = divmod(max(n, 0), len(self.phases))
        return encode(self.run, k, self.phases[phase], [0], np.full((1, self.dimension), value))

    def metadata(self, need: int, /, **changes: str) -> tuple[tuple[str, str], ...]:
        said = {"run": self.run, "agents": "0", "need": str(need)} | changes
        return tuple((f"dpp2-{name}", value) for name, value in said.items())


class Honest:
    """Sends what is due as fast as it is taken, reads what comes, and opens a stream again when it ends."""

    lasts: float | None = None  # seconds of one stream

    def __init__(self, target: Target) -> None:
        self.target, self.need = target, 0
        self._bad_at = 0.0

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            address = await stack.enter_async_context(self.way())
            channel = await stack.enter_async_context(self.target.channel(address))
            await asyncio.gather(self.besides(), self._again_and_again(channel))

    async def _again_and_again(self, channel: Any) -> None:
        while True:
            with suppress(*STREAM_ENDED, TimeoutError):
                await self._talk(channel)
            await asyncio.sleep(0.01)

    async def _talk(self, channel: Any) -> None:
        await self.before()
        call = channel.stream_stream(EXCHANGE)(metadata=self.target.metadata(self.need))
        try:
            heard = dict(await call.initial_metadata())
            if "dpp2-need" in heard:
                await self._speak(call, int(heard["dpp2-need"]))
        finally:
            call.cancel()

    async def _speak(self, call: Any, since: int) -> None:
        self.remember(since)
        reader = asyncio.create_task(self.read(call))
        try:
            async with asyncio.timeout(self.lasts):
                for n in count(since * len(self.target.phases)):
                    for said in self.say(n):
                        await call.write(said)
        finally:
            reader.cancel()

    def now_and_then(self) -> bool:
        now = asyncio.get_running_loop().time()
        due = now > self._bad_at + _OFTEN
        self._bad_at = now if due else self._bad_at
        return due

    # -- what abuse changes ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def way(self) -> AsyncIterator[str]:
        """The address to dial."""
        yield self.target.address

    async def before(self) -> None:
        """Before a stream is opened."""

    async def besides(self) -> None:
        """All the while."""

    def remember(self, need: int) -> None:
        self.need = need

    async def read(self, call: Any) -> None:
        with suppress(*STREAM_ENDED):
            while await call.read() is not grpc.aio.EOF:
                pass

    def say(self, n: int) -> Iterator[bytes]:
        yield self.target.frame(n)


class ThousandStreams(Honest):
    """Opens a thousand streams at once, and goes on with one more."""

    lasts = 2.0

    async def before(self) -> None:
        async with AsyncExitStack() as stack:
            channels = [await stack.enter_async_context(self.target.channel()) for _ in range(4)]
            said = self.target.metadata(self.need)
            calls = [channels[n % 4].stream_stream(EXCHANGE)(metadata=said) for n in range(_STREAMS)]
            await asyncio.sleep(0.2)
            for call in calls:
                call.cancel()


class NeverReads(Honest):
    async def read(self, call: Any) -> None:
        await asyncio.Event().wait()


class ReadsAFrameASecond(Honest):
    async def read(self, call: Any) -> None:
        with suppress(*STREAM_ENDED):
            while await call.read() is not grpc.aio.EOF:
                await asyncio.sleep(1)


class ReadsAByteASecond(Honest):
    """So it hears of no room either, and its own rows do not come."""

    @asynccontextmanager
    async def way(self) -> AsyncIterator[str]:
        """By way of somebody who passes a byte a second in one direction."""
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.address.partition(":")
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer, _HANDSHAKE))

    async def _pass(self, source: Any, sink: Any, fast: float = np.inf) -> None:
        with suppress(OSError):
            while content := await source.read(1 << 16 if fast > 0 else 1):
                fast -= len(content)
                sink.write(content)
                await sink.drain()
                await asyncio.sleep(0 if fast > 0 else 1)
        sink.close()


class Garbage(Honest):
    def say(self, n: int) -> Iterator[bytes]:
        yield self.target.frame(n)
        if self.now_and_then():
            yield random.randbytes(len(self.target.frame(n)))


class HugeFrames(Honest):
    def say(self, n: int) -> Iterator[bytes]:
        yield self.target.frame(n)
        if self.now_and_then():
            yield bytes(8 << 20)


class FutureRounds(Honest):
    def say(self, n: int) -> Iterator[bytes]:
        yield self.target.frame(n)
        if self.now_and_then():
            yield from (self.target.frame(n + far) for far in range(50, 100))


class RepeatsOldRounds(Honest):
    def say(self, n: int) -> Iterator[bytes]:
        yield self.target.frame(n)
        if self.now_and_then():
            yield from [self.target.frame(n)] * 200


class WithholdsARound(Honest):
    """All that follows comes."""

    withheld: int | None = None

    def say(self, n: int) -> Iterator[bytes]:
        self.withheld = n + 20 if self.withheld is None else self.withheld
        if n != self.withheld:
            yield self.target.frame(n)


class AbsurdNumbers(Honest):
    def say(self, n: int) -> Iterator[bytes]:
        if self.now_and_then():
            yield self.target.frame(n, random.choice((float("nan"), float("inf"), -(2.0**51), 1e300)))
        yield self.target.frame(n)


class OpensAndCuts(Honest):
    lasts = 0.15


class AsksForEverythingAgain(Honest):
    lasts = 0.5

    def remember(self, need: int) -> None:
        self.need = 0


class FloodsControlCalls(Honest):
    async def besides(self) -> None:
        async with self.target.channel() as channel:
            await asyncio.gather(*(self._calls(channel) for _ in range(_AT_ONCE)))

    async def _calls(self, channel: Any) -> None:
        control = wire_pb2_grpc.ControlStub(channel)
        while True:
            with suppress(grpc.aio.AioRpcError):
                await control.Release(wire_pb2.ReleaseRequest(run=self.target.run, until=10**9, last=True))


class WrongMetadata(FloodsControlCalls):
    async def _calls(self, channel: Any) -> None:
        while True:
            with suppress(*STREAM_ENDED):
                call = channel.stream_stream(EXCHANGE)(metadata=self.target.metadata(0, **random.choice(_WRONG)))
                await call.code()


class FillsConnections(Honest):
    """Keeps all calls of many connections open, and sends on each whatever the node takes without reading it."""

    async def besides(self) -> None:
        async with AsyncExitStack() as stack:
            channels = [await stack.enter_async_context(self.target.channel()) for _ in range(_CONNECTIONS)]
            await asyncio.gather(*(self._push(channel) for channel in channels for _ in range(STREAMS)))

    async def _push(self, channel: Any) -> None:
        """To a method that is the orchestrator's."""
        while True:
            call = channel.stream_stream(_RELEASE)()
            with suppress(*STREAM_ENDED):
                while True:
                    await call.write(bytes(1 << 20))
            await call.code()


class LeavesStreamsUnread(Honest):
    """Opens one stream after the other, and reads none. So no more are opened to it, and its own rows do not come."""

    async def before(self) -> None:
        async with AsyncExitStack() as stack:
            while True:
                channel = await stack.enter_async_context(self.target.channel())
                for _ in range(STREAMS):
                    call = channel.stream_stream(EXCHANGE)(metadata=self.target.metadata(0))
                    await call.initial_metadata()
                    await asyncio.sleep(0.02)


KINDS: dict[str, type[Honest]] = {
    "nothing": Honest,
    "opens 1,000 streams": ThousandStreams,
    "never reads": NeverReads,
    "reads a frame a second": ReadsAFrameASecond,
    "sends garbage": Garbage,
    "sends frames of 8 MB": HugeFrames,
    "sends future rounds": FutureRounds,
    "repeats old rounds": RepeatsOldRounds,
    "sends NaN, ∞ and 2⁵¹": AbsurdNumbers,
    "opens and cuts streams": OpensAndCuts,
    "asks for everything again": AsksForEverythingAgain,
    "floods control calls": FloodsControlCalls,
    "floods wrong metadata": WrongMetadata,
    "fills 60 connections": FillsConnections,
}
STANDING: dict[str, type[Honest]] = {  # the run waits, since rows do not come
    "withholds a round": WithholdsARound,
    "reads a byte a second": ReadsAByteASecond,
    "leaves streams unread": LeavesStreamsUnread,
}


async def main() -> None:
    settings = json.loads(sys.stdin.readline())
    identity = Identity.load(Path(settings["tls"]), []) if settings["tls"] else None
    shared = {"identity": identity, "run": settings["run"], "phases": tuple(settings["phases"])}
    addresses = {int(agent): address for agent, address in settings["addresses"].items()}
    abused, other = (
        Target(agent, address, **shared, dimension=settings["dimension"])
        for agent, address in sorted(addresses.items())
    )
    tasks = [asyncio.create_task(Honest(other).run()), asyncio.create_task(Honest(abused).run())]
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        tasks.pop().cancel()
        tasks.append(asyncio.create_task((KINDS | STANDING)[line](abused).run()))
        print(json.dumps({"cpu": time.process_time()}), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
