"""The playground's server side: one state after the other goes to the worker, and of each viewer the newest wins."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from typing import Any

from dpp2.page.controls import MOST_AGENTS, MOST_ROUNDS, PAPER, PRESETS, TOPOLOGIES
from dpp2.page.worker import Worker

_MOST_SECONDS = 60.0  # for one state
_MOST_KEPT = 64  # answers
_MOST_WAITING = 16
_MOST_VIEWERS = 256
_PLAY = "dpp2.page.played:play"


Gone = Callable[[], Awaitable[bool]]


async def _stays() -> bool:
    return False


class Refused(Exception):
    """No answer, and the status that says why."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Playground:
    """All viewers of one playground."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._busy = worker, asyncio.Lock()
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._newest: OrderedDict[str, int] = OrderedDict()  # by viewer: the number of its newest question
        self._waiting = 0

    def described(self) -> dict[str, Any]:
        """What the controls are made of."""
        return {
            "mode": "playground",
            "presets": {name: preset.query() for name, preset in PRESETS.items()},
            "defaults": {name: _text(value) for name, value in asdict(PAPER).items()},
            "topologies": list(TOPOLOGIES),
            "most": {"agents": MOST_AGENTS, "rounds": MOST_ROUNDS},
        }

    async def warm_up(self) -> None:
        """The first page that is opened finds the paper's run done, and what tier three needs loaded."""
        for name in ("The paper", "Tier three"):
            await self.play(PRESETS[name].query(), "")

    async def play(self, given: Mapping[str, str], viewer: str, gone: Gone = _stays) -> str:
        """The answer to one question. It is not computed for somebody who is `gone` when it is its turn."""
        key = json.dumps(sorted(given.items()))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if self._waiting >= _MOST_WAITING:
            raise Refused("too many are playing: try again in a moment", 503)
        number = self._newest[viewer] = self._newest.get(viewer, 0) + 1
        while len(self._newest) > _MOST_VIEWERS:
            self._newest.popitem(last=False)
        self._waiting += 1
        try:
            async with self._busy:
                if await gone() or (viewer and self._newest.get(viewer) != number):
                    raise Refused("", 204)  # nobody asks any more, or something newer: nothing to say, and no error
                found = self._kept.get(key) or await self._played(given)
        except BrokenProcessPool:
            raise Refused("that was too much for this machine: less of it may do", 500) from None
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:  # a fault of ours
            raise Refused(f"that cannot be computed ({type(error).__name__}: {error})", 500) from None
        finally:
            self._waiting -= 1
        self._kept[key] = found
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return str(found)

    async def _played(self, given: Mapping[str, str]) -> Any:
        """One state may take so long; whoever asks for more must not keep the others waiting."""
        try:
            return await asyncio.wait_for(self._worker.do(_PLAY, dict(given)), _MOST_SECONDS)
        except TimeoutError:
            self._worker.restart()
            raise Refused(f"that takes longer than {_MOST_SECONDS:.0f} s: less of it may do", 503) from None


def _text(value: object) -> str:
    """As an address has it."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)
