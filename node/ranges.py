"""Many agents in few words: `0-24999,30000`. For command lines, cluster.toml, and what nodes tell each other.

gRPC takes 16 KB of metadata and Linux 128 KB in one argument, and a node may host more agents than fit when listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

MOST_AGENTS = 10**6  # as `network.agents`: no more than that are ever counted up, whoever asks for it

_READABLE = 80  # characters in a sentence


def spans(agents: Iterable[int]) -> list[tuple[int, int]]:
    """(first, last) of all runs of consecutive agents, ascending."""
    ordered = sorted(agents)
    starts = [n for n in range(len(ordered)) if n == 0 or ordered[n] != ordered[n - 1] + 1]
    return [(ordered[first], ordered[after - 1]) for first, after in pairwise([*starts, len(ordered)])]


def ranges_text(agents: Iterable[int]) -> str:
    """Ascending; neighbours in number are joined."""
    return ",".join(_span(first, last) for first, last in spans(agents))


def few_words(agents: Iterable[int]) -> str:
    """For a sentence: as much of it as can be read."""
    return text if len(text := ranges_text(agents)) <= _READABLE else f"{text[:_READABLE].rpartition(',')[0]},…"


def read_ranges(text: str) -> tuple[int, ...]:
    """Ascending; ValueError where it is no such list, names an agent twice, or one that cannot be."""
    spans = sorted(map(_ends, text.split(",")))
    if any(first <= last for (_, last), (first, _) in pairwise(spans)):
        raise ValueError("an agent twice")
    return tuple(agent for first, last in spans for agent in range(first, last + 1))


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _ends(part: str) -> tuple[int, int]:
    first, dash, last = part.strip().partition("-")
    if not (first.isdecimal() and (last.isdecimal() if dash else True)):
        raise ValueError("not a number or two")
    low, high = int(first), int(last if dash else first)
    if not low <= high < MOST_AGENTS:
        raise ValueError("not ascending, or too many")
    return low, high
