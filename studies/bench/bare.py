"""What gRPC itself costs: the streams of a run with nothing behind them.

`python -m dpp2.studies.bench.bare` hosts agents that send the same frame to every neighbour in each of two phases a
round and wait for theirs, as synchronous rounds do: no state, no checks, no records. Same processes, settings of
gRPC and Python, frame bytes and one stream per pair as the nodes it is compared with. Settings come as one line of JSON
on stdin, ports go out and come in the same way; then every line is a number of rounds, answered by the seconds they
took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

import grpc
import uvloop

from dpp2.node.limits import CHANNEL_OPTIONS, SERVER_OPTIONS
from dpp2.node.process import ready_for_rounds

_LARGEST = ("grpc.max_receive_message_length", -1)


class Agent:
    def __init__(self, agent: int, neighbours: list[int]) -> None:
        self.agent, self.neighbours = agent, neighbours
        self.writes: dict[int, Any] = {}
        self.arrived: Counter[int] = Counter()  # by phase, counted through all rounds
        self.changed = asyncio.Event()

    async def listen(self) -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server(options=[*SERVER_OPTIONS, _LARGEST])
        handler: Any = grpc.stream_stream_rpc_method_handler(self.answer)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", {"Exchange": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port

    async def answer(self, _: Any, context: Any) -> None:
        await context.send_initial_metadata(())
        await self.speak(int(dict(context.invocation_metadata())["agent"]), context.read, context.write)

    async def dial(self, peer: int, address: str) -> None:
        async with grpc.aio.insecure_channel(address, options=[*CHANNEL_OPTIONS, _LARGEST]) as channel:
            call: Any = channel.stream_stream("/bare/Exchange")(metadata=(("agent", str(self.agent)),))
            await call.initial_metadata()
            await self.speak(peer, call.read, call.write)

    async def speak(self, peer: int, read: Any, write: Any) -> None:
        self.writes[peer] = write
        self.changed.set()
        phase = 0
        while await read() is not grpc.aio.EOF:
            self.arrived[phase] += 1
            if self.arrived[phase] == len(self.neighbours):
                self.changed.set()
            phase += 1

    async def rounds(self, first: int, last: int, frame: bytes) -> None:
        while len(self.writes) < len(self.neighbours):
            await self.wait()
        for phase in range(2 * first, 2 * last):
            await asyncio.gather(*(write(frame) for write in self.writes.values()))
            while self.arrived[phase] < len(self.neighbours):
                await self.wait()
            del self.arrived[phase]

    async def wait(self) -> None:
        self.changed.clear()
        await self.changed.wait()


async def main() -> None:
    settings = json.loads(sys.stdin.readline())
    agents = [Agent(agent, settings["neighbours"][str(agent)]) for agent in settings["agents"]]
    servers = [await agent.listen() for agent in agents]
    print(json.dumps({agent.agent: port for agent, (_, port) in zip(agents, servers, strict=True)}), flush=True)
    ports = json.loads(await asyncio.to_thread(sys.stdin.readline))
    dialled = [(one, peer) for one in agents for peer in one.neighbours if one.agent < peer]
    streams = [asyncio.create_task(one.dial(peer, f"127.0.0.1:{ports[str(peer)]}")) for one, peer in dialled]
    if settings["tuned"]:
        ready_for_rounds()
    done, frame = 0, bytes(settings["bytes"])
    while line := await asyncio.to_thread(sys.stdin.readline):
        began, last = time.perf_counter(), done + int(line)
        await asyncio.gather(*(agent.rounds(done, last, frame) for agent in agents))
        done = last
        print(time.perf_counter() - began, flush=True)
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*(server.stop(None) for server, _ in servers), return_exceptions=True)


if __name__ == "__main__":
    uvloop.run(main())
