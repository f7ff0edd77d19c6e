"""The settings that are searched, as points of a cube: 0 and 1 are the ends of the range that a method declares.

Coordinates may leave [0, 1] where a search widens a range, as far as the setting's own limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpp2.algorithms.declared import Tunable

Point = tuple[float, ...]


@dataclass(frozen=True)
class Axis:
    """One setting, "section.key"."""

    section: str
    tunable: Tunable

    @property
    def name(self) -> str:
        return f"{self.section}.{self.tunable.key}"

    @property
    def limits(self) -> tuple[float, float]:
        """The coordinates beyond which it has no meaning."""
        least, most = self.tunable.least, self.tunable.most
        low = -math.inf if least is None else self.coordinate(least)
        return low, math.inf if most is None else self.coordinate(most)

    def value(self, coordinate: float) -> float:
        """The setting there; of relative ones the factor."""
        low, high = self._ends
        at = low + coordinate * (high - low)
        found = math.exp(at) if self._log else at
        least, most = self.tunable.least, self.tunable.most
        found = found if least is None else max(found, least)
        found = found if most is None else min(found, most)
        return round(found) if self.tunable.whole else found

    @property
    def _log(self) -> bool:
        return self.tunable.scale == "log"

    @property
    def _ends(self) -> tuple[float, float]:
        low, high = self.tunable.low, self.tunable.high
        return (math.log(low), math.log(high)) if self._log else (low, high)

    def coordinate(self, value: float) -> float:
        """Where a setting lies."""
        if self._log and value <= 0:
            return -math.inf
        low, high = self._ends
        return ((math.log(value) if self._log else value) - low) / (high - low)


def settings(axes: Sequence[Axis], point: Point) -> dict[str, float]:
    """By name."""
    return {axis.name: axis.value(at) for axis, at in zip(axes, point, strict=True)}


def applied(values: Mapping[str, Any], axes: Sequence[Axis], point: Point) -> dict[str, Any]:
    """The settings of one section that a point changes; `values` are what it comes with."""
    changed: dict[str, Any] = {}
    for axis, at in zip(axes, point, strict=True):
        key, tunable, found = axis.tunable.key, axis.tunable, axis.value(at)
        before = changed.get(key, values[key])
        if tunable.relative:
            changed[key] = found * before
            continue
        for other in tunable.together:
            changed[other] = values[other] * found / before
        changed[key] = found
    return changed
