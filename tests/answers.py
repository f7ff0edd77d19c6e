"""What commands print, read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dpp2.privacy import (
    Epsilon,
    PaperEpsilon,
)

Call = Callable[..., Any]


def number(spent: object) -> float:
    assert isinstance(spent, Epsilon | PaperEpsilon)
    assert spent.value is not None
    return spent.value


def strict(text: str) -> dict[str, Any]:
    """One JSON document in the strict sense: no NaN, nothing after it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


BOWL = """
class Bowl:
    dimension, smoothness = 2, 2.0

    def value(self, x):
        return float(x @ x)

    def gradient(self, x):
        return 2.0 * x

def objective(agent, agents):
    return Bowl()
"""
