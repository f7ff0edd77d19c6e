"""How far a run is from its goal (paper, eq. for Ŵ^k).

consensus      ‖x − x̄‖²                       do the agents agree?
stationarity   (1/N) ‖Σ_i ∇f_i(x_i)‖²          is the common point stationary?
gap Ŵ          their sum
objective      Σ_i f_i(x_i)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dpp2.arrays import Array

Map = Callable[..., Iterable[Any]]  # the builtin, or that of an executor
COLUMNS = ("round", "gap", "consensus", "stationarity", "objective", "epsilon", "bytes")


def measure(
    x: Sequence[Array], values: Sequence[Array], grads: Sequence[Array], each: Map = map
) -> tuple[float, float, float]:
    """(consensus, stationarity, objective) of agents that come in blocks of rows; `each` may map them on several cores.

    The mean is subtracted before squaring: ‖x‖² − N‖x̄‖² would drown a gap of 1e-18 in rounding.
    """
    agents = sum(map(len, x))
    mean = sum(each(_total, x)) / agents
    consensus = sum(each(lambda block: _squared((block - mean).ravel()), x))
    total: Array = sum(each(_total, grads))  # type: ignore[assignment]  # there is at least one block
    return consensus, _squared(total) / agents, sum(float(block.sum()) for block in values)


def _total(block: Array) -> Array:
    """Σ over agents. As a product with ones, since NumPy's own sum over the first axis is several times slower."""
    return np.asarray(_ones(len(block)) @ block)


@lru_cache(maxsize=8)
def _ones(agents: int) -> Array:
    return np.ones(agents)


def _squared(vector: Array) -> float:
    return float(vector @ vector)
