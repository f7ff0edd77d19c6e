"""Follows a run directory: reads what is new, lets the worker attack it, and tells those who look."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import Any

from dpp2 import BadInput
from dpp2.page.documents import compact
from dpp2.page.feed import Feed
from dpp2.page.past import lines_of, replayed
from dpp2.page.place import Place
from dpp2.page.run_state import RunState
from dpp2.page.worker import Worker
from dpp2.store.events import EventReader

_LOOK_SECONDS = 0.2
_AGAIN_SECONDS, _LONGEST_PAUSE = 1.0, 60.0  # after something could not be read
_NODES_SECONDS = 3.0  # between two looks at what nodes have noted
_LEAST_PAUSE, _SHARE = 1.0, 19.0  # between two passes of the attacks: so many times as much as one computes
_PARTS = ("network", "progress", "measured", "overheard", "account")


class Watching:
    """One run. `speed`, in rounds a second, replays a run that is over; without it, it is shown as it is."""

    def __init__(self, place: Place, worker: Worker, *, speed: float | None = None) -> None:
        self._place, self._worker, self._speed = place, worker, speed
        self.name = os.fsencode(place.run.resolve().name).decode(errors="replace")
        self._events = EventReader(place.run / "events.jsonl")
        self._parts: dict[str, str] = {}
        self._status = ""  # that was told last
        self._described = asyncio.Event()
        self._noted, self._look_again = None, 0.0  # type: int | None, float
        self._known = ""  # the verdict of attacks that had what is protected
        self._before = 0  # runs that were in this place before the one that is there now
        self.state = RunState()
        self.feed = Feed(self.whole)

    @property
    def over(self) -> bool:
        return self.state.over

    def whole(self) -> str:
        """Everything, for somebody who has just come."""
        self._parts["progress"] = compact(self.state.progress(time.time(), whole=True))
        parts = ",".join(f'"{name}":{self._parts.get(name, "null")}' for name in _PARTS)
        return f'{{"mode":"watch",{parts}}}'

    @property
    def _wanted(self) -> bool:
        """A run under way is left alone while nobody looks: what was missed is in its files."""
        return self.state.over or self.feed.viewers > 0

    @property
    def _run_id(self) -> str:
        """Empty before it has begun."""
        return str((self.state.began or {}).get("run_id", ""))

    async def run(self) -> None:
        """Until it is cancelled."""
        await asyncio.gather(self._follow(), self._describe(), self._listen())

    async def _follow(self) -> None:
        if self._speed is not None:
            await self.feed.joined.wait()  # nobody is there to see it before
            replay = replayed(self._place.run, self._speed, time.time)
            while True:
                self._take(replay.lines())
                await asyncio.sleep(_LOOK_SECONDS)
        with suppress(BadInput, OSError):  # damaged since somebody has looked at it: events may come all the same
            self._take(lines_of(self._place.run))
        while True:
            lines, replaced = self._events.lines()
            if replaced:
                self.state = RunState()
            self._take(lines, changed=replaced)
            await asyncio.sleep(_LOOK_SECONDS)

    def _take(self, lines: list[dict[str, object]], *, changed: bool = False) -> None:
        run = self._run_id
        for line in lines:
            self.state.take(line)
        if changed or run not in ("", self._run_id):  # what was made of another run is not shown beside this one
            self._parts.clear()
            self._noted, self._known, self._before = None, "", self._before + 1
            self.feed.publish("state", self.whole())
        progress = self.state.progress(time.time(), whole=False)
        if lines or changed or progress.status != self._status:
            self.feed.publish("progress", compact(progress))
        self._status = progress.status

    async def _describe(self) -> None:
        """The network and the account: once, and again for another run, for more rounds, and if noise is uncovered."""
        told: object = None
        while not self._wanted:
            await asyncio.sleep(_LOOK_SECONDS)
        self._worker.prepare("dpp2.page.tasks")  # whoever waits for a run to begin does not wait for this as well
        while True:
            uncovered = self._uncovered() if self._wanted else None
            now = (self._before, self._run_id, self._rounds(), uncovered, self.state.over)
            if now != told and self._wanted and (self._place.run / "experiment.toml").is_file():
                drawn = await self._tell("network", self.name, self.state.began)
                self._described.set()
                told = now if await self._count(uncovered) and drawn else None
            await asyncio.sleep(_LOOK_SECONDS if told == now else _AGAIN_SECONDS)

    async def _count(self, uncovered: int | None) -> bool:
        """The account, once it is known how many rounds the run may have."""
        if self.state.began is None:
            return True
        now = self.state.accounted
        return await self._tell("account", max(now, self._rounds()), uncovered, now)

    def _uncovered(self) -> int | None:
        """As the run says, or as its nodes have noted, at which it looks now and then."""
        if self._noted is None and self.state.uncovered is None and time.monotonic() > self._look_again:
            self._noted, self._look_again = self._place.uncovered(), time.monotonic() + _NODES_SECONDS
        known = [k for k in (self.state.uncovered, self._noted) if k is not None]
        return min(known, default=None)

    def _rounds(self) -> int:
        wanted = (self.state.began or {}).get("rounds", 1)
        return wanted if isinstance(wanted, int) else 1

    async def _listen(self) -> None:
        """Attack what is new, whenever there is something; when the run is over, with everything once."""
        done: object = None
        pause = _AGAIN_SECONDS
        await self._described.wait()  # by then everything is loaded: what follows is the time that attacks take
        while True:
            k, over = self.state.round, self.state.over
            now = (self._before, k, over)
            if now != done and self.state.has_begun and self._wanted:
                until = k if self._speed is not None else None
                made = [await self._attack(until, how) for how in (("quick", "thorough") if over else ("live",))]
                if not all(made):  # files may be whole in a moment, or be damaged for good
                    await asyncio.sleep(pause := min(2 * pause, _LONGEST_PAUSE))
                    continue
                done, pause = now, _AGAIN_SECONDS
                await self._rest(_LEAST_PAUSE if self._speed else max(_LEAST_PAUSE, _SHARE * self._worker.seconds))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _rest(self, seconds: float) -> None:
        """So long, or until the run is over."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not self.state.over:
            await asyncio.sleep(_LOOK_SECONDS)

    async def _attack(self, until: int | None, how: str) -> bool:
        before = self._before
        done, found = await self._made("overheard", until, how, self._known, not self.state.measured)
        if done and before == self._before:
            if found.overheard:
                self._known = found.known
                self._publish("overheard", found.overheard)
            if found.measured:
                self._publish("measured", found.measured)
        return done

    async def _tell(self, part: str, *given: object) -> bool:
        """Publish one part, if it is new. Returns whether it could be made."""
        done, found = await self._made(part, *given)
        if done:
            self._publish(part, found)
        return done

    async def _made(self, part: str, *given: object) -> tuple[bool, Any]:
        """By the worker."""
        try:
            return True, await self._worker.do(f"dpp2.page.tasks:{part}", self._place, *given)
        except Exception:  # files are being written, by anybody: what cannot be read now may be readable next time
            return False, None

    def _publish(self, part: str, document: str) -> None:
        if document != self._parts.get(part):
            self._parts[part] = document
            self.feed.publish(part, document)
