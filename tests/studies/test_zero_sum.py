"""Noise that sums to zero over a node's own channels: hidden from one neighbour, and from nobody who hears them all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpp2 import Experiment
from dpp2.studies.reproduce import STUDIES
from dpp2.studies.reproduce.study import Order
from dpp2.studies.reproduce.zero_sum import ZERO_SUM, channels, exhibited


@pytest.mark.parametrize("count", [2, 5, 30])
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_the_mean_of_all_channels_is_x_and_no_single_one_is(count: int, scale: float) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(10)
    heard = channels(x, count, scale, rng)
    np.testing.assert_allclose(heard.mean(axis=0), x, rtol=0, atol=2e-15 * scale)
    assert np.abs(heard - x).max(axis=1).min() > 0.3 * scale


def test_errors_are_those_that_the_docstring_derives() -> None:
    found = exhibited(3.0, 20)
    degrees = np.array(_degrees(), dtype=float)
    one = 3.0 * np.sqrt(np.mean(1 - 1 / degrees))
    rest = 3.0 * np.sqrt(np.mean(1 / (degrees * (degrees - 1))))
    assert found.one_channel == pytest.approx(one, rel=0.05)
    assert found.all_but_one == pytest.approx(rest, rel=0.05)
    assert found.all_channels < 1e-15


def _degrees() -> list[int]:
    return [int(degree) for degree in Experiment.load().resolve().network.graph().degrees]


def test_it_is_a_study_like_the_others(tmp_path: Path) -> None:
    assert STUDIES["zero-sum"] is ZERO_SUM
    made = ZERO_SUM.run(Order(1, 1))
    (claim,) = ZERO_SUM.judge(made)
    assert claim.held
    assert ZERO_SUM.write(made, tmp_path)["rows"].is_file()
    assert len(ZERO_SUM.table(made).rows) == 3
