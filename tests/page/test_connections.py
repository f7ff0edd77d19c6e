"""A real server and clients that mean no good: slow ones, huge ones, and those that look for other files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from dpp2.page import connection
from dpp2.page.address import Address
from dpp2.page.app import playground_app, watch_app
from dpp2.page.guard import Door, Guard
from dpp2.page.place import Place
from dpp2.page.playground import Playground
from dpp2.page.serve import served
from dpp2.page.watching import Watching
from dpp2.page.worker import Worker

DOOR = Door.of(["127.0.0.1"])
HOST = b"Host: 127.0.0.1\r\n"


class Idle(Worker):
    """Nothing is computed here, so that no process is started."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def do(self, work: str, *given: object) -> str:
        self.asked.append(work)
        return "{}"

    def prepare(self, module: str) -> None:
        """Nothing is loaded."""

    def stop(self) -> None:
        """Nothing runs."""


@asynccontextmanager
async def server(app: Guard) -> AsyncIterator[int]:
    """Its port, while it serves."""
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()

    async def until() -> None:
        await ended.wait()

    serving = asyncio.create_task(served(app, Address(), told.set_result, until))
    try:
        yield int((await asyncio.wait_for(told, 20)).rstrip("/").rpartition(":")[2])
    finally:
        ended.set()
        await asyncio.wait_for(serving, 20)


@pytest.fixture
def watched(tmp_path: Path) -> Guard:
    worker = Idle()
    return watch_app(Watching(Place(tmp_path), worker), worker, DOOR)


async def sent(port: int, request: bytes) -> bytes:
    """All that comes back until the server closes, or has said something and falls silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = b""
    with suppress(TimeoutError, ConnectionError):
        while part := await asyncio.wait_for(reader.read(1 << 16), 1.0 if answer else 20.0):
            answer += part
    writer.close()
    return answer


def asking(path: str, *headers: bytes) -> bytes:
    return b"".join([b"GET ", path.encode(), b" HTTP/1.1\r\n", HOST, *(line + b"\r\n" for line in headers), b"\r\n"])


@pytest.mark.parametrize(
    "path",
    [
        "/static/../guard.py",
        "/static/%2e%2e/guard.py",
        "/static/..%2fguard.py",
        "/static//etc/passwd",
        "//etc/passwd",
        "/static/",
        "/static/style.css/",
        "/static/style.css%00.py",
        "/events.jsonl",
        "http://127.0.0.1/static/../guard.py",
    ],
)
async def test_no_path_leads_to_another_file(path: str, watched: Guard) -> None:
    async with server(watched) as port:
        answer = await sent(port, asking(path, b"Connection: close"))
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"root:" not in answer


@pytest.mark.parametrize(
    "request_",
    [
        asking("/", b"X-Long: " + b"a" * 200_000),
        asking("/", *[b"X-%d: a" % n for n in range(20_000)]),
        asking("/" + "a" * 200_000),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n",  # somebody tries TLS
        b"GET / HTTP/1.1\r\n\r\n",  # no Host
    ],
)
async def test_what_is_too_large_or_no_request_is_refused_at_once(request_: bytes, watched: Guard) -> None:
    async with server(watched) as port:
        assert (await sent(port, request_)).startswith(b"HTTP/1.1 4")
        assert (await sent(port, asking("/"))).startswith(b"HTTP/1.1 200 ")


async def test_a_hundred_slow_clients_keep_nobody_out_and_are_closed(
    watched: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_LOOK_SECONDS", 1.0)
    async with server(watched) as port:
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        for _, writer in slow:
            writer.write(b"GET / HTTP/1.1\r\nHost: 127")
        assert (await sent(port, asking("/"))).startswith(b"HTTP/1.1 200 ")
        ended = await asyncio.wait_for(asyncio.gather(*(_rest(reader) for reader, _ in slow)), 20)
        assert ended == [b""] * 100
        for _, writer in slow:
            writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """Until the server closes, in whatever way."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_a_second_request_has_to_come_in_time_too(watched: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_LOOK_SECONDS", 0.3)
    async with server(watched) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asking("/mode"))
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        writer.write(b"GET /mode HTTP")
        assert await asyncio.wait_for(_rest(reader), 20) == b""
        writer.close()


async def test_a_stream_that_is_read_is_not_closed(watched: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_LOOK_SECONDS", 0.1)
    async with server(watched) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asking("/events"))
        await reader.readuntil(b"event: state")
        await asyncio.sleep(1.0)
        assert not reader.at_eof()
        writer.close()


@pytest.mark.parametrize("last", [b"\xff\xfe", b"-" * 1000, b"1" * 5000, b"' OR 1", b"\xc2\xb2-\xc2\xb2"])
async def test_whatever_a_browser_says_it_had_last_it_gets_the_state(last: bytes, watched: Guard) -> None:
    async with server(watched) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asking("/events", b"Last-Event-ID: " + last))
        assert b"event: state" in await asyncio.wait_for(reader.readuntil(b"event: state"), 20)
        writer.close()


async def test_a_link_on_another_site_leads_to_the_page_and_makes_nobody_compute() -> None:
    worker = Idle()
    followed = (b"Sec-Fetch-Site: cross-site", b"Sec-Fetch-Mode: navigate")
    async with server(playground_app(Playground(worker), worker, DOOR)) as port:
        assert (await sent(port, asking("/", *followed))).startswith(b"HTTP/1.1 200 ")
        before = len(worker.asked)
        assert (await sent(port, asking("/play?agents=199", *followed))).startswith(b"HTTP/1.1 403 ")
        assert len(worker.asked) == before
