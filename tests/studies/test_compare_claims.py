"""Rankings are claimed where paired differences exceed their uncertainty, corrected for how many there are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from dpp2 import Experiment
from dpp2.arrays import Array
from dpp2.studies.compare import page
from dpp2.studies.compare.claims import Document, Rankings, agreement, compared, holm, sentence
from dpp2.studies.compare.comparison import Comparison, Found, Result
from dpp2.studies.compare.contenders import Contender, methods
from dpp2.studies.compare.laboratory import Outcome
from dpp2.studies.compare.plan import Job, Plan
from dpp2.studies.compare.references import Stay
from dpp2.studies.compare.search import Effort, Search, Tried
from dpp2.studies.compare.tasks import PURE, Cell, DataSet, Task

SMALL = {"network.agents": 4, "network.topology": "ring", "problem.dimension": 2, "problem.samples": 5}
DATA = DataSet.of("small", "small", Experiment.load(overrides=SMALL))
METHODS = tuple(methods(["dpp2", "dmsp", "dgd"]))
(DAMPED,) = methods(["dpp2-damped"])
PLAN = Plan((DATA,), METHODS, (1.0,), starts=("zero",), tracks=(PURE,), effort=Effort.of(28), seeds=10)
CELL = Cell(Task(DATA, "zero", PURE), 1.0)


def found(contender: Contender, gaps: Sequence[float] | Array) -> Found:
    point = tuple(0.5 for _ in contender.axes(CELL.task))
    search = Search((Tried(point, (1.0, 1.0)),), ((0.0, 1.0),) * len(point), 1)
    outcomes = tuple(Outcome(float(gap), 0.0, 0.0, float("nan")) for gap in gaps)
    return Found(search, outcomes)


def result(contender: Contender, *searches: Sequence[float] | Array) -> Result:
    """What each of its searches chose ended with these gaps."""
    job = Job(CELL, contender, PLAN.effort, len(searches[0]), 1)
    return Result(job, tuple(found(contender, gaps) for gaps in searches))


def drawn(contender: Contender, middle: float, seed: int = 0, spread: float = 0.3, apart: float = 1.0) -> Result:
    """Two searches, of which the second ends so many times as high."""
    rng = np.random.default_rng(seed)
    return result(contender, *(scale * middle * np.exp(spread * rng.standard_normal(10)) for scale in (1.0, apart)))


def made(*results: Result) -> Rankings:
    return Rankings(Comparison(PLAN, results, ()))


def test_what_is_far_apart_is_ranked() -> None:
    found = made(drawn(METHODS[0], 40.0, 1), drawn(METHODS[1], 1.0, 2), drawn(METHODS[2], 1.1, 3))
    assert found.better_than(CELL, "dpp2") == ["dmsp", "dgd"]


def test_what_lies_within_the_noise_is_not() -> None:
    found = made(drawn(METHODS[0], 1.05, 1), drawn(METHODS[1], 1.0, 2))
    assert found.claimed == {}
    assert len(found.all) == 1


def test_a_sure_difference_that_is_less_than_the_luck_of_a_search_is_not_claimed() -> None:
    """Another search would move the gap by as much."""
    lucky = drawn(METHODS[0], 4.0, 1, 1e-3, apart=5.0)
    found = made(lucky, drawn(METHODS[1], 1.0, 2, 1e-3))
    assert found.luck("dpp2") == pytest.approx(5, rel=0.01)
    assert found.all[0].p < 1e-6
    assert found.all[0].factor == pytest.approx(4, rel=0.01)
    assert found.claimed == {}
    assert made(drawn(METHODS[0], 6.0, 1, 1e-3, apart=5.0), drawn(METHODS[1], 1.0, 2, 1e-3)).claimed


def test_searches_that_disagree_make_no_ranking() -> None:
    """One search of dpp2 ends below dmsp, the other above it: whoever is reported, it was luck."""
    found = made(drawn(METHODS[0], 0.01, 1, 1e-3, apart=1e4), drawn(METHODS[1], 1.0, 2, 1e-3))
    assert found.all[0].p == 1.0
    assert found.claimed == {}


def test_luck_belongs_to_its_method() -> None:
    assert made(drawn(METHODS[0], 1.0, 1, 1e-3, apart=5.0)).luck("dmsp") == 1.0


def test_a_variant_above_the_one_it_contains_has_missed_by_as_much() -> None:
    """τ open contains τ = 0: it ends 30 times as high here, so 20 times is no ranking of it."""
    missed = drawn(DAMPED, 30.0, 1, 1e-3), drawn(METHODS[0], 1.0, 2, 1e-3)
    found = made(*missed, drawn(METHODS[1], 30 / 20, 3, 1e-3), drawn(METHODS[2], 30 / 40, 4, 1e-3))
    assert found.luck("dpp2-damped") == pytest.approx(30, rel=0.01)
    assert found.better_than(CELL, "dpp2-damped") == ["dgd"]


def test_pairs_share_their_seeds() -> None:
    """A common factor of each seed, as from a common start, does not hide a difference."""
    common = np.exp(np.random.default_rng(0).standard_normal(10) * 3)
    factor, p = compared(result(METHODS[1], common), result(METHODS[0], 3 * common * np.linspace(0.99, 1.01, 10)))
    assert factor == pytest.approx(3, rel=0.01)
    assert p < 1e-9


def test_runs_that_got_lost_are_never_ranked_first() -> None:
    found = made(result(METHODS[0], [1.0] * 9 + [float("inf")]), drawn(METHODS[1], 1.0))
    assert not found.worse_than(CELL, "dpp2")


def test_references_are_ranked_too() -> None:
    found = made(drawn(METHODS[0], 1.0, 1), result(Stay(), [100.0] * 10))
    assert found.worse_than(CELL, "dpp2") == ["stay"]


def test_holm_rejects_in_order() -> None:
    assert holm([0.001, 0.04, 0.03]) == [True, False, False]
    assert holm([0.001, 0.02, 0.015]) == [True, True, True]
    assert holm([]) == []


def document(rankings: Rankings, seed: int) -> Document:
    return page.document(rankings.made, rankings) | {"plan": {"seed": seed, "data": ["small"]}}


def test_two_comparisons_disagree_where_a_claim_is_turned_round() -> None:
    one = document(made(drawn(METHODS[0], 40.0, 1), drawn(METHODS[1], 1.0, 2)), 1)
    same = document(made(drawn(METHODS[0], 8.0, 3), drawn(METHODS[1], 1.2, 4)), 2)
    other = document(made(drawn(METHODS[0], 1.0, 5), drawn(METHODS[1], 9.0, 6)), 2)
    assert (agreement(one, same).claimed, agreement(one, same).shared, agreement(one, same).turned) == (1, 1, ())
    assert [(turned["better"], turned["worse"]) for turned in agreement(one, other).turned] == [("dmsp", "dpp2")]
    assert "seed 2" in sentence(one, same)
    assert "turns round none of the 1 rankings that the rule gives here. This page" in sentence(one, same)
    assert "times (median 7) that of the best other method, which is dmsp in 1 of 1 cells" in sentence(one, same)


def test_what_another_comparison_turns_round_is_withdrawn_and_counted() -> None:
    rankings = made(drawn(METHODS[0], 40.0, 1), drawn(METHODS[1], 1.0, 2))
    other = document(made(drawn(METHODS[0], 1.0, 5), drawn(METHODS[1], 9.0, 6)), 2)
    assert len(rankings.claimed) == 1
    held = Rankings(rankings.made, other)
    assert (held.claimed, [(one.better, one.worse) for one in held.withdrawn]) == ({}, [("dmsp", "dpp2")])
    said = sentence(document(held, 1), other)
    assert "turns round 1 of the 1 rankings that the rule gives here (they are not claimed): dmsp below dpp2" in said


def test_a_run_that_got_lost_turns_its_ranking_round() -> None:
    one = document(made(drawn(METHODS[0], 40.0, 1), drawn(METHODS[1], 1.0, 2)), 1)
    lost = document(made(drawn(METHODS[0], 40.0, 1), result(METHODS[1], [math.inf] * 10)), 2)
    assert len(agreement(one, lost).turned) == 1
