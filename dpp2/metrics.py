"""How far a run is from its goal (paper, eq. for Ŵ^k).

consensus      ‖x − x̄‖²                       do the agents agree?
stationarity   (1/N) ‖Σ_i ∇f_i(x_i)‖²          is the common point stationary?
gap Ŵ          their sum
objective      Σ_i f_i(x_i)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpp2.arrays import Array

COLUMNS = ("round", "gap", "consensus", "stationarity", "objective", "epsilon", "bytes")


def measure(x: Sequence[Array], values: Sequence[Array], grads: Sequence[Array]) -> tuple[float, float, float]:
    """(consensus, stationarity, objective) of agents that come in blocks of rows.

    The mean is subtracted before squaring: ‖x‖² − N‖x̄‖² would drown a gap of 1e-18 in rounding.
    """
    agents = sum(map(len, x))
    mean = _total(x) / agents
    consensus = sum(_squared((block - mean).ravel()) for block in x)
    return consensus, _squared(_total(grads)) / agents, sum(float(block.sum()) for block in values)


def _total(blocks: Sequence[Array]) -> Array:
    """Σ over agents. As a product with ones, since NumPy's own sum over the first axis is several times slower."""
    totals = [np.ones(len(block)) @ block for block in blocks]
    return totals[0] if len(totals) == 1 else np.asarray(np.sum(totals, axis=0))


def _squared(vector: Array) -> float:
    return float(vector @ vector)
