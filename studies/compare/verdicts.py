"""What a comparison says, in sentences made of its numbers: where the paper's method is good, where not, and why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpp2.studies.compare.claims import LEVEL, Rankings
from dpp2.studies.compare.comparison import Comparison, Result
from dpp2.studies.compare.tasks import Cell, Task

_FEW = 3  # rounds
_FREE = ("stay", "local step")  # references that spend no ε


@dataclass(frozen=True, eq=False)
class Standing:
    """How the paper's own method, with the better of its variants, stands in one cell."""

    cell: Cell
    own: Result
    best: Result  # of all other methods
    lower: tuple[str, ...]  # methods that are claimed to end lower
    higher: tuple[str, ...]
    beats_free: bool  # claimed below every reference that spends no ε
    free: float  # the lowest gap of those

    @property
    def factor(self) -> float:
        """Its gap over that of the best other method; below 1 where it is best."""
        return typical(self.own) / typical(self.best)


def typical(one: Result) -> float:
    """exp of the mean of ln Ŵ: what rankings compare."""
    with np.errstate(divide="ignore"):
        return math.exp(float(np.mean(np.log(one.of("gap")))))


def standings(made: Comparison, rankings: Rankings) -> list[Standing]:
    """Of every cell in which the paper's method and some other took part."""
    found = []
    for cell in made.cells:
        results = made.within(cell)
        own = [one for one in results if one.papers_own and one.complete]
        others = [one for one in results if not one.reference and not one.papers_own and one.complete]
        if own and others:
            found.append(_standing(cell, results, min(own, key=typical), min(others, key=typical), rankings))
    return found


def _standing(cell: Cell, results: Sequence[Result], own: Result, best: Result, rankings: Rankings) -> Standing:
    methods = {one.label for one in results if not one.reference and not one.papers_own}
    lower = tuple(label for label in rankings.better_than(cell, own.label) if label in methods)
    higher = tuple(label for label in rankings.worse_than(cell, own.label) if label in methods)
    free = [one for one in results if one.label in _FREE]
    beats = set(_FREE) <= set(rankings.worse_than(cell, own.label))
    return Standing(cell, own, best, lower, higher, beats, min((typical(one) for one in free), default=math.nan))


def standing(made: Comparison, rankings: Rankings) -> dict[str, object] | None:
    """The counts of `answer`, for whoever holds another comparison against this one."""
    found = standings(made, rankings)
    if not found:
        return None
    factors = [one.factor for one in found]
    return {
        "cells": len(found),
        "lower": sum(1 for one in found if one.lower),
        "useful": sum(1 for one in found if one.beats_free),
        "factors": [min(factors), float(np.median(factors)), max(factors)],
        "best": dict(Counter(one.best.label for one in found)),
    }


def answer(made: Comparison, rankings: Rankings) -> list[str]:
    """The page's opening: one short sentence that is the answer, then by how much, where it is of use, and why."""
    found = standings(made, rankings)
    if not found:
        return ["The paper's method did not take part, so nothing is said of it."]
    return [_short(found), _compared(found), _by_how_much(found), _of_use(found), _made_of(found)]


def _short(found: Sequence[Standing]) -> str:
    """True of any numbers, also where DPP² wins."""
    above = Counter(one.best.label for one in found if one.factor > 1)
    count = sum(above.values())
    said = "Yes" if not count else "No" if count == len(found) else "Not everywhere"
    where = f"in {count or len(found)} of {_cells(len(found))}"
    if not count:
        return f"**Is DPP² best at the same ε? {said}: {where} no other method has a lower mean.**"
    ((label, often),) = above.most_common(1)
    others = f"some other method has a lower mean, in {often} of them {label}"
    return f"**Is DPP² best at the same ε? {said}: {where} {others}.**"


def _compared(found: Sequence[Standing]) -> str:
    lower = sum(1 for one in found if one.lower)
    return (
        "A cell is a data set, a start, a kind of ε and an ε. DPP² stands there with the better of its two variants: "
        "τ = 0 as in the paper, or τ searched. Means may differ by luck. By the rule below, which leaves that out, "
        f"some other method ends lower in {lower} of {_cells(len(found))}; in the others none is said to."
    )


def _by_how_much(found: Sequence[Standing]) -> str:
    most = max((one for one in found if one.lower), key=lambda one: one.factor, default=None)
    where = f", most at {_named(most.cell)} ({_both(most)})" if most else ""
    return (
        f"By how much: its gap is {_spread([one.factor for one in found])} times that of the best other method{where}. "
        f"{_champions(found)}"
    )


def _of_use(found: Sequence[Standing]) -> str:
    useful = [one for one in found if one.beats_free]
    good = [one for one in useful if not one.lower]
    said = (
        "Where it is of use: it ends below what costs no ε at all (staying, or one local step) by the rule below in "
        f"{len(useful) or 'none'} of {_cells(len(found))}{_where(useful)}."
    )
    if not useful:
        return said
    if not good:
        return f"{said} In each of these some other method ends lower by that rule."
    return f"{said} In {len(good)} of these no other method ends lower by that rule{_where(good)}."


def _champions(found: Sequence[Standing]) -> str:
    counts = Counter(one.best.label for one in found)
    said = ", ".join(f"{label} in {count}" for label, count in counts.most_common(4))
    return f"The best of the others is {said} of {_cells(len(found))}."


def _cells(count: int) -> str:
    return f"{count} cell{'s' * (count != 1)}"


def _made_of(found: Sequence[Standing]) -> str:
    """From what the search chose: how many rounds, and what the gap is made of. Why, where that explains it."""
    rounds = [_rounds(one.own) for one in found]
    shares = [float(np.mean(one.own.of("consensus"))) / one.own.mean("gap") for one in found if one.own.mean("gap") > 0]
    few, median = sum(1 for count in rounds if count <= _FEW), float(np.median(rounds))
    numbers = f"median {median:.0f}; at most {_FEW} in {few} of {_cells(len(rounds))}"
    parts = f"{100 * float(np.median(shares)):.0f} % of its gap (median) is disagreement" if shares else "it has no gap"
    rest = f"{parts}, the rest distance from the optimum" if shares else parts
    if median > _FEW or not any(one.lower for one in found):
        return f"What it is made of: the search gives DPP² these rounds: {numbers}. {rest[0].upper()}{rest[1:]}."
    return (
        "Why: every message of DPP² pays, twice a round and with the curvature on top, so the search gives it few "
        f"rounds ({numbers}). So few neither move x far nor bring agents together: {rest}. Methods that win average "
        "what was sent, which costs nothing, or share noise that cancels."
    )


def _rounds(one: Result) -> int:
    return int(one.settings.get("run.rounds", 0))


def may_conclude(made: Comparison, rankings: Rankings) -> list[str]:
    """What the page claims, and how much that is."""
    plan, tested, claimed = made.plan, len(rankings.all), len(rankings.claimed)
    methods = [one for one in made.results if not one.reference]
    edges = sum(1 for one in made.results if one.edges)
    runs = sorted({one.runs for one in methods})
    return [
        f"{claimed} of {tested} pairs are ranked. A ranking says: on these data, with these noises, at this ε, the one "
        f"ends lower than the other, whichever of {plan.searches} independent searches of the one is set beside "
        f"whichever of the other (Student's t on paired ln Ŵ over {plan.seeds} fresh seeds, {100 * LEVEL:g} % for the "
        "whole page by Holm's correction); and by a factor that is larger than the luck of either: the most by which "
        "two searches of that method ended apart anywhere on this page.",
        *_searches_apart(rankings),
        f"Every method of a cell had the same number of tuning runs ({_listed(runs)} in {plan.searches} searches, by "
        f"cell); {edges} of {len(made.results)} winners lie at an end of a range.",
    ]


def _searches_apart(rankings: Rankings) -> list[str]:
    """How much a search is worth: the factor between two of them."""
    if not rankings.apart:
        return []
    factors = [factor for *_, factor in rankings.apart]
    cell, label, most = max(rankings.apart, key=lambda one: one[2])
    return [
        f"Two searches of one method in one cell ended apart by a factor of {figure(float(np.median(factors)))} in the "
        f"median, below {figure(float(np.quantile(factors, 0.95)))} in 95 % of all, and by {figure(most)} at most "
        f"({label}, {_named(cell)})."
    ]


def may_not_conclude(made: Comparison, rankings: Rankings) -> list[str]:
    doubtful = len(rankings.all) - len(rankings.claimed)
    return [
        *_missed(rankings),
        f"Nothing about the {doubtful} pairs that are closer than that: in the tables their order is luck, or the "
        "search's.",
        "Nothing about other data, networks or adjacencies, and nothing about settings that another search would find.",
        "How to run a method on private data: tuning looks at the data, which no ε covers.",
        "ε = 100 and 1000 are no protection that anybody should rely on; they are here because the paper's method "
        "needs them. Beside a pure ε a sampler with finite words leaves a δ_dp, which grows with what one message "
        "must hide: see [what is private](privacy.md).",
        "No published code was compared with. Which equations are textbook, which are reconstructed and which are "
        "stand-ins for a class of methods is said at the top of each file in `dpp2/algorithms/`. eDP-TN is missing: "
        "its equations could not be found.",
        "Publishing x^K costs extra in every method but those whose x^K is a function of the messages (dpp3, decor); "
        "the ε here is that of the messages.",
    ]


def _missed(rankings: Rankings) -> list[str]:
    """A variant that leaves a setting open contains the one that holds it: where it ends higher, the search missed."""
    factors = [factor for *_, factor in rankings.misses]
    above = [factor for factor in factors if factor > 1]
    if not above:
        return []
    return [
        f"That a search is perfect: DPP² with τ open contains DPP² with τ = 0, and yet ends higher in {len(above)} "
        f"of {len(factors)} cells, by a factor of {figure(float(np.median(above)))} in the median and "
        f"{figure(max(above))} at most. A search can miss that much, and more with many settings (DPP² has 6 or 7) "
        "than with few. That counts as luck, too."
    ]


def of_task(made: Comparison, rankings: Rankings, task: Task) -> list[str]:
    """One sentence for each ε: who ends lowest, and who cannot be told from it."""
    return [_of_cell(made, rankings, cell) for cell in made.plan.cells(task) if made.within(cell)]


def _of_cell(made: Comparison, rankings: Rankings, cell: Cell) -> str:
    results = made.within(cell)
    methods = [one for one in results if not one.reference and one.complete]
    if not methods:
        return f"ε = {cell.epsilon:g}: no method has a run"
    best = methods[0]
    worse = set(rankings.worse_than(cell, best.label))
    tied = [one.label for one in methods[1:] if one.label not in worse]
    said = f"ε = {cell.epsilon:g}: {best.label} has the lowest mean, {best.mean('gap'):.2g}"
    said += f"; not told from it: {', '.join(tied)}" if tied else ", and every other method is ranked above it"
    free = [label for label in _FREE if label not in worse]
    return said + (f"; not even ranked below {' and '.join(free)}" if free else "")


def _where(found: Sequence[Standing]) -> str:
    """In brackets: data sets by ε and start."""
    by: dict[str, list[str]] = {}
    for one in found:
        by.setdefault(f"ε = {one.cell.epsilon:g} from {one.cell.task.start}", []).append(one.cell.task.data.name)
    said = "; ".join(f"{where}: {', '.join(dict.fromkeys(names))}" for where, names in by.items())
    return f" ({said})" if said else ""


def _both(one: Standing) -> str:
    return f"Ŵ = {typical(one.own):.2g}, {one.best.label} {typical(one.best):.2g}"


def _named(cell: Cell) -> str:
    return f"{cell.task.title}, ε = {cell.epsilon:g}"


def _spread(values: Sequence[float]) -> str:
    return f"{figure(min(values))} to {figure(max(values))} (median {figure(float(np.median(values)))})"


def figure(value: float) -> str:
    """Two digits, without powers of ten where a number is large."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def _listed(values: Iterable[object]) -> str:
    *most, last = map(str, values)
    return f"{', '.join(most)} or {last}" if most else last
