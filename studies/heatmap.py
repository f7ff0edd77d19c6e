"""The matrix of attackers and protections as a heat map (PNG and in a page), a document and a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpp2.adversary.findings import QUANTITIES
from dpp2.adversary.report.drawing import svg
from dpp2.adversary.report.page import Shown, listed, page, section, summary, table
from dpp2.adversary.verdicts import RECOVERED
from dpp2.store.files import json_text, write_text, write_whole
from dpp2.studies.matrix import EARLY, LATE, QUANTITIES_COMPARED, WHEN, Cell, Key, Matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = [(what, when) for what in QUANTITIES_COMPARED for when in WHEN]
_SIZE = (11.0, 11.0)
_LEAST, _MOST = -12.0, 0.0  # powers of ten that the colours span
_DARK = -6.0  # below, white letters are easier to read


@dataclass(frozen=True)
class CellDocument:
    """x_error is that of the last tenth of the rounds, as in audit.json; x_error_early that of the first."""

    attacker: str
    protection: str
    ciphertext: bool
    x_error_early: float | None
    x_error: float | None
    gradient_error_early: float | None
    gradient_error: float | None
    x_attack_early: str | None
    x_attack: str | None
    gradient_attack_early: str | None
    gradient_attack: str | None


@dataclass(frozen=True)
class MatrixDocument:
    """matrix.json: one entry per cell."""

    attackers: tuple[str, ...]
    protections: tuple[str, ...]
    agent: int
    cells: list[CellDocument]
    notes: tuple[str, ...]


def document(matrix: Matrix) -> MatrixDocument:
    cells = [_cell(*at, cell) for at, cell in matrix.cells.items()]
    return MatrixDocument(matrix.attackers, matrix.protections, matrix.agent, cells, matrix.notes)


def _cell(attacker: str, protection: str, cell: Cell) -> CellDocument:
    errors, attacks = cell.errors, cell.attacks
    return CellDocument(
        attacker=attacker,
        protection=protection,
        ciphertext=cell.ciphertext,
        x_error_early=errors.get(("x", EARLY)),
        x_error=errors.get(("x", LATE)),
        gradient_error_early=errors.get(("gradient", EARLY)),
        gradient_error=errors.get(("gradient", LATE)),
        x_attack_early=attacks.get(("x", EARLY)),
        x_attack=attacks.get(("x", LATE)),
        gradient_attack_early=attacks.get(("gradient", EARLY)),
        gradient_attack=attacks.get(("gradient", LATE)),
    )


def headed(key: Key) -> str:
    """Such as: error of x_i, first tenth of the rounds."""
    what, when = key
    return f"error of {QUANTITIES[what]}, {when} of the rounds"


def render(matrix: Matrix) -> str:
    """A page with the summary, the heat map and the tables."""
    experiment = matrix.experiment
    lead = f"{experiment.problem.name} problem, {experiment.network.agents} agents, {experiment.run.rounds} rounds"
    caption = (
        "Least relative error that any attack reaches (median over the stated rounds): 1 is as good as not listening "
        "(light), 1e-12 is twelve right digits (dark). Under each number, the attack that reached it."
    )
    alt = "Heat map of the least relative error for every attacker and protection"
    shown = Shown("Heat map", svg(lambda figure: draw(figure, matrix), alt, _SIZE), caption)
    tables = [section(headed(key).capitalize(), _table(matrix, key)) for key in SHOWN]
    body = [summary(sentences(matrix)), shown.html(), *tables, listed(matrix.notes)]
    return page("Who learns what under which protection", lead, body)


def sentences(matrix: Matrix) -> list[str]:
    """One per protection: who recovered what, and when."""
    said = [f"Recovered means here: to a relative error of {RECOVERED:.0%} or less."]
    for protection in matrix.protections:
        parts = []
        for when in WHEN:
            found = [f"{QUANTITIES[what]} {_by(matrix, protection, (what, when))}" for what in QUANTITIES_COMPARED]
            parts.append(f"in the {when} of the rounds {', '.join(found)}")
        said.append(f"{protection.capitalize()}: {'; '.join(parts)}.")
    return said


def _by(matrix: Matrix, protection: str, key: Key) -> str:
    names = [attacker for attacker in matrix.attackers if _recovered(matrix, attacker, protection, key)]
    if not names:
        return "not recovered by these attacks"
    return "recovered by every attacker" if names == list(matrix.attackers) else f"recovered by {', '.join(names)}"


def _recovered(matrix: Matrix, attacker: str, protection: str, key: Key) -> bool:
    return matrix.cell(attacker, protection).errors.get(key, np.inf) <= RECOVERED


def write(matrix: Matrix, out: Path) -> None:
    """matrix.json, .html and .png."""
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "matrix.json", json_text(document(matrix)))
    write_text(out / "matrix.html", render(matrix))
    png(matrix, out / "matrix.png")


def png(matrix: Matrix, path: Path) -> None:
    """The heat map as a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure, matrix)
    write_whole(path, lambda file: figure.savefig(file, dpi=120, format="png"))


def draw(figure: Figure, matrix: Matrix) -> None:
    """One panel for every quantity and stretch of rounds."""
    panels = figure.subplots(len(SHOWN), 1, sharex=True)
    for axes, key in zip(panels, SHOWN, strict=True):
        image = _panel(axes, matrix, key)
    figure.colorbar(image, ax=list(panels), label="log₁₀ of the relative error (0: knows nothing)")


def _panel(axes: Axes, matrix: Matrix, key: Key) -> Any:
    logs = np.full((len(matrix.attackers), len(matrix.protections)), np.nan)
    for (attacker, protection), cell in matrix.cells.items():
        row, column = matrix.attackers.index(attacker), matrix.protections.index(protection)
        if key in cell.errors:
            logs[row, column] = np.log10(max(cell.errors[key], 1e-17))
        dark = logs[row, column] < _DARK
        colour = "white" if dark else "gray" if cell.ciphertext else "black"
        axes.text(column, row, cell.shown(key), ha="center", va="center", fontsize=8, color=colour)
    image = axes.imshow(logs, cmap="OrRd_r", vmin=_LEAST, vmax=_MOST, aspect="auto")
    axes.set_xticks(range(len(matrix.protections)), matrix.protections)
    axes.set_yticks(range(len(matrix.attackers)), matrix.attackers)
    axes.set_title(headed(key))
    axes.grid(visible=False)
    axes.tick_params(length=0)
    return image


def _table(matrix: Matrix, key: Key) -> str:
    rows = [[a, *(matrix.cell(a, p).shown(key) for p in matrix.protections)] for a in matrix.attackers]
    return table(["attacker", *matrix.protections], rows)
