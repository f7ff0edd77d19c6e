"""Pictures of results. matplotlib is loaded when somebody draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpp2.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpp2.result import Result

_FLOOR = 1e-32  # below this a gap is rounding; a log axis needs a positive number
_CEILING = 1e250  # beyond this a log axis overflows when it looks for the next tick


def new_axes() -> Axes:
    """Axes of a figure of their own, which a notebook shows."""
    from matplotlib import pyplot

    _, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    axes.grid(alpha=0.3)
    return axes


def draw_convergence(result: Result, axes: Axes) -> None:
    """Gap, consensus and stationarity against the round."""
    metrics, section = result.metrics, result.experiment
    axes.semilogy(metrics.round, positive(metrics.gap), label="gap Ŵ = consensus + stationarity", lw=2)
    axes.semilogy(metrics.round, positive(metrics.consensus), label="consensus ‖x − x̄‖²", lw=1)
    axes.semilogy(metrics.round, positive(metrics.stationarity), label=r"stationarity ‖Σ$\nabla f_i$‖²/N", lw=1)
    axes.set_title(
        f"{section.algorithm.name} on {section.problem.name}, {section.network.agents} agents, "
        f"{section.network.topology} network"
    )
    axes.set_xlabel("round k")
    axes.set_ylabel("squared distance from the goal")
    # Below the axes: inside, it would lie on the curves of one run or another.
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, frameon=False)


def positive(values: Array) -> Array:
    """What a log axis can show: zero becomes the floor, and a run that overflowed has a gap in its line."""
    finite = np.where(values < _CEILING, values, np.nan)
    return np.asarray(np.maximum(finite, _FLOOR))
