"""A TCP relay per link: forwards bytes unchanged in both directions and records them. The agents cannot tell.

Bytes are written down before they are passed on, so whatever an agent received through a relay is in its record. What
one side does the other side sees: bytes, the end of one direction, a reset. A relay that dies cuts its links; the
agents dial again, and one that starts anew on the same addresses serves them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import cast

from dpp2.adversary.tap.record import Kind, Opening, WireRecorder
from dpp2.errors import BadInput

log = logging.getLogger("dpp2.tap")

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: do not wait, send a reset


class Relay:
    """Listeners for any number of links, one record for all of them."""

    def __init__(self, folder: Path) -> None:
        self.recorder = WireRecorder(folder)
        self._servers: list[asyncio.Server] = []
        self._numbers = count(1)
        self._sides: set[_Side] = set()
        self._dialling: set[asyncio.Task[None]] = set()
        self._answered: set[str] = set()  # links whose target has been reached once: it will be back

    @property
    def deserted(self) -> bool:
        """Whether there have been conversations, and there are none now."""
        return bool(self._answered) and not self._sides

    @property
    def lonely(self) -> bool:
        """Whether nobody is connected now."""
        return not self._sides

    async def open(self, link: str, target: str, listen: str = "127.0.0.1:0") -> str:
        """Relay one link, such as "3-7"; returns the address that the dialling side must use."""
        host, port = split_address("--link", listen)
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(lambda: _Side(self, link, target), host, port)
        except OSError as error:
            raise BadInput("--link", f"{link}={listen}", f"an address to listen on ({error.strerror})") from None
        self._servers.append(server)
        return f"{listen.rpartition(':')[0]}:{server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Stop listening, cut what is open, end the record."""
        for server in self._servers:
            server.close()
        for task in self._dialling:
            task.cancel()
        await asyncio.gather(*self._dialling, return_exceptions=True)
        for side in list(self._sides):
            side.reset()
        while self._sides:
            await asyncio.sleep(0)
        self.recorder.close()

    def accepted(self, side: _Side) -> None:
        """Somebody has dialled: dial on."""
        task = asyncio.get_running_loop().create_task(self._join(side, next(self._numbers)))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _join(self, side: _Side, number: int) -> None:
        host, port = split_address("--link", side.target)
        try:
            _, other = await asyncio.get_running_loop().create_connection(lambda: _Side(self, side.link), host, port)
        except OSError as error:
            if side.link not in self._answered:
                log.warning("link %s: %s does not answer (%s)", side.link, side.target, error.strerror or error)
            side.reset()  # the dialler sees what it would have seen without us, and tries again
            return
        self._answered.add(side.link)
        if side.transport.is_closing():  # the relay is being closed
            other.reset()
            return
        self.recorder.opened(number, Opening(side.link, side.peer_name, side.target))
        side.join(other, number, Kind.FORWARD)
        other.join(side, number, Kind.BACK)
        side.catch_up()
        other.catch_up()

    def track(self, side: _Side, alive: bool) -> None:
        (self._sides.add if alive else self._sides.discard)(side)


class _Side(asyncio.Protocol):
    """One of the two sockets of a relayed connection; with a target it is the one that was accepted."""

    transport: asyncio.Transport
    other: _Side
    number = 0  # of the connection, once joined
    kind: Kind

    def __init__(self, relay: Relay, link: str, target: str = "") -> None:
        self.relay, self.link, self.target = relay, link, target
        self.ended = False
        self._early: list[bytes] = []

    @property
    def peer_name(self) -> str:
        return "{}:{}".format(*self.transport.get_extra_info("peername")[:2])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's does not derive from it
        self.relay.track(self, alive=True)
        if self.target:
            self.relay.accepted(self)

    def join(self, other: _Side, number: int, kind: Kind) -> None:
        self.other, self.number, self.kind = other, number, kind

    def catch_up(self) -> None:
        """Pass on what came before both sides were there."""
        for data in self._early:
            self.data_received(data)
        self._early.clear()
        if self.ended:
            self.eof_received()

    def data_received(self, data: bytes) -> None:
        if not self.number:
            self._early.append(data)
            return
        self.relay.recorder.append(self.number, self.kind, data)
        self.other.transport.write(data)

    def eof_received(self) -> bool:
        """This side says no more; the other direction may still be in use."""
        self.ended = True
        if not self.number:
            return True
        self.relay.recorder.append(self.number, Kind.FORWARD_END if self.kind is Kind.FORWARD else Kind.BACK_END)
        if self.other.ended:
            self.transport.close()
            self.other.transport.close()
        elif self.other.transport.can_write_eof():
            self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        """The receiver is slower than the sender: read no more from the sender for now."""
        if self.number and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.number and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def reset(self) -> None:
        link = self.transport.get_extra_info("socket")
        if link is not None and not self.transport.is_closing():
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.relay.track(self, alive=False)
        if not self.number:
            return
        if not self.other.transport.is_closing():
            self.relay.recorder.append(self.number, Kind.CLOSED, str(error or "").encode())
            self.other.reset() if error is not None else self.other.transport.close()


def split_address(field: str, address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise BadInput(field, address, 'an address such as "10.0.0.1:7000"')
    return host.strip("[]"), int(port)  # brackets: an IPv6 address


def parse_link(text: str) -> tuple[str, str, str]:
    """(link, listen, target) of "3-7=LISTEN,TARGET"."""
    link, equals, addresses = text.partition("=")
    listen, comma, target = addresses.partition(",")
    agents = link.split("-")
    if not equals or not comma or len(agents) != 2 or not all(agent.isdecimal() for agent in agents):
        raise BadInput("--link", text, "I-J=LISTEN,TARGET, as in 3-7=0.0.0.0:7100,10.0.0.7:7000")
    for address in (listen, target):
        split_address("--link", address)
    return link, listen, target


async def open_all(relay: Relay, links: Iterable[str]) -> dict[str, str]:
    """Open the links given as on the command line; their local addresses by name."""
    wanted = [parse_link(text) for text in links]
    return {link: await relay.open(link, target, listen) for link, listen, target in wanted}
