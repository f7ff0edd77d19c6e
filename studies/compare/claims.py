"""What may be concluded: rankings that the numbers carry, and nothing else.

Two things decide who ends lower: the noise of a run, and the luck of a search, which finds other settings whenever it
is made again. So everybody was searched several times, each time from the beginning, and what every search chose ran
on the same fresh seeds. A ranking is claimed if
    whichever search of the one is set beside whichever of the other, the mean of ln Ŵ − ln Ŵ′ over the seeds has the
    same sign, and differs from 0 by Student's t, at 5 % for the whole page (the largest p of these pairs, and Holm's
    correction over everything that is tested on the page); and
    the least of these factors exp |mean| exceeds the luck of either: the most by which two searches of it ended apart
    anywhere on the page (on the same data alone too few are seen, and another seed turned rankings round). Where one
    variant of a method leaves open what another holds, the first contains the second and cannot end higher but by its
    luck, so that counts, too.
Tested are the paper's own methods against everybody else, and the best method of a cell against everybody else.

Two comparisons with different seeds share no random number. A ranking that one claims is turned round by the other if
there the better one ends higher, by the means of ln Ŵ that are reported, however little (`agreement`). A comparison
that is held against another withdraws such rankings, and says how many they were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
from scipy import stats

from dpp2.studies.compare.comparison import Comparison, Found, Result
from dpp2.studies.compare.contenders import Method
from dpp2.studies.compare.tasks import Cell

LEVEL = 0.05

Document = Mapping[str, Any]  # what compare.json holds
_Key = tuple[object, ...]
_CELL = ("data", "start", "track", "epsilon")


@dataclass(frozen=True)
class Ranking:
    """`better` ended lower than `worse` in a cell, by this factor at least; `claimed`: by the rule."""

    cell: Cell
    better: str
    worse: str
    factor: float
    p: float
    claimed: bool


@dataclass(frozen=True, eq=False)
class Rankings:
    """All pairs that were tested. `other`: what a comparison with another seed found."""

    made: Comparison
    other: Document | None = None

    @cached_property
    def all(self) -> tuple[Ranking, ...]:
        tested = [one for cell in self.made.cells for one in _tested(cell, self.made.within(cell))]
        kept = holm([one.p for one in tested])
        return tuple(
            replace(one, claimed=accepted and one.factor > self.margin(one))
            for one, accepted in zip(tested, kept, strict=True)
        )

    def margin(self, one: Ranking) -> float:
        """What its factor must exceed."""
        return (1 + 1e-9) * max(self.luck(one.better), self.luck(one.worse))

    def luck(self, label: str) -> float:
        """The most by which the searches of a method ended apart in any cell."""
        return max((factor for _, who, factor in (*self.apart, *self.misses) if who == label), default=1.0)

    @cached_property
    def apart(self) -> tuple[tuple[Cell, str, float], ...]:
        """For every result with settings to choose, the factor between its searches that end furthest apart."""
        return tuple(
            (one.job.cell, one.label, max(_apart(*pair) for pair in combinations(one.found, 2)))
            for one in self.made.results
            if one.settings and one.complete and len(one.found) > 1
        )

    @cached_property
    def misses(self) -> tuple[tuple[Cell, str, float], ...]:
        """For each cell, the gap of the variant that leaves a setting open over that of the one that holds it."""
        found = []
        for cell in self.made.cells:
            own = [one for one in self.made.within(cell) if one.papers_own and one.complete]
            ends = {_holds_something(one): one for one in own}
            if len(ends) == 2:
                found.append((cell, ends[False].label, reported(ends[True], ends[False])))
        return tuple(found)

    @cached_property
    def claimed(self) -> dict[tuple[Cell, str, str], Ranking]:
        """By cell, better and worse."""
        kept = (one for one in self.all if one.claimed and one not in self.withdrawn)
        return {(one.cell, one.better, one.worse): one for one in kept}

    @cached_property
    def withdrawn(self) -> tuple[Ranking, ...]:
        """What the rule gives here, and the other comparison turns round."""
        there = _logs(self.other) if self.other else {}
        return tuple(one for one in self.all if one.claimed and _turned(ranking_of(one), there))

    def better_than(self, cell: Cell, label: str) -> list[str]:
        """Who is claimed to end lower."""
        return [better for where, better, worse in self.claimed if where == cell and worse == label]

    def worse_than(self, cell: Cell, label: str) -> list[str]:
        """Who is claimed to end higher."""
        return [worse for where, better, worse in self.claimed if where == cell and better == label]


def _holds_something(one: Result) -> bool:
    """Whether it is a variant that fixes a setting."""
    return isinstance(one.job.contender, Method) and bool(one.job.contender.held)


def _apart(one: Found, other: Found) -> float:
    factor = _compared(one, other)[0]
    return max(factor, 1 / factor)


def reported(one: Result, other: Result) -> float:
    """exp of the mean of ln Ŵ(other)/Ŵ(one), as both are reported."""
    return _compared(one.best, other.best)[0]


def compared(one: Result, other: Result) -> tuple[float, float]:
    """(factor, p) of the two searches that come nearest to each other, and no p at all where searches disagree."""
    if not (one.complete and other.complete):
        return (math.inf if one.complete else 1.0, 1.0)
    pairs = [_compared(*pair) for pair in product(one.found, other.found)]
    factors, p = [factor for factor, _ in pairs], max(p for _, p in pairs)
    if min(factors) > 1:
        return min(factors), p
    if max(factors) < 1:
        return max(factors), p
    return reported(one, other), 1.0


def _compared(one: Found, other: Found) -> tuple[float, float]:
    """(factor, p): exp of the mean of ln Ŵ(other)/Ŵ(one), and the two-sided p of its being 1."""
    differences = np.log(other.of("gap")) - np.log(one.of("gap"))
    mean, spread = float(differences.mean()), float(differences.std(ddof=1)) if len(differences) > 1 else math.nan
    if spread < 1e-9:  # both without noise: what differs, differs for certain
        return math.exp(mean), 0.0 if abs(mean) > 1e-6 else 1.0
    if not spread > 0:
        return math.exp(mean), 1.0
    t = mean / (spread / math.sqrt(len(differences)))
    return math.exp(mean), float(2 * stats.t.sf(abs(t), len(differences) - 1))


def holm(values: Sequence[float]) -> list[bool]:
    """Which hypotheses fall at `LEVEL` for all together."""
    order, kept = np.argsort(values, kind="stable"), [False] * len(values)
    for place, number in enumerate(order.tolist()):
        if values[number] > LEVEL / (len(values) - place):
            break
        kept[number] = True
    return kept


def _tested(cell: Cell, results: Sequence[Result]) -> list[Ranking]:
    methods = [one for one in results if not one.reference]
    if not methods:
        return []
    centres = [one for one in methods if one.papers_own]
    centres += [methods[0]] if methods[0] not in centres else []
    pairs = {frozenset((one.label, other.label)): (one, other) for one in centres for other in results if one != other}
    return [_ranking(cell, *pair) for pair in pairs.values()]


def _ranking(cell: Cell, one: Result, other: Result) -> Ranking:
    factor, p = compared(one, other)
    if factor >= 1:
        return Ranking(cell, one.label, other.label, factor, p, claimed=False)
    return Ranking(cell, other.label, one.label, 1 / factor, p, claimed=False)


# --- two comparisons ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """Rankings that one claims, and those of them that the other has the other way round."""

    claimed: int
    shared: int  # that both claim
    turned: tuple[Mapping[str, Any], ...]

    @property
    def looked_at(self) -> str:
        cells = "; ".join(
            f"{one['better']} below {one['worse']} ({one['data']}, {one['start']}, {one['track']}, "
            f"ε = {one['epsilon']:g}, by {one['factor']:.2g})"
            for one in self.turned
        )
        return f": {cells}" if cells else ""


def agreement(one: Document, other: Document) -> Agreement:
    """Of what the first claims, as far as the other has the same cells and methods."""
    there, claimed_there = _logs(other), {_pair(ranking) for ranking in other["rankings"]}
    known = [ranking for ranking in one["rankings"] if {_of(ranking, "better"), _of(ranking, "worse")} <= there.keys()]
    turned = tuple(ranking for ranking in known if _turned(ranking, there))
    return Agreement(len(known), sum(_pair(ranking) in claimed_there for ranking in known), turned)


def sentence(one: Document, other: Document) -> str:
    """Both ways, for the page."""
    here, there, withdrawn = agreement(one, other), agreement(other, one), tuple(one.get("withdrawn", ()))
    gone = replace(here, turned=withdrawn).looked_at
    return (
        f"A comparison on {', '.join(other['plan']['data'])} with seed {other['plan']['seed']}, which shares no random "
        "number with this one, turns round "
        f"{len(withdrawn) or 'none'} of the {here.claimed + len(withdrawn)} rankings that the rule gives "
        f"here{' (they are not claimed)' if withdrawn else ''}{gone}. This page turns round "
        f"{len(there.turned) or 'none'} of the {there.claimed} that it claims{there.looked_at}. {here.shared} are "
        f"claimed by both.{_standing_there(other)}"
    )


def _standing_there(other: Document) -> str:
    """What the other comparison says of the paper's method; nothing where it was left out."""
    found = other.get("standing")
    if not found:
        return ""
    factors, best = found["factors"], max(found["best"], key=lambda label: found["best"][label])
    return (
        f" There, DPP²'s gap is {factors[0]:.2g} to {factors[2]:,.0f} times (median {factors[1]:,.0f}) that of the "
        f"best other method, which is {best} in {found['best'][best]} of {found['cells']} cells. By the rule some "
        f"other method ends lower in {found['lower']} cells, and DPP² ends below what costs no ε in "
        f"{found['useful']}: these two counts depend on the luck that the searches of a page happen to show."
    )


def ranking_of(one: Ranking) -> dict[str, Any]:
    """As compare.json has it."""
    task = one.cell.task
    where = {"data": task.data.name, "start": task.start, "track": task.track.name, "epsilon": one.cell.epsilon}
    return where | {"better": one.better, "worse": one.worse, "factor": one.factor, "p": one.p}


def _turned(ranking: Mapping[str, Any], there: Mapping[_Key, float]) -> bool:
    better, worse = (there.get(_of(ranking, who)) for who in ("better", "worse"))
    return better is not None and worse is not None and better > worse


def _logs(document: Document) -> dict[_Key, float]:
    """Mean of ln Ŵ of every result; ∞ where a run got lost."""
    return {_of(one, "method"): _mean_log([seed["gap"] for seed in one["seeds"]]) for one in document["results"]}


def _mean_log(gaps: list[float | None]) -> float:
    if not gaps or any(gap is None or not 0 <= gap < math.inf for gap in gaps):
        return math.inf
    return sum(math.log(gap) if gap else -math.inf for gap in gaps if gap is not None) / len(gaps)


def _of(one: Mapping[str, Any], who: str) -> _Key:
    return (*(one[name] for name in _CELL), one[who])


def _pair(ranking: Mapping[str, Any]) -> _Key:
    return (*_of(ranking, "better"), ranking["worse"])
