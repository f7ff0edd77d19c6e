"""The joint search: seeded, the same number of runs for everybody, and no winner at an end of its range."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpp2 import BadInput
from dpp2.algorithms.declared import Tunable
from dpp2.studies.compare.search import Effort, Search, Tried, begun, carried_on
from dpp2.studies.compare.space import Axis, Point, applied

STEP = Axis("algorithm", Tunable("alpha", 1e-3, 1.0))
DECAY = Axis("noise", Tunable("decay", 0.3, 1.0, "linear", least=0.0, most=1.0))
ROUNDS = Axis("run", Tunable("rounds", 1, 64, least=1, whole=True))
AXES = (STEP, DECAY, ROUNDS)
OWN = (0.5, 0.5, 0.5)
EFFORT = Effort.of(124)


def whole(seed: int = 1, target: Point = (0.7, 0.4, 0.2), waves: int = EFFORT.waves) -> Search:
    def evaluate(point: Point, number: int) -> float:
        return math.exp(10 * sum((a - b) ** 2 for a, b in zip(point, target, strict=True)))

    search = begun(AXES, OWN, evaluate, EFFORT, seed)
    while search.waves < waves:
        search = carried_on(search, AXES, evaluate, EFFORT, seed)
    return search


def test_the_search_finds_a_minimum_within_the_ranges() -> None:
    assert np.abs(np.array(whole().best.point) - (0.7, 0.4, 0.2)).max() < 0.1


def test_a_minimum_beyond_a_range_is_found_there() -> None:
    search = whole(target=(1.4, 0.4, 0.2), waves=EFFORT.waves + 2)
    assert search.best.point[0] > 1.2
    assert search.ranges[0][1] > 1.4
    assert search.edges(AXES) == []


def test_a_winner_at_an_end_is_said_to_be_there() -> None:
    search = Search((Tried((0.99, 0.5, 0.5), (1.0, 1.0)),), ((0.0, 1.0),) * 3)
    assert search.edges(AXES) == ["algorithm.alpha"]


def test_a_setting_at_its_own_limit_is_at_no_end() -> None:
    search = Search((Tried((0.5, 1.0, 0.0), (1.0, 1.0)),), ((0.0, 1.0),) * 3)
    assert search.edges(AXES) == []


def test_no_point_leaves_the_limits_of_a_setting() -> None:
    for one in whole(target=(0.5, 1.5, -0.5)).tried:
        values = [axis.value(at) for axis, at in zip(AXES, one.point, strict=True)]
        assert 0.0 <= values[1] <= 1.0
        assert values[2] >= 1
        assert isinstance(values[2], int)


def test_every_search_takes_the_runs_that_are_stated() -> None:
    for target in ((0.7, 0.4, 0.2), (1.4, 0.4, 0.2)):
        assert whole(target=target).runs == EFFORT.runs(EFFORT.waves) <= 124


def test_a_search_is_a_function_of_its_seed() -> None:
    assert whole(1) == whole(1)
    assert whole(1) != whole(2)


def test_a_search_taken_up_again_is_the_same() -> None:
    assert whole(waves=3) == _continued(whole(waves=2))


def _continued(search: Search) -> Search:
    def evaluate(point: Point, number: int) -> float:
        return math.exp(10 * sum((a - b) ** 2 for a, b in zip(point, (0.7, 0.4, 0.2), strict=True)))

    return carried_on(search, AXES, evaluate, EFFORT, 1)


def test_the_first_point_is_what_the_contender_comes_with() -> None:
    assert whole().tried[0].point == OWN


def test_a_run_that_got_lost_loses() -> None:
    assert Tried((0.0,), (1.0, math.inf)).score == math.inf


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(BadInput, match="--evaluations"):
        Effort.of(20)


def test_settings_that_move_together_keep_their_ratio() -> None:
    axes = (Axis("algorithm", Tunable("alpha", 0.01, 1.0, together=("beta",))),)
    assert applied({"alpha": 0.1, "beta": 0.05}, axes, (1.0,)) == pytest.approx({"alpha": 1.0, "beta": 0.5})


def test_a_factor_comes_on_top_of_what_moved_together() -> None:
    axes = (
        Axis("algorithm", Tunable("alpha", 0.01, 1.0, together=("beta",))),
        Axis("algorithm", Tunable("beta", 0.1, 10.0, relative=True)),
    )
    found = applied({"alpha": 0.1, "beta": 0.05}, axes, (1.0, 1.0))
    assert found == pytest.approx({"alpha": 1.0, "beta": 5.0})
