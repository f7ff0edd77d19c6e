"""Pictures: the gap, and accuracy where there is one, against ε, with bands and references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpp2.store.files import write_whole
from dpp2.studies.compare.comparison import Comparison, Result
from dpp2.studies.compare.tasks import DataSet, Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OTHERS = 4  # methods beside the paper's own that are drawn so that they can be told apart
_LARGEST = 30.0  # times the gap of staying: what is worse leaves the picture
_APART = 0.058  # of a panel's height, between two labels

Look = dict[str, Any]
# Told apart by marks and dashes, so that no colour is needed; the colours differ for the colour-blind, too.
_OWN: tuple[Look, ...] = (
    {"color": "k", "lw": 2.4, "marker": "o", "ms": 5},
    {"color": "k", "lw": 1.6, "marker": "o", "ms": 5, "mfc": "w", "ls": (0, (5, 1.5))},
)
_BEST: tuple[Look, ...] = (
    {"color": "#0072B2", "lw": 1.8, "marker": "s", "ms": 4.5},
    {"color": "#D55E00", "lw": 1.8, "marker": "^", "ms": 5},
    {"color": "#009E73", "lw": 1.8, "marker": "D", "ms": 4},
    {"color": "#CC79A7", "lw": 1.8, "marker": "v", "ms": 5},
)
_REFERENCES: dict[str, Look] = {
    "stay": {"color": "0.25", "lw": 1.1, "ls": ":"},
    "local step": {"color": "0.25", "lw": 1.1, "ls": "-."},
    "one gradient": {"color": "0.25", "lw": 1.1, "ls": "--"},
    "curator": {"color": "0.25", "lw": 1.1, "ls": (0, (7, 1, 1, 1))},
    "no privacy": {"color": "0.25", "lw": 1.1, "ls": (0, (1, 4))},
}
_REST: Look = {"color": "0.8", "lw": 0.9, "zorder": 1}


def panels(rows: int, columns: int, size: tuple[float, float] = (4.2, 3.6)) -> tuple[Figure, list[list[Axes]]]:
    """An empty figure and its axes, each of this size in inches."""
    # Imported here: matplotlib takes a second to load and most commands never draw. Agg needs no screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
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
    figure, grid = panels(len(shown), len(tasks), (5.0, 3.9))
    looks = _looks(made)
    for metric, row in zip(shown, grid, strict=True):
        for task, axes in zip(tasks, row, strict=True):
            _panel(axes, made, task, metric, looks)
    about = f"{data.name}, start {made.plan.starts[0]}: mean and standard error over {made.plan.seeds} seeds"
    rest = {one.label for one in made.results if one.job.cell.task in tasks} - looks.keys()
    figure.suptitle(about + (f"; pale: {len(rest)} other methods, see the tables" if rest else ""), fontsize=10)
    save(figure, path)


def _has_accuracy(made: Comparison, tasks: Sequence[Task]) -> bool:
    results = [one for one in made.results if one.job.cell.task in tasks]
    return any(np.isfinite(one.of("accuracy")).any() for one in results)


def _looks(made: Comparison) -> dict[str, Look]:
    """Of what has a label: the paper's own methods, the best others over the whole comparison, and references."""
    own = [method.label for method in made.plan.methods if method.papers_own]
    return dict(zip(own, _OWN, strict=False)) | dict(zip(_leaders(made), _BEST, strict=False)) | _REFERENCES


def _leaders(made: Comparison) -> list[str]:
    """Methods by how often they end lowest of all but the paper's own, or next to it."""
    places: Counter[str] = Counter()
    for cell in made.cells:
        others = [one.label for one in made.within(cell) if not one.reference and not one.papers_own and one.complete]
        for points, label in zip(range(_OTHERS, 0, -1), others, strict=False):
            places[label] += points
    return [label for label, _ in places.most_common(_OTHERS)]


def _panel(axes: Axes, made: Comparison, task: Task, metric: str, looks: Mapping[str, Look]) -> None:
    results = [one for cell in made.plan.cells(task) for one in made.within(cell)]
    ends = {}
    for label in sorted({one.label for one in results}, key=lambda one: one in looks):  # those with labels on top
        end = _line(axes, [one for one in results if one.label == label], metric, looks.get(label, _REST))
        if end and label in looks:
            ends[label] = end
    ylabel = "gap Ŵ" if metric == "gap" else "held-out accuracy"
    axes.set(xlabel="ε", xscale="log", title=task.track.title, ylabel=ylabel)
    axes.title.set_fontsize(9)
    if metric == "gap":
        ends.pop("no privacy", None)  # far below
        stay = max((one.mean("gap") for one in results if one.label == "stay"), default=1.0)
        shown = [one.mean("gap") for one in results if one.complete and one.label != "no privacy"]
        axes.set(yscale="log", ylim=(min(shown, default=1e-3) / 2, _LARGEST * stay))
    _name_lines(axes, ends, looks)


def _line(axes: Axes, results: Sequence[Result], metric: str, look: Look) -> tuple[float, float] | None:
    """Where it ends."""
    points = [one for one in results if np.isfinite(one.mean(metric))]
    if not points:
        return None
    along = [one.job.cell.epsilon for one in points]
    means, errors = (np.array([getattr(one, which)(metric) for one in points]) for which in ("mean", "error"))
    axes.plot(along, means, **look)
    if look is not _REST:
        axes.fill_between(along, means - errors, means + errors, color=look["color"], alpha=0.15, lw=0)
    return along[-1], float(means[-1])


def _name_lines(axes: Axes, ends: Mapping[str, tuple[float, float]], looks: Mapping[str, Look]) -> None:
    """The name of each line at the right of where it ends, moved up or down where names would overlap."""
    inside = axes.transAxes.inverted()
    at = {label: inside.transform(axes.transData.transform(end)) for label, end in ends.items()}
    order = sorted(at, key=lambda label: float(at[label][1]))
    for label, y in zip(order, spread([float(np.clip(at[label][1], 0, 1)) for label in order]), strict=True):
        arrow = {"arrowstyle": "-", "lw": 0.5, "color": "0.5", "shrinkA": 0, "shrinkB": 2}
        where: Any = {"xycoords": axes.transAxes, "textcoords": axes.transAxes, "va": "center", "fontsize": 8}
        end = (float(at[label][0]), float(np.clip(at[label][1], 0, 1)))
        axes.annotate(label, end, (1.05, y), color=looks[label]["color"], arrowprops=arrow, **where)


def spread(places: Sequence[float]) -> list[float]:
    """Rising places, moved as little as it takes until neighbours are `_APART`: groups that touch share their shift."""
    groups: list[list[float]] = []
    for place in places:
        groups.append([place])
        while len(groups) > 1 and _first(groups[-1]) < _first(groups[-2]) + len(groups[-2]) * _APART:
            last = groups.pop()
            groups[-1] += last
    return [_first(group) + number * _APART for group in groups for number in range(len(group))]


def _first(group: Sequence[float]) -> float:
    """The lowest place of a group whose middle stays where it is, as far as all of it is between 0 and 1."""
    height = _APART * (len(group) - 1)
    return max(min(sum(group) / len(group) - height / 2, 1 - height), 0.0)
