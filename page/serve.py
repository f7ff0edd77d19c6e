"""Starts the page: a socket, a server on it, and a browser if there is one."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from dpp2 import BadInput
from dpp2.page.guard import Door, Guard

LOOPBACK = "127.0.0.1"
_NAMES = ("127.0.0.1", "localhost", "::1")
_SHORTEST_TOKEN = 16
_MOST_CONNECTIONS = 128


@dataclass(frozen=True)
class Address:
    """Where the page is to be found. `port` 0 takes one that is free."""

    host: str = LOOPBACK
    port: int = 0
    token: str = ""

    def __post_init__(self) -> None:
        if self.host != LOOPBACK and not self.token:
            raise BadInput("--host", self.host, "--token beside it: without one the page is for this machine alone")
        if self.token and len(self.token) < _SHORTEST_TOKEN:
            raise BadInput("--token", "…", f"at least {_SHORTEST_TOKEN} characters")
        if not 0 <= self.port <= 65535:
            raise BadInput("--port", self.port, "a whole number from 0 to 65535")

    @property
    def door(self) -> Door:
        return Door.of(_NAMES, self.token)

    def bound(self) -> socket.socket:
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return socket.create_server((self.host, self.port), family=family)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BadInput("--port", f"{self.host}:{self.port}", f"an address that is free ({reason})") from None

    def url(self, port: int) -> str:
        host = LOOPBACK if self.host in ("0.0.0.0", "::") else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}/" + (f"?token={self.token}" if self.token else "")


class _Server(uvicorn.Server):
    """Ends in order when it is told to. uvicorn would let the signal kill the process afterwards, worker and all."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, setattr, self, "should_exit", True)
        yield


def serve(
    app: Guard,
    address: Address,
    announce: Callable[[str], None],
    until: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Until somebody ends it, or `until` has come. `announce` hears the URL when the page can be asked for."""
    listening = address.bound()
    url = address.url(listening.getsockname()[1])
    server = _Server(
        uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="on",
            http="h11",
            ws="none",
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=1,
            server_header=False,
        )
    )

    async def run() -> None:
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        announce(url)
        ending = asyncio.ensure_future(_end(server, until)) if until else None
        try:
            await serving
        finally:
            if ending:
                ending.cancel()

    asyncio.run(run())


async def _end(server: uvicorn.Server, until: Callable[[], Awaitable[None]]) -> None:
    await until()
    server.should_exit = True


def open_browser(url: str) -> None:
    """Where there is a screen; elsewhere the URL that was printed must do."""
    if sys.platform != "darwin" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    webbrowser.open(url)
