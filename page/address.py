"""Where the page is to be found. Loads nothing heavy: a run that only announces its page needs no server."""

from __future__ import annotations

import errno
import os
import socket
import sys
from dataclasses import dataclass
from urllib.parse import quote

from dpp2 import BadInput

LOOPBACK = "127.0.0.1"
_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Address:
    """`port` 0 takes one that is free. `descriptor` is a socket that somebody else has bound already."""

    host: str = LOOPBACK
    port: int = 0
    token: str = ""
    descriptor: int | None = None

    def __post_init__(self) -> None:
        if self.host != LOOPBACK and not self.token:
            raise BadInput("--host", self.host, "--token beside it: without one the page is for this machine alone")
        if self.token and len(self.token) < _SHORTEST_TOKEN:
            raise BadInput("--token", "…", f"at least {_SHORTEST_TOKEN} characters")
        if not 0 <= self.port <= 65535:
            raise BadInput("--port", self.port, "a whole number from 0 to 65535")

    def bound(self) -> socket.socket:
        if self.descriptor is not None:
            return socket.socket(fileno=self.descriptor)
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return socket.create_server((self.host, self.port), family=family)
        except (OSError, UnicodeError) as error:
            number = getattr(error, "errno", None) or 0  # below 0 it is about the name of the host
            reason = os.strerror(number) if number > 0 else getattr(error, "strerror", None) or error
            if number <= 0 or number == errno.EADDRNOTAVAIL:
                why = str(reason).partition(" (while")[0]
                raise BadInput("--host", self.host, f"an address of this machine ({why})") from None
            raise BadInput("--port", self.port, f"a port of {self.host} that is free ({reason})") from None

    def url(self, port: int) -> str:
        host = LOOPBACK if self.host in ("0.0.0.0", "::") else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}/" + (f"?token={quote(self.token, safe='')}" if self.token else "")


def has_screen() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(url: str) -> None:
    """Where there is a screen; elsewhere the URL that was printed must do."""
    if has_screen():
        import webbrowser  # a run that only announces its page has no use for it

        webbrowser.open(url)
