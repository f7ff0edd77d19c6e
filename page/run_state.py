"""How far a run has come, from the lines of its events.jsonl. No I/O; whatever a run writes, this stays small."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from dpp2.page.documents import EventDocument, NodeDocument, ProgressDocument
from dpp2.thinning import chosen

MOST_POINTS = 600  # of a curve: when there are more, half of them go, and its peaks stay
MOST_EVENTS = 100
_MOST_NODES = 1000
MOST_ROUNDS = 10_000_000  # that of dpp2.privacy, which the server need not load
_SILENT_SECONDS = 15.0  # a run writes every five seconds, if nothing else
_RATE_SECONDS = 3.0  # over which rounds are counted
_WORDS = {
    "finished": "The run has finished.",
    "interrupted": "The run was interrupted",
    "failed": "The run has failed",
    "stopped": "The run was stopped",
    "diverged": "The run has diverged",
}
_ACTIVE = ("waiting", "running")
Row = TypeVar("Row")


class RunState:
    """Takes lines in, gives documents out."""

    def __init__(self) -> None:
        self.began: dict[str, Any] | None = None
        self.round, self.uncovered = 0, None  # type: int, int | None
        self._status, self._at, self._seconds, self._bytes = "waiting", 0.0, 0.0, 0
        self._points: list[list[float | None]] = []
        self._since = 0  # points from this round on have not been told yet
        self._nodes: list[NodeDocument] = []
        self._events: deque[EventDocument] = deque(maxlen=MOST_EVENTS)
        self._report: Mapping[str, float] = {}
        self._charged: int | None = None
        self._pace: list[tuple[float, int]] = []
        self._lately: deque[tuple[float, int]] = deque(maxlen=64)

    @property
    def over(self) -> bool:
        return self._status not in _ACTIVE

    @property
    def has_begun(self) -> bool:
        return self._status != "waiting"

    @property
    def accounted(self) -> int:
        """Rounds that ε is due for: nodes that were stopped may have sent more than all of them have completed."""
        return max(self.round, self._charged or 0)

    @property
    def measured(self) -> bool:
        """Whether the run itself tells its metrics."""
        return bool(self._points)

    def take(self, line: Mapping[str, Any]) -> None:
        """A line that is not as it should be changes nothing: the file may be anybody's."""
        self._at = float(line["at"])
        taking = {"began": self._begin, "rounds": self._come_on, "happened": self._happen, "ended": self._end}
        if (take := taking.get(line["kind"])) is not None:
            with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                take(line)

    def _begin(self, line: Mapping[str, Any]) -> None:
        k, told = int(line["round"]), _begun(line)
        if self.began is not None and self.began.get("run_id") != line["run_id"]:  # another run in the same place
            self.__init__()  # type: ignore[misc]
            self._at = float(line["at"])
        self._note(line, "resumed" if k or self.began else "began", f"{'goes on' if k else 'begins'} with round {k}")
        self.began, self._status, self.round = told, "running", k
        self._lately.clear()
        self._pace.clear()
        self._report, self._charged = {}, None

    def _come_on(self, line: Mapping[str, Any]) -> None:
        nodes = [
            NodeDocument(int(n["node"]), int(n["round"]), str(n["state"])[:40], int(n["bytes"]), int(n["refused"]))
            for n in line.get("nodes", [])[:_MOST_NODES]
        ]
        points = [_point(point) for point in line.get("points", [])]
        self._seconds, self._bytes, self.round = float(line["seconds"]), int(line["bytes"]), int(line["round"])
        if not self.over:
            self._status = "running"
        self._lately.append((self._at, self.round))
        self._nodes = nodes or self._nodes
        self._pace = _halved([*self._pace, (self._seconds, self.round)])
        self._add(points)

    def _happen(self, line: Mapping[str, Any]) -> None:
        if line["what"] == "uncovered":
            self.uncovered = int(line["round"])
        self._note(line, str(line["what"]), str(line["text"]))

    def _end(self, line: Mapping[str, Any]) -> None:
        how = str(line["how"])
        if how not in _WORDS:
            raise ValueError(how)
        report = {str(name): float(value) for name, value in line.get("report", {}).items()}
        charged = line.get("charged")
        self._charged = None if charged is None else int(charged)
        most = max(self.round, int(line["round"]))  # of a run that has failed the line may know nothing
        self._status, self._report = how, report
        self.round = most if how in ("interrupted", "failed") else int(line["round"])
        why = str(line.get("text", ""))
        self._note(line, how, f"{_WORDS[how]}{': ' if why else ''}{why}")
        if how in ("finished", "stopped"):  # all have come to the same round; of other ends nobody knows
            self._nodes = [NodeDocument(n.node, self.round, "finished", n.bytes, n.refused) for n in self._nodes]
        else:
            last = self.round if how == "interrupted" else 0
            self._nodes = [NodeDocument(n.node, max(n.round, last), "ended", n.bytes, n.refused) for n in self._nodes]

    def _note(self, line: Mapping[str, Any], what: str, text: str) -> None:
        self._events.appendleft(EventDocument(float(line["at"]), int(line["round"]), what[:40], text[:2000]))

    def _add(self, points: Sequence[list[float | None]]) -> None:
        """Points that begin before others end take their place: a resumed run, or the whole curve at the end."""
        if not points:
            return
        first = points[0][0] or 0
        self._points = [point for point in self._points if (point[0] or 0) < first]
        self._points += points
        self._since = min(self._since, int(first))
        if len(self._points) > MOST_POINTS:
            gaps = np.array([np.nan if point[1] is None else point[1] for point in self._points])
            self._points = [self._points[n] for n in chosen(gaps, MOST_POINTS // 2)]
            self._since = 0

    def progress(self, now: float, *, whole: bool) -> ProgressDocument:
        """All points, or those that have not been told yet."""
        since = 0 if whole else self._since
        points = [point for point in self._points if (point[0] or 0) >= since]
        if not whole and self._points:
            self._since = int(self._points[-1][0] or 0) + 1
        silent = self._status == "running" and now - self._at > _SILENT_SECONDS
        return ProgressDocument(
            status="silent" if silent else self._status,
            round=self.round,
            seconds=self._seconds,
            at=self._at,
            rate=None if silent else self._rate(),
            pace=[] if self._points else list(self._pace),
            bytes=self._bytes,
            points=points,
            since=since,
            nodes=list(self._nodes),
            events=[*([self._silence()] if silent else []), *self._events],
            report=self._report,
            charged=self._charged,
        )

    def _silence(self) -> EventDocument:
        text = f"no news for {_SILENT_SECONDS:.0f} s: the run may have died; what it has written down is safe"
        return EventDocument(self._at, self.round, "silent", text)

    def _rate(self) -> float | None:
        """Rounds a second over the last few seconds; of a run that is over, all in all."""
        if self.over:
            return self.round / self._seconds if self._seconds else None
        recent = [one for one in self._lately if self._at - one[0] <= _RATE_SECONDS]
        if len(recent) < 2 or recent[-1][0] == recent[0][0]:
            return None
        return (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0])


def _halved(rows: list[Row]) -> list[Row]:
    """Every other one, and the last, as long as there are too many."""
    while len(rows) > MOST_POINTS:
        rows = [*rows[:-1:2], rows[-1]]
    return rows


def _begun(line: Mapping[str, Any]) -> dict[str, Any]:
    """The line, if the network can be drawn and the account be made from it."""
    groups, rounds = line.get("groups", []), line["rounds"]
    agents = [agent for group in groups for agent in group]
    if type(rounds) is not int or not 0 <= rounds <= MOST_ROUNDS or not isinstance(line["run_id"], str):
        raise ValueError("rounds")
    if any(type(agent) is not int or agent < 0 for agent in agents):
        raise ValueError("groups")
    return dict(line)


def _point(values: Sequence[Any]) -> list[float | None]:
    """Round, gap, consensus and stationarity; a run that has overflowed has no number for them."""
    k, *measured = values
    if len(measured) < 3 or not 0 <= k <= MOST_ROUNDS:
        raise ValueError("points")
    return [float(k), *(None if value is None else float(value) for value in measured[:3])]
