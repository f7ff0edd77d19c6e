"""Viewers are few, and none of them is waited for; whoever comes back gets what it missed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dpp2.page import stream
from dpp2.page.feed import KEPT, MOST_VIEWERS, MOST_WAITING, Feed, TooManyViewers, Viewer
from dpp2.page.stream import EventStream


def told(viewer: Viewer) -> list[tuple[str, str]]:
    found = []
    while not viewer.waiting.empty():
        message = viewer.waiting.get_nowait()
        found.append((message.kind, message.data))
    return found


@pytest.fixture
def feed() -> Feed:
    return Feed(lambda: '"everything"')


async def test_a_new_viewer_gets_everything_and_then_what_is_new(feed: Feed) -> None:
    feed.publish("progress", "1")
    viewer = feed.join()
    feed.publish("progress", "2")
    assert told(viewer) == [("state", '"everything"'), ("progress", "2")]


async def test_one_that_comes_back_gets_what_it_missed(feed: Feed) -> None:
    first = feed.join()
    feed.publish("progress", "1")
    assert first.waiting.get_nowait().kind == "state"
    last = first.waiting.get_nowait().id
    feed.leave(first)
    feed.publish("progress", "2")
    feed.publish("account", "3")
    assert told(feed.join(last)) == [("progress", "2"), ("account", "3")]
    assert told(feed.join(feed.join(last).waiting.get_nowait().id)) == [("account", "3")]


@pytest.mark.parametrize("last", ["", "nonsense", "deadbeef-1", "-", "x-99999999999999999999", "٣-٣"])
async def test_one_with_an_id_of_another_server_gets_everything(last: str, feed: Feed) -> None:
    feed.publish("progress", "1")
    assert told(feed.join(last)) == [("state", '"everything"')]


async def test_one_that_was_away_for_too_long_gets_everything(feed: Feed) -> None:
    viewer = feed.join()
    first = viewer.waiting.get_nowait().id
    feed.leave(viewer)
    for n in range(KEPT + 10):
        feed.publish("progress", str(n))
    assert told(feed.join(first)) == [("state", '"everything"')]


async def test_one_that_does_not_keep_up_is_dropped_and_the_others_are_not(feed: Feed) -> None:
    slow, quick = feed.join(), feed.join()
    for n in range(MOST_WAITING + 5):
        feed.publish("progress", str(n))
        told(quick)
    assert slow.dropped.is_set()
    assert not quick.dropped.is_set()
    assert (feed.viewers, feed.dropped) == (1, 1)


async def test_there_is_room_for_so_many(feed: Feed) -> None:
    viewers = [feed.join() for _ in range(MOST_VIEWERS)]
    with pytest.raises(TooManyViewers):
        feed.join()
    feed.leave(viewers[0])
    feed.join()


async def streamed(feed: Feed, viewer: Viewer, until: float, *, reads: bool = True, heartbeat: float = 0.05) -> bytes:
    """What a browser receives in so many seconds; one that does not read takes nothing after the first bytes."""
    received = b""
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal received
        received += message.get("body", b"")
        if not reads and received:
            await asyncio.sleep(60)

    task = asyncio.create_task(EventStream(feed, viewer, heartbeat)({}, receive, send))
    await asyncio.wait({task}, timeout=until)
    gone.set()
    await asyncio.wait_for(task, 60)  # a machine may be busy
    return received


async def test_a_stream_says_when_to_come_back_and_has_a_heartbeat(feed: Feed) -> None:
    received = (await streamed(feed, feed.join(), 1.0)).decode()
    assert received.startswith("retry: 1000\n\n")
    assert 'event: state\ndata: "everything"\n\n' in received
    assert received.count(": still here\n\n") >= 2
    assert feed.viewers == 0  # a browser that has gone is forgotten


async def test_a_stream_to_a_browser_that_does_not_read_ends(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_SEND_SECONDS", 0.1)
    viewer = feed.join()
    began = asyncio.get_running_loop().time()
    await streamed(feed, viewer, 30, reads=False)
    assert asyncio.get_running_loop().time() - began < 10
    assert feed.viewers == 0


async def test_a_place_is_lent_and_not_given(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats fit into buffers for hours, whether somebody reads them or not."""
    monkeypatch.setattr(stream, "PLACE_SECONDS", 0.2)
    viewer = feed.join()
    last = viewer.waiting.get_nowait().id
    received = await streamed(feed, viewer, 30)
    assert b"still here" in received
    assert feed.viewers == 0
    assert told(feed.join(last)) == []  # whoever comes back has missed nothing


async def test_a_viewer_that_is_dropped_has_its_stream_ended(feed: Feed) -> None:
    viewer = feed.join()
    task = asyncio.create_task(streamed(feed, viewer, 30, reads=False))
    await asyncio.sleep(0.05)
    for n in range(MOST_WAITING + 5):
        feed.publish("progress", str(n))
    await asyncio.wait_for(task, 60)  # a machine may be busy
