"""Who may see the page: this machine's own browser, by the name of this machine; others only with the token.

A name that leads to 127.0.0.1 is no proof that a page of ours is asked for (DNS rebinding), so the Host header must be
one that this server knows. Everything is read-only; even so a page of another site gets nothing: no CORS header is ever
sent, and a request that says it comes from another site is refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "dpp2-page"
# Scripts, styles, pictures and connections from this server alone, and nothing inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Door:
    """By which names, and with which token, the page may be asked for."""

    names: frozenset[str]  # without a port
    token: str = ""  # none: loopback only

    @classmethod
    def of(cls, names: Iterable[str], token: str = "") -> Door:
        return cls(frozenset(name.lower() for name in names), token)

    def knows(self, host: str) -> bool:
        """A token cannot be guessed, so with one any name will do; without, only this machine's own."""
        return bool(self.token) or _name(host) in self.names

    def fits(self, token: str) -> bool:
        return not self.token or hmac.compare_digest(token.encode(), self.token.encode())


def _name(host: str) -> str:
    """Of a Host header: the name without the port, and without the brackets of IPv6."""
    name, colon, port = host.rpartition(":")
    bare = name if colon and port.isdecimal() else host
    return bare.removeprefix("[").removesuffix("]").lower()


class Guard:
    """Stands before everything that the page serves."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._refusal(Request(scope))
        await (answer or self._app)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """None: it may go on."""
        if request.method not in ("GET", "HEAD"):
            return _said("this page only answers GET", 405)
        if not self._door.knows(request.headers.get("host", "")):
            return _said("this page is not known by that name: ask for it at 127.0.0.1", 421)
        elsewhere = request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        followed = request.headers.get("sec-fetch-mode") == "navigate" and request.url.path == "/"  # a link to the page
        if elsewhere and not followed:
            return _said("this page answers no other site", 403)
        return self._without_token(request)

    def _without_token(self, request: Request) -> Response | None:
        """The token comes once in the address and is then kept as a cookie, so that it stays in no history."""
        given = request.query_params.get("token")
        if given is None or not self._door.token:
            if self._door.fits(unquote(request.cookies.get(_cookie(request), ""))):
                return None
            return _said("this page takes the token that was printed when it began: open it with ?token=…", 401)
        if not self._door.fits(given):
            return _said("that is not the token of this page", 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(_cookie(request), quote(given, safe=""), httponly=True, samesite="lax")
        return answer


def _cookie(request: Request) -> str:
    """A browser has the same cookies for all ports of a machine, and each may have a page with its own token."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}-{port if port.isdecimal() and port.isascii() else 80}"


def _said(text: str, status: int) -> Response:
    return PlainTextResponse(text + "\n", status, {"cache-control": "no-store"})
