"""The page beside a run in containers: on this machine's loopback alone, with a token, and nothing that is private."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.docker.containers import Project

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

PORT = 8321


@pytest.fixture(scope="module")
def shown(project: Callable[..., Project]) -> Iterator[Project]:
    whole = project()
    whole.compose("--profile", "page", "up", "-d", "--no-color")
    yield whole
    whole.compose("--profile", "page", "down", "--volumes", "--timeout", "2")


def token(project: Project) -> str:
    lines = (project.folder / ".env").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("DPP2_PAGE_TOKEN="))


@contextmanager
def asked(path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    """As soon as somebody answers."""
    ends = time.monotonic() + 120
    while True:
        with closing(http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)) as connection:
            try:
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
            except OSError:
                assert time.monotonic() < ends, "the page does not answer"
                time.sleep(0.2)
                continue
            with answer:
                yield answer
            return


def state(answer: http.client.HTTPResponse, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kind = ""
    for line in answer:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            document = json.loads(value)
            found = document if kind == "state" else {**found, kind: document}
            if wanted(found):
                return found
    raise AssertionError(f"the stream has ended: {str(found)[:1000]}")


def test_it_is_published_on_loopback_alone_and_asks_for_the_token(shown: Project) -> None:
    bindings = shown.inspect("page")["HostConfig"]["PortBindings"]
    assert bindings == {f"{PORT}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(PORT)}]}
    for path in ("/", "/events"):
        with asked(path) as refused:
            assert refused.status == 401
    with asked(f"/?token={token(shown)}") as entered:
        assert (entered.status, entered.getheader("location")) == (303, "/")


def test_it_shows_the_run_to_its_end_and_recovers_what_it_cannot_score(shown: Project) -> None:
    with asked(f"/?token={token(shown)}") as entered:
        cookie = (entered.getheader("set-cookie") or "").split(";")[0]
    with asked("/events", Cookie=cookie) as stream:
        found = state(stream, lambda one: bool(one.get("overheard")) and one["progress"]["status"] == "finished")
    assert found["network"]["agents"] == 6
    assert len(found["network"]["groups"]) == 6
    assert found["progress"]["points"] == []  # no gap: nobody here may see x
    assert found["overheard"]["truths"] == {}
    assert found["overheard"]["guesses"]
