"""Real pages: processes that serve, and what a browser would read from them."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import urlsplit

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def serving(*words: object) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`dpp2 watch …` or `dpp2 playground …`; gives the URL and the process."""
    command = [sys.executable, "-m", "dpp2.orchestrator", *map(str, words), "--no-open", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD}) as process:
        try:
            assert process.stdout is not None
            said = ""
            while not said.rstrip().endswith("}"):
                line = process.stdout.readline()
                assert line, "the page has ended without a word"
                said += line
            yield json.loads(said)["url"], process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def get(url: str, path: str = "/", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=240)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


class Stream:
    """The events of a page, one after the other; closed by whoever opened it (`with`)."""

    def __init__(self, url: str, last: str = "") -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=240)
        self._connection.request("GET", "/events", headers={"Last-Event-ID": last} if last else {})
        self._answer = self._connection.getresponse()
        self.status, self.last = self._answer.status, last

    def next(self) -> tuple[str, Any]:
        kind, data = "", ""
        while True:
            read = self._answer.readline()
            assert read, "the page has ended the stream"
            line = read.decode().rstrip("\n")
            name, _, value = line.partition(": ")
            if name == "id":
                self.last = value
            elif name == "event":
                kind = value
            elif name == "data":
                data = value
            elif not line and kind:
                return kind, json.loads(data)

    def until(self, wanted: Any, seconds: float = 240.0) -> dict[str, Any]:
        """The state as a page puts it together, once it is as wanted."""
        state: dict[str, Any] = {}
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            kind, document = self.next()
            state = document if kind == "state" else {**state, kind: document}
            if wanted(state):
                return state
        raise AssertionError(f"not seen within {seconds} s: {str(state)[:2000]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._connection.close()
