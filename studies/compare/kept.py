"""What a comparison has finished, kept on disk: it is taken up where it was stopped.

A file for each search and each measurement, under a name that says what it is about and under which settings it was
made. Other data, efforts, seeds or methods have other names, and so has another version of the code that makes the
numbers: nothing wrong is ever taken up. Beside the work stands what it cost, in seconds of a processor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import dpp2
from dpp2.store.files import read_json, write_text
from dpp2.studies.compare.laboratory import Outcome
from dpp2.studies.compare.search import Search, Tried

_HERE, _MATHEMATICS = Path(__file__).parent, Path(dpp2.__file__).parent
_MAKERS = (_HERE, *(_MATHEMATICS / room for room in (".", "algorithms", "privacy", "problems")))
_TELLERS = frozenset({"claims.py", "page.py", "pictures.py", "verdicts.py"})  # of the files here: these make no number
_DAMAGED = (ArithmeticError, LookupError, TypeError, ValueError)  # which only another program can have done


@dataclass(frozen=True)
class Kept:
    """A folder of finished work; none: nothing is kept."""

    folder: Path | None

    def search(self, key: str) -> Search | None:
        found = self._read(f"{key}-search")
        with suppress(*_DAMAGED):
            tried = tuple(Tried(tuple(point), tuple(gaps)) for point, gaps in found["tried"])
            ranges = tuple((low, high) for low, high in found["ranges"])
            return Search(tried, ranges, int(found["waves"]), bool(found.get("exchanged", False)))
        return None

    def keep_search(self, key: str, search: Search, seconds: float) -> None:
        tried = [[one.point, one.gaps] for one in search.tried]
        about = {"waves": search.waves, "exchanged": search.exchanged}
        before = self._seconds(f"{key}-search")
        self._write(f"{key}-search", {"tried": tried, "ranges": search.ranges, **about, "seconds": before + seconds})

    def outcomes(self, key: str) -> list[Outcome] | None:
        found = self._read(f"{key}-measured")
        with suppress(*_DAMAGED):
            return [Outcome(**one) for one in found["outcomes"]]
        return None

    def keep_outcomes(self, key: str, outcomes: list[Outcome], seconds: float) -> None:
        self._write(f"{key}-measured", {"outcomes": [asdict(one) for one in outcomes], "seconds": seconds})

    def seconds(self, searches: Iterable[str], measurements: Iterable[str]) -> float:
        """What these cost a processor, whenever and wherever it was."""
        names = [*(f"{key}-search" for key in searches), *(f"{key}-measured" for key in measurements)]
        return sum(map(self._seconds, names))

    def _seconds(self, name: str) -> float:
        with suppress(*_DAMAGED):
            return float(self._read(name)["seconds"])
        return 0.0

    def _read(self, name: str) -> dict[str, Any]:
        if self.folder is None:
            return {}
        try:
            found = read_json(self.folder / f"{name}.json")
        except (OSError, ValueError):  # not there, or damaged
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, name: str, document: dict[str, Any]) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / f"{name}.json", json.dumps(document))  # infinities as Python writes them


def key_of(*parts: object) -> str:
    """A name for what these decide, made by this code."""
    return hashlib.sha256(repr((_code(), *parts)).encode()).hexdigest()[:24]


@cache
def _code() -> str:
    """A digest of every file that the numbers come from."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in makers())).hexdigest()


def makers() -> list[Path]:
    return sorted(path for folder in _MAKERS for path in folder.glob("*.py") if path.name not in _TELLERS)
