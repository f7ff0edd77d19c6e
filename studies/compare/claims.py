"""What may be concluded: rankings that the numbers carry, and nothing else.

Two contenders of a cell ran on the same seeds. Their ranking is claimed if
    the mean of ln Ŵ − ln Ŵ′ over the seeds differs from 0 by Student's t, at 5 % for the whole page (Holm's correction
    over every pair that is tested on it), and
    the factor exp |mean| exceeds the margin of the page, since another search finds other settings: `MARGIN`, or
    the most by which a search on this page is seen to have missed, whichever is more. It is seen where one variant of
    a method leaves open what another holds: the first contains the second, and cannot end higher but by its search.
Tested are the paper's own methods against everybody else, and the best method of a cell against everybody else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from dpp2.studies.compare.comparison import Comparison, Result
from dpp2.studies.compare.contenders import Method
from dpp2.studies.compare.tasks import Cell

LEVEL = 0.05
MARGIN = 12.0
TURNED = (
    11.6  # the largest factor that a smaller search with other seeds has turned round: why the margin is what it is
)


@dataclass(frozen=True)
class Ranking:
    """`better` ended lower than `worse` in a cell, by this factor; `claimed`: by the rule."""

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
            Ranking(one.cell, one.better, one.worse, one.factor, one.p, accepted and one.factor > self.margin)
            for one, accepted in zip(tested, kept, strict=True)
        )

    @cached_property
    def margin(self) -> float:
        return (1 + 1e-9) * max((MARGIN, *self.misses))

    @cached_property
    def misses(self) -> tuple[float, ...]:
        """For each cell, the gap of the variant that leaves a setting open over that of the one that holds it."""
        found = []
        for cell in self.made.cells:
            own = [one for one in self.made.within(cell) if one.papers_own and one.complete]
            ends = {_holds_something(one): one for one in own}
            found += [compared(ends[True], ends[False])[0]] if len(ends) == 2 else []
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


def compared(one: Result, other: Result) -> tuple[float, float]:
    """(factor, p): exp of the mean of ln Ŵ(other)/Ŵ(one), and the two-sided p of its being 1."""
    if not (one.complete and other.complete):
        return (math.inf if one.complete else 1.0, 1.0)
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
        if compared(results[ranking.better], results[ranking.worse])[0] < 1:
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
