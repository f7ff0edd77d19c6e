"""Starts node processes of this machine: forked from a warm one where the system can, else each by itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol

FORKS = sys.platform == "linux"  # elsewhere libraries of the system may not survive it
_LONGEST = 4096  # bytes of an answer


class Running(Protocol):
    """A process that was started; one of asyncio is such."""

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


Start = Callable[[list[str], int], Awaitable[Running]]  # words of a node's command line, descriptor to announce on


async def announced(start: Start, words: list[str]) -> tuple[Running, bytes]:
    """Start a node; returns what it says on a descriptor of its own when it listens, nothing if it has ended."""
    ours, its = os.pipe()
    try:
        process = await start(words, its)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(its)
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(ours, "rb", buffering=0)
    )
    with closing(transport):
        return process, await stream.readline()


async def by_itself(words: list[str], announce: int) -> Running:
    """A process that loads everything itself."""
    return await _process("dpp2.node", [*words, "--announce", str(announce)], announce)


async def _process(module: str, words: list[str], descriptor: int) -> asyncio.subprocess.Process:
    """It dies with this one. What objectives print goes where logs go, to standard error: standard output is ours."""
    command = [sys.executable, "-P", "-m", module, "--die-with-parent", str(os.getpid()), *words]
    return await asyncio.create_subprocess_exec(*command, pass_fds=[descriptor], stdout=2, start_new_session=True)


class Forked:
    """A node that the nursery has forked."""

    def __init__(self, send: Callable[[int], None]) -> None:
        """`send` a signal to it."""
        self.returncode: int | None = None
        self._send, self._over = send, asyncio.Event()

    def end(self, code: int) -> None:
        self.returncode = code
        self._over.set()

    async def wait(self) -> int:
        await self._over.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)


class Nursery:
    """The warm process (`node/nursery.py`), from this side. If it dies, its nodes die too; the next one gets a new one.

    `experiment` is what its nodes run, if it may be read before the fork. `room`: the longest command line of a node.
    """

    def __init__(self, experiment: Path | None, room: int) -> None:
        self._words = ["--room", " " * room, *(() if experiment is None else ("--experiment", str(experiment)))]
        self._asking = asyncio.Lock()  # one request at a time: it can only fork one by one
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._answers: deque[asyncio.Future[Forked | None]] = deque()  # None: the nursery has died
        self._living: dict[int, Forked] = {}

    async def start(self, words: list[str], announce: int) -> Running:
        """A node with these words."""
        async with self._asking:
            nursery = self._process if self._socket is not None else None
            if nursery is None:
                nursery = await self._open()
            answer: asyncio.Future[Forked | None] = asyncio.get_running_loop().create_future()
            self._answers.append(answer)
            self._ask({"start": words}, announce)
            if (forked := await answer) is not None:
                return forked
        stillborn = Forked(lambda number: None)
        stillborn.end(await nursery.wait())
        return stillborn

    async def close(self) -> None:
        """All nodes have ended."""
        self._lose()
        if self._process is not None:
            await ended(self._process)

    async def _open(self) -> asyncio.subprocess.Process:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            words = ["--socket", str(its.fileno()), *self._words]
            try:
                self._process = await _process("dpp2.node.nursery", words, its.fileno())
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._hear)
        return self._process

    def _ask(self, request: dict[str, object], *descriptors: int) -> None:
        if self._socket is None:
            return  # its nodes have ended
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        except ConnectionError:
            self._lose()

    def _hear(self) -> None:
        while self._socket is not None:
            try:
                content = self._socket.recv(_LONGEST)
            except BlockingIOError:
                return
            except ConnectionError:
                content = b""
            if not content:
                self._lose()
            elif "ended" in (news := json.loads(content)):
                self._living.pop(news["ended"]).end(news["code"])
            else:
                self._note_started(news["started"])

    def _note_started(self, pid: int) -> None:
        forked = self._living[pid] = Forked(lambda number: self._ask({"signal": number, "pid": pid}))
        _settle(self._answers.popleft(), forked)

    def _lose(self) -> None:
        """Nobody is at the other end any more."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        for forked in self._living.values():
            forked.end(-signal.SIGKILL)
        self._living = {}
        while self._answers:
            _settle(self._answers.popleft(), None)


def _settle(answer: asyncio.Future[Forked | None], forked: Forked | None) -> None:
    if not answer.done():  # whoever asked may have given up
        answer.set_result(forked)


async def ended(process: Running) -> None:
    """Let a process end by itself for a moment, then make it."""
    for number in (None, "terminate", "kill"):
        if process.returncode is None and number:
            with suppress(ProcessLookupError):
                getattr(process, number)()
        try:
            await asyncio.wait_for(process.wait(), 3 if number is None else 2)
        except TimeoutError:
            continue
        return
