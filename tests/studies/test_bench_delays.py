"""The relays of `dpp2 bench network` that hand everything on later."""

from __future__ import annotations

import asyncio
import time

from dpp2.studies.bench.delays import DelayingRelays, measured_delay


async def test_a_relay_hands_everything_on_in_order_and_not_before_its_time() -> None:
    heard = bytearray()
    whole = bytes(range(256)) * 20_000  # more than a direction holds

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            heard.extend(data)
            arrived.append(time.perf_counter())
            if len(heard) == len(whole):
                over.set()
        writer.close()

    over, arrived = asyncio.Event(), list[float]()
    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    relays = DelayingRelays(0.05)
    links = await relays.start({0: "127.0.0.1:1", 1: f"127.0.0.1:{server.sockets[0].getsockname()[1]}"}, [(0, 1)])
    _, writer = await asyncio.open_connection("127.0.0.1", int(links[0, 1].split(":")[1]))
    began = time.perf_counter()
    writer.write(whole)
    async with asyncio.timeout(30):
        await over.wait()
    writer.close()
    await relays.stop()
    server.close()
    await server.wait_closed()
    assert bytes(heard) == whole
    assert arrived[0] - began >= 0.045


async def test_the_delay_is_measured() -> None:
    assert await measured_delay(0.01) >= 0.009
