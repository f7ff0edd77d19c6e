"""Notes beside an ε, in as few lines as they need: those that say the same of several things become one."""

from __future__ import annotations

import re
from collections.abc import Iterable

_VOID = "experiment: no ε holds, because "
_OUTSIDE = re.compile(r"(?:,| and)? (?:which )?(?:is|are) outside ε|, which no ε covers")


def grouped(notes: Iterable[str]) -> list[str]:
    """Each once. First those about one thing; then what lies outside ε; last why no ε holds, which matters most.

    >>> grouped(["x is outside ε: declare it", "experiment: no ε holds, because s", "a", "y, which no ε covers"])
    ['a', 'outside ε: x (declare it); y', 'experiment: no ε holds, because s']
    """
    alone, outside, void = list[str](), list[str](), list[str]()
    for note in dict.fromkeys(notes):
        if note.startswith(_VOID):
            void.append(note.removeprefix(_VOID))
        elif found := _OUTSIDE.search(note):
            outside.append(_listed(note[: found.start()], note[found.end() :]))
        else:
            alone.append(note)
    return [
        *alone,
        *(["outside ε: " + "; ".join(outside)] if outside else []),
        *([_VOID + "; and ".join(void)] if void else []),
    ]


def _listed(what: str, rest: str) -> str:
    """With what can be done about it in brackets."""
    return f"{what} ({rest.removeprefix(': ')})" if rest.startswith(": ") else f"{what}{rest}"
