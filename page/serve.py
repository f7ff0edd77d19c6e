"""Starts the page: a server on a socket, until somebody ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import uvicorn

from dpp2.page.address import Address
from dpp2.page.connection import Connection
from dpp2.page.guard import Door, Guard

_NAMES = ("127.0.0.1", "localhost", "::1")
_MOST_CONNECTIONS = 128


def door_of(address: Address) -> Door:
    return Door.of(_NAMES, address.token)


class _Server(uvicorn.Server):
    """Ends in order when it is told to. uvicorn would let the signal kill the process afterwards, worker and all."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, setattr, self, "should_exit", True)
        yield


Announce = Callable[[str], None]
Until = Callable[[], Awaitable[None]]


def serve(app: Guard, address: Address, announce: Announce, until: Until | None = None) -> None:
    """Until somebody ends it, or `until` has come. `announce` hears the URL when the page can be asked for."""
    asyncio.run(served(app, address, announce, until))


async def served(app: Guard, address: Address, announce: Announce, until: Until | None = None) -> None:
    listening = address.bound()
    server = _Server(_config(app))
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    announce(address.url(listening.getsockname()[1]))
    ending = asyncio.ensure_future(_end(server, until)) if until else None
    try:
        await serving
    finally:
        if ending:
            ending.cancel()


def _config(app: Guard) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        lifespan="on",
        http=Connection,
        ws="none",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=1,
        server_header=False,
    )


async def _end(server: uvicorn.Server, until: Until) -> None:
    await until()
    server.should_exit = True
