"""Pictures: the gap, and accuracy where there is one, against ε, with bands and references."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpp2.store.files import write_whole
from dpp2.studies.compare.comparison import Comparison, Result
from dpp2.studies.compare.contenders import Method
from dpp2.studies.compare.tasks import DataSet, Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    "stay": ":",
    "local step": "-.",
    "one gradient": "--",
    "curator": (0, (6, 1, 1, 1)),
    "no privacy": (0, (1, 3)),
}
_MARKS = "osv^D<>pXP*hd8H"
_LARGEST = 30.0  # times the gap of staying: what is worse leaves the picture


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


def draw(made: Comparison, data: DataSet, path: Path) -> None:
    """One data set from its first start: a column for each track."""
    tasks = [task for task in made.plan.tasks if task.data == data and task.start == made.plan.starts[0]]
    shown = ["gap", *(["accuracy"] if _has_accuracy(made, tasks) else [])]
    figure, grid = panels(len(shown), len(tasks))
    labels = sorted({one.label for one in made.results if not one.reference})
    for metric, row in zip(shown, grid, strict=True):
        for task, axes in zip(tasks, row, strict=True):
            _panel(axes, made, task, metric, labels)
    drawn = [axes.get_legend_handles_labels() for row in grid for axes in row]
    handles = {label: line for lines, names in drawn for line, label in zip(lines, names, strict=True)}
    figure.legend(list(handles.values()), list(handles), loc="outside right center", fontsize=8)
    about = f"{data.name}, start {made.plan.starts[0]}: mean and standard error over {made.plan.seeds} seeds"
    figure.suptitle(about, fontsize=10)
    save(figure, path)


def _has_accuracy(made: Comparison, tasks: Sequence[Task]) -> bool:
    results = [one for one in made.results if one.job.cell.task in tasks]
    return any(np.isfinite(one.of("accuracy")).any() for one in results)


def _panel(axes: Axes, made: Comparison, task: Task, metric: str, labels: Sequence[str]) -> None:
    results = [one for cell in made.plan.cells(task) for one in made.within(cell)]
    for label in dict.fromkeys(one.label for one in results):
        _line(axes, [one for one in results if one.label == label], metric, labels)
    ylabel = "gap Ŵ" if metric == "gap" else "held-out accuracy"
    axes.set(xlabel="ε", xscale="log", title=task.track.title, ylabel=ylabel)
    axes.title.set_fontsize(9)
    if metric == "gap":
        stay = max((one.mean("gap") for one in results if one.label == "stay"), default=1.0)
        shown = [one.mean("gap") for one in results if one.complete and one.label != "no privacy"]
        axes.set(yscale="log", ylim=(min(shown, default=1e-3) / 2, _LARGEST * stay))


def _line(axes: Axes, results: Sequence[Result], metric: str, labels: Sequence[str]) -> None:
    points = [one for one in results if np.isfinite(one.mean(metric))]
    if not points:
        return
    first = points[0]
    along = [one.job.cell.epsilon for one in points]
    means, errors = (np.array([getattr(one, which)(metric) for one in points]) for which in ("mean", "error"))
    look = _look(first, labels)
    axes.plot(along, means, label=first.label, **look)
    axes.fill_between(along, means - errors, means + errors, color=look["color"], alpha=0.15, lw=0)


def _look(one: Result, labels: Sequence[str]) -> dict[str, Any]:
    """References are grey lines, the paper's own methods thick ones: as it is in black, damped in red."""
    if one.reference:
        return {"color": "0.35", "ls": _LOOKS[one.label], "lw": 1.3}
    number = labels.index(one.label)
    usual = {"color": f"C{number % 10}", "lw": 1.0, "marker": _MARKS[number % len(_MARKS)], "ms": 3.5}
    contender = one.job.contender
    held = isinstance(contender, Method) and contender.held
    return {**usual, "color": "k" if held else "r", "lw": 2.6} if one.papers_own else usual
