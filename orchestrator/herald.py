"""Says in plain lines who is missing and who is stuck: on a terminal, in a pipe and in a container's log alike."""

from __future__ import annotations

import time
from collections.abc import Callable

from dpp2.orchestrator.drive import Drive

_FIRST = 3.0  # seconds that a trouble lasts before it is named
_BETWEEN = 2.0  # and between two lines when it changes
_AGAIN, _MOST = 10.0, 300.0  # after which it is named again, doubling up to this


class _Topic:
    """One thing that may be wrong. It is said when it is new and at growing intervals, however often it comes back."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._said, self._at, self._interval = "", float("-inf"), _AGAIN

    def line(self, sentence: str, now: float) -> str:
        """What is to be said now; empty for nothing."""
        if not sentence:
            self._since = None
            return ""
        if self._since is None:
            self._since = now
        new = sentence != self._said
        if now - self._since < _FIRST or now - self._at < (_BETWEEN if new else self._interval):
            return ""
        self._interval = _AGAIN if new else min(2 * self._interval, _MOST)
        self._said, self._at = sentence, now
        return sentence

    def over(self, sentence: str) -> bool:
        """Whether a trouble that was named is over; it is told once."""
        if sentence or not self._said:
            return False
        self._said = ""
        return True


class Herald:
    """Looks at a drive whenever something may have changed."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._absent, self._stuck = _Topic(), _Topic()

    def look(self, drive: Drive) -> None:
        now, absent = self._clock(), drive.absent()
        if line := self._absent.line(absent, now):
            self._say(f"round {drive.round}: waiting: {line}")
        elif self._absent.over(absent):
            self._say(f"round {drive.round}: all nodes are there")
        if line := self._stuck.line("" if absent else drive.stuck(), now):
            self._say(f"round {drive.round}: {line}")
