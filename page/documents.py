"""What the browser is told. Names here are the names in the page's scripts.

Five documents make up the state: the network, how far the run has come, what is measured of it meanwhile, what the
eavesdropper has, and what ε is spent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any

Numbers = Sequence[float | None]
Point = tuple[int, float | None]  # round and value


@dataclass(frozen=True)
class NetworkDocument:
    """Facts that do not change while a run goes on."""

    name: str
    algorithm: str
    problem: str
    agents: int
    rounds: int
    places: Sequence[tuple[float, float]]  # of agents, in a square from −1 to 1
    links: Sequence[tuple[int, int]]
    transport: str
    telemetry: bool
    tls: bool
    tap: str
    groups: Sequence[Sequence[int]]  # agents that are hosted together; none: all in one process
    x_is_public: bool  # the algorithm publishes x, and what it protects are gradients
    budget: float | None
    resume: str = ""  # the command that goes on with the run once it is interrupted
    audited: str = ""  # what `dpp2 audit` has said of what is protected, if it has looked at the run


@dataclass(frozen=True)
class NodeDocument:
    node: int
    round: int
    state: str
    bytes: int
    refused: int


@dataclass(frozen=True)
class EventDocument:
    at: float
    round: int
    what: str
    text: str


@dataclass(frozen=True)
class ProgressDocument:
    """How far a run has come. `since` says from which round on `points` take the place of older ones."""

    status: str  # waiting, running, silent, or how it ended
    round: int
    seconds: float
    at: float  # seconds since 1970, when it was last heard of
    rate: float | None  # rounds a second, lately
    pace: Sequence[tuple[float, int]]  # seconds and rounds, from the beginning on
    bytes: int
    points: Sequence[Numbers]  # (round, gap, consensus, stationarity)
    since: int
    nodes: Sequence[NodeDocument]
    events: Sequence[EventDocument]  # all that are kept, the newest first
    report: Mapping[str, float] = field(default_factory=dict)
    charged: int | None = None  # rounds that the ledger holds against it, where these may be more than it has come


@dataclass(frozen=True)
class AttackDocument:
    """Relative errors, round by round, thinned out; `*_now` are medians of the last tenth of the rounds."""

    name: str
    summary: str
    listens: bool
    x: Sequence[Point]
    gradient: Sequence[Point]
    x_now: float | None
    gradient_now: float | None


@dataclass(frozen=True)
class SkippedDocument:
    name: str
    reason: str


@dataclass(frozen=True)
class GuessDocument:
    """x̂ and ∇̂f of all agents in one round: by an attack, in the last round of which it claims them; or true ones.

    Of the attack that the verdict goes by, in the round that the verdict names.
    """

    round: int
    x: Sequence[Numbers]
    gradient: Sequence[Numbers]


@dataclass(frozen=True)
class OverheardDocument:
    """What an eavesdropper on all channels has made of what was heard so far."""

    source: str
    ciphertext: Sequence[str]  # what it still gives away; none: it was readable
    first: int
    last: int
    channels: int
    attacks: Sequence[AttackDocument]
    closest: Mapping[str, str]  # which of them the verdict goes by, for x and for gradients
    skipped: Sequence[SkippedDocument]
    unscored: str | None
    truths: Mapping[str, GuessDocument]  # by round: those of the guesses, as far as they are on record
    guesses: Mapping[str, GuessDocument]
    verdict: str
    broken: bool | None  # None: it cannot be told
    quick: bool = True  # no attack that takes longer was run
    named: int | None = None  # the round that the verdict is about, if it is about a single one
    report: Mapping[str, float] = field(default_factory=dict)  # what the problem says of the mean so far, by name


@dataclass(frozen=True)
class MeasuredDocument:
    """Metrics of a run that tells none itself, from what its nodes have put on record: those of `ProgressDocument`."""

    points: Sequence[Numbers]


@dataclass(frozen=True)
class AccountDocument:
    """ε after some numbers of rounds, as log10, of every agent; the paper's claim beside it."""

    budget: float | None
    rounds: Sequence[int]
    agents: Sequence[Numbers]  # one row per agent; one row in all where they are the same
    paper: Numbers
    uncovered: int | None  # from this round on ε = ∞
    reason: str | None  # why there is no ε
    outside: Sequence[str]  # what no ε covers


def compact(document: Any) -> str:
    """JSON in one line. What is no number is null, and six digits are enough for a picture."""
    return json.dumps(_plain(document), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return _plain(vars(value)) if is_dataclass(value) else value
