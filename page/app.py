"""What the page answers: its own files, the stream of a run, and the playground's runs. Everything else is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dpp2.adversary.style import STYLE
from dpp2.page.feed import TooManyViewers
from dpp2.page.guard import Door, Guard
from dpp2.page.playground import Playground, Refused
from dpp2.page.stream import EventStream
from dpp2.page.watching import Watching
from dpp2.page.worker import Worker

_STATIC = Path(__file__).parent / "static"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NO_STORE = {"cache-control": "no-store"}

Answer = Callable[[Request], Awaitable[Response]]


def watch_app(watching: Watching, worker: Worker, door: Door) -> Guard:
    """The page of one run."""

    async def mode(request: Request) -> Response:
        return JSONResponse({"mode": "watch", "name": watching.name}, headers=_NO_STORE)

    return _app([Route("/mode", mode), Route("/events", _events(watching))], worker, door, watching.run)


def playground_app(playground: Playground, worker: Worker, door: Door) -> Guard:
    async def mode(request: Request) -> Response:
        return JSONResponse(playground.described(), headers=_NO_STORE)

    async def play(request: Request) -> Response:
        given = dict(request.query_params)
        viewer = given.pop("viewer", "")[:64]
        try:
            found = await playground.play(given, viewer, request.is_disconnected)
        except Refused as refused:
            return PlainTextResponse(str(refused), refused.status, _NO_STORE)
        return Response(found, media_type="application/json", headers=_NO_STORE)

    return _app([Route("/mode", mode), Route("/play", play)], worker, door, playground.warm_up)


def _app(routes: list[Route], worker: Worker, door: Door, work: Callable[[], Awaitable[None]]) -> Guard:
    """With the page's own files; `work` goes on for as long as the server does."""

    @asynccontextmanager
    async def living(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.ensure_future(work())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            worker.stop()

    app = Starlette(routes=[*routes, *_files()], lifespan=living)
    app.router.redirect_slashes = False  # it would send a browser wherever the Host header says
    return Guard(app, door)


def _files() -> list[Route]:
    """Read once: what is not in the folder when the server starts is never served."""
    routes = [Route("/static/shared.css", _file(STYLE.encode(), _KINDS[".css"]))]
    for path in sorted(_STATIC.iterdir()):
        if path.suffix in _KINDS:
            where = "/" if path.name == "index.html" else f"/static/{path.name}"
            routes.append(Route(where, _file(path.read_bytes(), _KINDS[path.suffix])))
    return routes


def _file(content: bytes, kind: str) -> Answer:
    async def answer(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return answer


def _events(watching: Watching) -> Answer:
    async def answer(request: Request) -> Response:
        last = request.headers.get("last-event-id") or request.query_params.get("last", "")
        try:
            viewer = watching.feed.join(last[:64])
        except TooManyViewers:
            return PlainTextResponse("too many pages are open: close one\n", 503, _NO_STORE)
        return EventStream(watching.feed, viewer)  # type: ignore[return-value]  # an ASGI application, like a response

    return answer
