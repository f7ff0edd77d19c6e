"""Sums over many numbers: in pieces, and the same as over all at once."""

from __future__ import annotations

import numpy as np
import pytest

from dpp2.arrays import ONE_CORE, shorter, squared, total, within

SHAPES = [(0, 3), (1, 1), (50, 10), (ONE_CORE, 1), (ONE_CORE + 1, 1), (3 * ONE_CORE, 1), (7001, 10), (3, ONE_CORE + 5)]


@pytest.mark.parametrize("shape", SHAPES)
def test_pieces_add_up(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(1).standard_normal(shape)
    assert squared(rows) == pytest.approx(float((rows**2).sum()), rel=1e-13)
    np.testing.assert_allclose(total(rows), rows.sum(axis=0), atol=1e-10)


@pytest.mark.parametrize("place", [0, ONE_CORE, 3 * ONE_CORE + 1])
@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e200])
def test_one_odd_number_is_seen_wherever_it_is(place: int, odd: float) -> None:
    """And nothing is said of an overflow: a square that is inf is an answer."""
    values = np.zeros(3 * ONE_CORE + 2)
    assert shorter(values, 1.0)
    values[place] = odd
    assert not shorter(values, 1e150)
    assert not within(values, 1e150)
    assert within(values, 1e300) == np.isfinite(odd)
