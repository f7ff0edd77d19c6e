"""A run that is over, once more at a chosen speed: lines as the run would have written them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpp2.arrays import Array
from dpp2.thinning import chosen

_SECONDS_BETWEEN = 0.25  # two lines
_POINTS = 25  # in one of them


class Replay:
    """Rounds by a clock that starts with the first look. Events are told when their round has come."""

    def __init__(
        self, metrics: Mapping[str, Array], lines: list[dict[str, Any]], speed: float, clock: Callable[[], float]
    ) -> None:
        """`metrics` without gap where nobody may see it; `speed` in rounds a second."""
        self._metrics, self._speed, self._clock = metrics, speed, clock
        self._last = len(metrics["round"]) - 1
        self._told, self._began, self._next = -1, 0.0, 0.0
        self._events = [line for line in lines if line["kind"] in ("happened", "ended")]
        self._first = next((line for line in lines if line["kind"] == "began"), None)

    def lines(self) -> list[dict[str, Any]]:
        """What is new since the last look."""
        now = self._clock()
        if self._told < 0:
            self._began, self._told, self._next = now, 0, now
            return [] if self._first is None else [{**self._first, "at": now, "round": 0}]
        k = min(int((now - self._began) * self._speed), self._last)
        if now < self._next or self._told > self._last:
            return []
        self._next = now + _SECONDS_BETWEEN
        told = [self._rounds(k, now)]
        told += [{**line, "at": now} for line in self._events if self._told <= line["round"] <= k]
        self._events = [line for line in self._events if line["round"] > k]
        self._told = k + 1 if k == self._last else k
        return told

    def _rounds(self, k: int, now: float) -> dict[str, Any]:
        points: list[list[float]] = []
        if "gap" in self._metrics:
            shown = self._told + chosen(self._metrics["gap"][self._told : k + 1], _POINTS)
            points = [[float(self._metrics[name][n]) for name in _COLUMNS] for n in shown]
        sent = int(self._metrics["bytes"][: k + 1].sum())
        return {
            "kind": "rounds", "at": now, "round": k, "seconds": now - self._began, "bytes": sent, "points": points,
        }  # fmt: skip


_COLUMNS = ("round", "gap", "consensus", "stationarity")
