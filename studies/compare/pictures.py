"""Pictures with several panels: mean and band over seeds against rounds, bytes and ε."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from store.files import write_whole
from studies.compare.comparison import Comparison, TunedMethod

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SMALLEST, _LARGEST = 1e-32, 1e30  # what the log axes show


def panels(rows: int, columns: int) -> tuple[Figure, list[list[Axes]]]:
    """An empty figure and its axes."""
    # Imported here: matplotlib takes a second to load and most commands never draw. Agg needs no screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, 3.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.grid(alpha=0.3)
    return figure, [list(row) for row in grid]


def save(figure: Figure, path: Path) -> None:
    """Under its name there is only ever a complete file."""
    write_whole(path, lambda file: figure.savefig(file, dpi=90, format="png"))


def draw(made: Comparison, path: Path) -> None:
    """The gap against rounds, bytes and ε, a colour for each method."""
    figure, [row] = panels(1, 3)
    for axes, (column, label) in zip(row, _AXES.items(), strict=True):
        for number, entry in enumerate(made.entries):
            _line(axes, entry, column, f"C{number % 10}", ("-", "--")[number // 10 % 2])
        axes.axhline(made.zero_gap, color="grey", ls=":", lw=1)
        axes.set(xlabel=label, yscale="log", xscale="linear" if column == "epsilon" else "log")
    row[0].set_ylabel("gap Ŵ (mean; band: least, greatest)")
    row[0].set_title(f"ε = {made.budget:g}, {made.seeds} seeds; dotted: all agents stay at 0", fontsize=9)
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    save(figure, path)


_AXES = {"round": "round k", "bytes": "bytes sent on all channels", "epsilon": "ε spent so far"}


def _line(axes: Axes, entry: TunedMethod, column: str, colour: str, style: str) -> None:
    """A log axis has no place for x = 0: rounds and bytes begin with the first round."""
    gaps = np.clip(entry.over_seeds("gap"), _SMALLEST, _LARGEST)
    rounds = np.arange(gaps.shape[1])
    along = rounds if column == "round" else getattr(max(entry.curves, key=lambda one: len(one.gap)), column)
    shown = slice(0 if column == "epsilon" else 1, len(along))
    low, middle, high = (statistic(gaps, axis=0)[shown] for statistic in (np.min, np.mean, np.max))
    axes.plot(along[shown], middle, color=colour, ls=style, lw=1.2, label=entry.method.label)
    axes.fill_between(along[shown], low, high, color=colour, alpha=0.15, lw=0)
