"""events.jsonl: what happens in a run, line by line while it happens, for whoever watches.

Lines are only ever added, each a JSON object with `kind`, `at` (seconds since 1970) and `round`:
    began      the run, or its resumption: who hosts which agents, TLS, tap, telemetry
    rounds     how far it has come: metrics of some rounds (with telemetry), or the state of every node
    happened   something that a person wants to hear of, in one sentence
    ended      how it ended: finished, stopped, diverged, interrupted or failed
Nobody waits for this file, and nothing depends on it: a disk that is full ends the lines and not the run. `rounds` come
four times a second at first and every five seconds in a long run, so that the file stays small.
"""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from dpp2.store.files import PRIVATE

_SHORTEST, _LONGEST = 0.25, 5.0  # seconds between two lines on rounds
_MOST = 2**53  # of what is counted: a browser has no larger whole numbers
_SHARE = 1 / 400  # of the time that a run has taken: the interval between them


@dataclass(frozen=True)
class Began:
    kind: ClassVar[str] = "began"

    round: int
    run_id: str
    rounds: int  # that it may have
    transport: str
    telemetry: bool
    tls: bool = False
    tap: str = ""  # relay or sniff
    groups: Sequence[Sequence[int]] = ()  # agents of each node; none: all in one process


@dataclass(frozen=True)
class NodeState:
    """What is known of one node: `state` is ok, late, gone, absent or finished."""

    node: int
    round: int
    state: str
    bytes: int
    refused: int


@dataclass(frozen=True)
class Rounds:
    """`points` holds (round, gap, consensus, stationarity) of some rounds since the last line."""

    kind: ClassVar[str] = "rounds"

    round: int
    seconds: float
    bytes: int
    points: Sequence[Sequence[float]] = ()
    nodes: Sequence[NodeState] = ()


@dataclass(frozen=True)
class Happened:
    """`what` is one word: gone, back, refused, budget, late, diverged."""

    kind: ClassVar[str] = "happened"

    round: int
    what: str
    text: str


@dataclass(frozen=True)
class Ended:
    kind: ClassVar[str] = "ended"

    round: int
    how: str
    text: str = ""
    report: Mapping[str, float] = field(default_factory=dict)  # such as accuracy, by name
    charged: int | None = None  # rounds that the ledger holds against the run, if nodes charge by themselves


Line = Began | Rounds | Happened | Ended


class EventLog:
    """Adds lines to events.jsonl. It never raises and never waits for anybody."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._descriptor: int | None = None
        self._silent = False
        self._began = self._last = 0.0

    def add(self, line: Line) -> None:
        now = self._clock()
        if isinstance(line, Began):
            self._began = now
        self._write(_text(line, now))

    @property
    def begun(self) -> bool:
        """Whether the run has begun, or gone on, since this log was opened."""
        return self._began > 0

    def due(self) -> bool:
        """Whether it is time for a line on rounds. Asked after every round or so, it must cost nothing."""
        now = self._clock()
        interval = min(max(_SHORTEST, (now - self._began) * _SHARE), _LONGEST)
        if self._silent or now - self._last < interval:
            return False
        self._last = now
        return True

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, text: str) -> None:
        if self._silent:
            return
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                self._descriptor = os.open(self._path, flags, PRIVATE)
            os.write(self._descriptor, text.encode())
        except OSError:  # the run goes on; whoever watches sees that there is no news
            self._silent = True


def _text(line: Line, now: float) -> str:
    document = {"kind": line.kind, "at": round(now, 3), **asdict(line)}
    return json.dumps(_finite(document), ensure_ascii=False, separators=(",", ":")) + "\n"


def _finite(value: Any) -> Any:
    """JSON has neither infinity nor NaN: null stands for both."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: part if key == "at" else _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


class EventReader:
    """Reads the lines that have been added since the last look. Half a line, or a damaged one, is not read."""

    _AT_ONCE = 1 << 20  # bytes

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._inode = path, 0, 0

    def lines(self) -> tuple[list[dict[str, Any]], bool]:
        """New lines, at most a megabyte of them, and whether the file has been replaced by another."""
        try:
            with open(self._path, "rb", opener=_at_once) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    return [], False
                replaced = self._inode not in (0, status.st_ino) or status.st_size < self._at
                self._at, self._inode = 0 if replaced else self._at, status.st_ino
                file.seek(self._at)
                content = file.read(self._AT_ONCE)
        except OSError:
            return [], False
        whole = content[: content.rfind(b"\n") + 1]
        if not whole and len(content) == self._AT_ONCE:  # no line is as long as that: nobody of ours wrote it
            whole = content
        self._at += len(whole)
        return [line for text in whole.splitlines() if (line := _parsed(text)) is not None], replaced


def _at_once(path: str, flags: int) -> int:
    """A pipe in the place of the file must not keep anybody waiting for its other end."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        return None
    at, k = line.get("at"), line.get("round")
    known = type(k) is int and 0 <= k <= _MOST and isinstance(at, int | float) and 0 <= at <= _MOST
    return line if known else None
