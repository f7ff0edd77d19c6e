"""What may be concluded: rankings that the numbers carry, and nothing else.

Two things decide who ends lower: the noise of a run, and the luck of a search, which finds other settings whenever it
is made again. So everybody was searched several times, each time from the beginning, and what every search chose ran
on the same fresh seeds. A ranking is claimed if
    whichever search of the one is set beside whichever of the other, the mean of ln Ŵ − ln Ŵ′ over the seeds has the
    same sign, and differs from 0 by Student's t, at 5 % for the whole page (the largest p of these pairs, and Holm's
    correction over everything that is tested on the page); and
    the least of these factors exp |mean| exceeds the luck of either: the most by which two searches of it ended apart
    anywhere on the same data. Where one variant of a method leaves open what another holds, the first contains the
    second and cannot end higher but by its luck, so that counts, too.
Tested are the paper's own methods against everybody else, and the best method of a cell against everybody else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product

import numpy as np
from scipy import stats

from dpp2.studies.compare.comparison import Comparison, Found, Result
from dpp2.studies.compare.contenders import Method
from dpp2.studies.compare.tasks import Cell

LEVEL = 0.05


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
    """All pairs that were tested."""

    made: Comparison

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
        return (1 + 1e-9) * max(self.luck(one.cell, one.better), self.luck(one.cell, one.worse))

    def luck(self, cell: Cell, label: str) -> float:
        """The most by which the searches of a method ended apart on the data of this cell."""
        return self._luck.get((cell.task.data.name, label), 1.0)

    @cached_property
    def _luck(self) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        for cell, label, factor in (*self.apart, *self.misses):
            key = cell.task.data.name, label
            found[key] = max(found.get(key, 1.0), factor)
        return found

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
        return {(one.cell, one.better, one.worse): one for one in self.all if one.claimed}

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


def contradictions(one: Rankings, other: Rankings) -> list[Ranking]:
    """Rankings that one comparison claims and in which another, with other seeds, has it the other way round."""
    found = []
    for ranking in one.claimed.values():
        results = {result.label: result for result in other.made.within(ranking.cell)}
        if not {ranking.better, ranking.worse} <= results.keys():
            continue
        if reported(results[ranking.better], results[ranking.worse]) < 1:
            found.append(ranking)
    return found


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
