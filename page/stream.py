"""Server-sent events to one viewer, until it goes or does not keep up."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import Receive, Scope, Send

from dpp2.page.feed import Feed, Viewer

HEARTBEAT_SECONDS = 5.0
PLACE_SECONDS = 600.0  # what a browser that does not read was sent may all be in buffers: places are lent, not given
_SEND_SECONDS = 10.0  # a browser that takes longer to accept a message is not reading
_AGAIN_MILLISECONDS = 1000  # after which a browser that has lost the stream asks again


class EventStream:
    """A response that goes on for as long as somebody looks."""

    def __init__(self, feed: Feed, viewer: Viewer, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        """Ends after `PLACE_SECONDS`: a browser comes back by itself, and gets what it missed meanwhile."""
        self._feed, self._viewer, self._heartbeat = feed, viewer, heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = [
            asyncio.ensure_future(work) for work in (self._tell(send), _gone(receive), self._viewer.dropped.wait())
        ]
        try:
            await asyncio.wait(tasks, timeout=PLACE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._feed.leave(self._viewer)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(send({"type": "http.response.body", "body": b"", "more_body": False}), 1.0)

    async def _tell(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._body(send, f"retry: {_AGAIN_MILLISECONDS}\n\n".encode())
        while True:
            try:
                message = await asyncio.wait_for(self._viewer.waiting.get(), self._heartbeat)
                await self._body(send, message.encoded())
            except TimeoutError:
                await self._body(send, b": still here\n\n")

    async def _body(self, send: Send, content: bytes) -> None:
        sending = send({"type": "http.response.body", "body": content, "more_body": True})
        try:
            await asyncio.wait_for(sending, _SEND_SECONDS)
        except TimeoutError:
            raise ConnectionError("the browser does not read") from None


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
