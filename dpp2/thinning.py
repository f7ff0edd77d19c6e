"""Fewer points of a curve, with its peaks left in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpp2.arrays import Array


def chosen(values: Array, most: int) -> NDArray[np.intp]:
    """Indices of at most `most` of them (no fewer than 4): the first, the last, and of each bin its least and largest.

    A spike of one round is there in the thinned curve, too, and at its own place. What is not a number is chosen
    only where a bin has nothing else.

    >>> chosen(np.array([1.0, 1.0, 9.0, 1.0, 1.0, 0.0, 1.0, 1.0]), 6).tolist()
    [0, 1, 2, 5, 6, 7]
    """
    count = len(values)
    if count <= max(most, 4):
        return np.arange(count)
    edges = np.linspace(1, count - 1, max(most - 2, 2) // 2 + 1).astype(int)
    starts, ends = edges[:-1], edges[1:]
    width = int((ends - starts).max())
    places = np.minimum(starts[:, None] + np.arange(width), ends[:, None] - 1)  # a short bin repeats its last one
    bins = np.asarray(values, dtype=np.float64)[places]
    unknown = np.isnan(bins)
    least, largest = (np.where(unknown, end, bins) for end in (np.inf, -np.inf))
    rows = np.arange(len(starts))
    found = [places[rows, least.argmin(axis=1)], places[rows, largest.argmax(axis=1)]]
    return np.unique(np.concatenate([[0], *found, [count - 1]]))
