"""Follows a run directory: reads what is new, lets the worker attack it, and tells those who look."""

from __future__ import annotations

import asyncio
import time

from dpp2.page.documents import compact
from dpp2.page.feed import Feed
from dpp2.page.past import lines_of, replayed
from dpp2.page.place import Place
from dpp2.page.run_state import RunState
from dpp2.page.worker import Worker
from dpp2.store.events import EventReader

_LOOK_SECONDS = 0.2
_AGAIN_SECONDS = 1.0  # after something could not be read
_NODES_SECONDS = 3.0  # between two looks at what nodes have noted
_LEAST_PAUSE, _SHARE = 1.0, 15.0  # between two passes of the attacks: so many times as much as one computes
_PARTS = ("network", "progress", "overheard", "account")


class Watching:
    """One run. `speed`, in rounds a second, replays a run that is over; without it, it is shown as it is."""

    def __init__(self, place: Place, worker: Worker, *, speed: float | None = None) -> None:
        self._place, self._worker, self._speed = place, worker, speed
        self.name = place.run.resolve().name
        self._events = EventReader(place.run / "events.jsonl")
        self._parts: dict[str, str] = {}
        self._status = ""  # that was told last
        self._described = asyncio.Event()
        self._noted, self._look_again = None, 0.0  # type: int | None, float
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
        self._take(lines_of(self._place.run))
        while True:
            lines, replaced = self._events.lines()
            if replaced:
                self.state, self._noted = RunState(), None
            self._take(lines, changed=replaced)
            await asyncio.sleep(_LOOK_SECONDS)

    def _take(self, lines: list[dict[str, object]], *, changed: bool = False) -> None:
        for line in lines:
            self.state.take(line)
        progress = self.state.progress(time.time(), whole=False)
        if lines or changed or progress.status != self._status:
            self.feed.publish("progress", compact(progress))
        self._status = progress.status

    async def _describe(self) -> None:
        """The network and the account: once, and again when the run is another one or its noise is not covered."""
        told: object = None
        while True:
            uncovered = self._uncovered() if self._wanted else None
            now = (self.state.began and self.state.began.get("run_id"), uncovered, self.state.over)
            if now != told and self._wanted and (self._place.run / "experiment.toml").is_file():
                rounds = max(self.state.round, self._rounds())
                work = {"network": (self.name, self.state.began), "account": (rounds, uncovered)}
                done = [await self._tell(part, *given) for part, given in work.items()]
                told = now if all(done) else None
                self._described.set()
            await asyncio.sleep(_LOOK_SECONDS if told == now else _AGAIN_SECONDS)

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
        done = (-1, False)
        await self._described.wait()  # by then everything is loaded, and attacks are all that takes time here
        while True:
            k, over = self.state.round, self.state.over
            if (k, over) != done and self.state.has_begun and self._wanted:
                until = k if self._speed is not None else None
                for everything in (False, True) if over else (False,):
                    await self._tell("overheard", until, everything)
                done = (k, over)
                await self._rest(_LEAST_PAUSE if self._speed else max(_LEAST_PAUSE, _SHARE * self._worker.seconds))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _rest(self, seconds: float) -> None:
        """So long, or until the run is over."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not self.state.over:
            await asyncio.sleep(_LOOK_SECONDS)

    async def _tell(self, part: str, *given: object) -> bool:
        """Let the worker make one part, and publish it if it is new. Returns whether it could be made."""
        try:
            found = await self._worker.do(f"dpp2.page.tasks:{part}", self._place, *given)
        except Exception:  # files are being written, by anybody: what cannot be read now may be readable next time
            return False
        if found is not None and found != self._parts.get(part):
            self._parts[part] = found
            self.feed.publish(part, found)
        return True
