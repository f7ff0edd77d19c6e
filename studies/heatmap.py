"""The matrix of attackers and protections as a heat map (PNG and in a page), a document and a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dpp2
from dpp2.adversary.findings import QUANTITIES
from dpp2.adversary.report.page import Markup, colours, heated, listed, page, section, table
from dpp2.adversary.report.what_was_run import what_was_run
from dpp2.adversary.verdicts import RECOVERED
from dpp2.store.files import json_text, write_text, write_whole
from dpp2.studies.matrix import (
    DIGITS,
    EARLY,
    LATE,
    QUANTITIES_COMPARED,
    TLS,
    WHEN,
    Cell,
    Key,
    Known,
    Matrix,
    differences,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = [(what, when) for what in QUANTITIES_COMPARED for when in WHEN]
_SIZE = (11.0, 11.0)
_MEANINGS = {
    Known.DIGITS: f"known to an error of {DIGITS:.0e} or less",
    Known.RECOVERED: f"recovered: an error of {100 * RECOVERED:.0f} % or less",
    Known.NOT: "not recovered",
}
_KINDS = {Known.DIGITS: "digits", Known.RECOVERED: "recovered", Known.NOT: ""}  # of cells of the page
_COLOURS = {Known.DIGITS: "#d9937f", Known.RECOVERED: "#f3dcd3", Known.NOT: "#ffffff"}  # of the picture
_RULE = (
    f"Recovered means here: to a relative error of {100 * RECOVERED:.0f} % or less. "
    "First and last: a tenth of the rounds each."
)
_CAPTION = (
    "Every cell has the least relative error that any attack reaches (median over the stated rounds), and that attack: "
    "1 is as good as not listening, 1e-12 is twelve right digits. The darker a cell, the more is known."
)
_ATTACKERS = (
    "global: an eavesdropper on all channels; local: on the channels of one agent; partial: on half of the channels",
    "neighbour: a participant who also listens to what it receives, and knows η",
)


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
    """A page with the verdict, who recovered what, what each protection sets, and the errors."""
    experiment = matrix.experiment
    lead = f"{experiment.problem.name} problem, {experiment.network.agents} agents, {experiment.run.rounds} rounds"
    tables = [section(headed(key).capitalize(), _table(matrix, key)) for key in SHOWN]
    body = [
        section("Who recovers what", _recoveries(matrix), listed([_RULE])),
        what_was_run(experiment, f"Run by dpp2 {dpp2.__version__} on {datetime.now(UTC):%Y-%m-%d, %H:%M} UTC"),
        section("What each protection sets", _settings(matrix)),
        *tables,
        section("How to read the tables", listed([_CAPTION, *_ATTACKERS, *matrix.notes])),
    ]
    return page("Who learns what under which protection", lead, body, verdict(matrix))


def verdict(matrix: Matrix) -> str:
    """Under which protection no attack has x when the run ends."""
    late = {name: _who(matrix, name, ("x", LATE)) for name in matrix.protections}
    closed = [name for name, who in late.items() if not who]
    if closed:
        return f"When the run ends, these attacks have not recovered x_i under: {', '.join(closed)}."
    outside = [name for name, who in late.items() if who == ["neighbour"]]
    if outside:
        return (
            f"When the run ends, eavesdroppers have x_i under every protection but {' and '.join(outside)}; "
            "a neighbour has it even there."
        )
    return "When the run ends, some attacker has x_i under every protection."


def _recoveries(matrix: Matrix) -> str:
    """By protection: who recovered what, and when."""
    head = ["protection", *(f"{QUANTITIES[what]}, {when}" for what, when in SHOWN)]
    return table(head, [[name, *(_by(matrix, name, key) for key in SHOWN)] for name in matrix.protections])


def _by(matrix: Matrix, protection: str, key: Key) -> str:
    names = _who(matrix, protection, key)
    return "everybody" if names == list(matrix.attackers) else ", ".join(names) or "nobody"


def _who(matrix: Matrix, protection: str, key: Key) -> list[str]:
    return [attacker for attacker in matrix.attackers if _recovered(matrix, attacker, protection, key)]


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
    from matplotlib.patches import Patch

    panels = figure.subplots(len(SHOWN), 1, sharex=True)
    for axes, key in zip(panels, SHOWN, strict=True):
        _panel(axes, matrix, key)
    patches = [Patch(facecolor=_COLOURS[known], edgecolor="gray", label=text) for known, text in _MEANINGS.items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False)


def _panel(axes: Axes, matrix: Matrix, key: Key) -> None:
    from matplotlib.colors import ListedColormap

    known = np.zeros((len(matrix.attackers), len(matrix.protections)))
    for (attacker, protection), cell in matrix.cells.items():
        row, column = matrix.attackers.index(attacker), matrix.protections.index(protection)
        known[row, column] = cell.known(key)
        colour = "gray" if cell.ciphertext else "black"
        words = "\n".join(filter(None, (cell.number(key), cell.attacks.get(key, ""))))
        axes.text(column, row, words, ha="center", va="center", fontsize=8, color=colour)
    axes.imshow(
        known, cmap=ListedColormap([_COLOURS[one] for one in Known]), vmin=0, vmax=len(Known) - 1, aspect="auto"
    )
    axes.set_xticks(range(len(matrix.protections)), matrix.protections)
    axes.set_yticks(range(len(matrix.attackers)), matrix.attackers)
    axes.set_title(headed(key))
    axes.grid(visible=False)
    axes.tick_params(length=0)


def _settings(matrix: Matrix) -> str:
    """A row for each protection: the keys in which they differ."""
    keys, rows = differences(matrix.experiment)
    said = [[name, *map(_said, values), "TLS" if name == TLS else "open"] for name, values in rows.items()]
    return table(["protection", *(key.partition(".")[2] for key in keys), "channels"], said)


def _said(value: Any) -> str:
    """A setting; of a list with one for each agent, its range."""
    return f"{min(value):g} … {max(value):g}" if isinstance(value, list) else str(value)


def _table(matrix: Matrix, key: Key) -> str:
    rows = [[a, *(_heat(matrix.cell(a, p), key) for p in matrix.protections)] for a in matrix.attackers]
    meanings = {_KINDS[known]: text for known, text in _MEANINGS.items()}
    return colours(meanings) + table(["attacker", *matrix.protections], rows)


def _heat(cell: Cell, key: Key) -> Markup:
    return heated(cell.number(key), cell.attacks.get(key, ""), _KINDS[cell.known(key)])
