"""One connection of a browser, which ends when nothing moves on it: places are few, and nobody may sit on one.

uvicorn waits for the rest of a request, and for a reader that does not read, for as long as it takes. A hundred clients
that send half a line each would have the page to themselves.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

_LOOK_SECONDS = 10.0


class Connection(H11Protocol):
    """Looked at every ten seconds; one that stands where it stood is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._stood: tuple[object, int] = (None, 0)
        self._later()

    def _later(self) -> None:
        self._look = self.loop.call_later(_LOOK_SECONDS, self._look_at_it)

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    def _look_at_it(self) -> None:
        """While an answer is being made the browser may wait; it has to take what there is, and to ask in time."""
        unread = self.transport.get_write_buffer_size()
        making = self.cycle is not None and not self.cycle.response_complete and not unread
        stands = self.cycle, unread
        if stands == self._stood and not making:
            self.transport.abort()
            return
        self._stood = stands
        self._later()
