"""What the rooms above add to a `Result` and to `run`: they register it, and the mathematics names none of them.

An entry point of the group `dpp2.rooms` (pyproject.toml) says where each is: `save` and `load` in the store, `audit`
with the adversary, `run` with the orchestrator. It is loaded when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

_GROUP = "dpp2.rooms"


@cache
def registered(name: str) -> Callable[..., Any]:
    """What a room has registered under this name."""
    from importlib.metadata import distributions  # which loads mail and sockets, and most processes never ask

    # Every description of this package, since a checkout may hold an older one beside the one that is installed.
    points = [point for one in distributions(name="dpp2") for point in one.entry_points.select(group=_GROUP, name=name)]
    if not points:
        raise ImportError(f"dpp2 is not installed as a whole: nothing is registered as {name!r} (pip install dpp2)")
    found: Callable[..., Any] = points[0].load()
    return found
