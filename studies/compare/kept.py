"""What a comparison has finished, kept on disk: it is taken up where it was stopped.

A file for each search and each measurement, under a name that says what it is about and under which settings it was
made. Another version of the data, other efforts or seeds have other names: nothing wrong is ever taken up.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpp2.store.files import write_text
from dpp2.studies.compare.laboratory import Outcome
from dpp2.studies.compare.search import Search, Tried

_FORMAT = 1  # to be raised when the same words would mean other numbers


@dataclass(frozen=True)
class Kept:
    """A folder of finished work; none: nothing is kept."""

    folder: Path | None

    def search(self, key: str) -> Search | None:
        found = self._read(f"{key}-search")
        if found is None:
            return None
        tried = tuple(Tried(tuple(point), tuple(gaps)) for point, gaps in found["tried"])
        return Search(
            tried, tuple((low, high) for low, high in found["ranges"]), found["waves"], found.get("exchanged", False)
        )

    def keep_search(self, key: str, search: Search) -> None:
        tried = [[one.point, one.gaps] for one in search.tried]
        about = {"waves": search.waves, "exchanged": search.exchanged}
        self._write(f"{key}-search", {"tried": tried, "ranges": search.ranges, **about})

    def outcomes(self, key: str) -> list[Outcome] | None:
        found = self._read(f"{key}-measured")
        return None if found is None else [Outcome(**one) for one in found["outcomes"]]

    def keep_outcomes(self, key: str, outcomes: list[Outcome]) -> None:
        self._write(f"{key}-measured", {"outcomes": [asdict(one) for one in outcomes]})

    def _read(self, name: str) -> Any:
        if self.folder is None:
            return None
        try:
            return json.loads((self.folder / f"{name}.json").read_text())
        except (OSError, ValueError):  # not there; or damaged, which only another program can have done
            return None

    def _write(self, name: str, document: dict[str, Any]) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / f"{name}.json", json.dumps(document))  # infinities as Python writes them


def key_of(*parts: object) -> str:
    """A name for what these decide."""
    return hashlib.sha256(repr((_FORMAT, *parts)).encode()).hexdigest()[:24]
