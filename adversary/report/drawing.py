"""Figures as SVG that stands inside a page: text stays text, and its colour is the page's, light or dark."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpp2.adversary.report.words import typeset
from dpp2.adversary.style import raised
from dpp2.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Readable on white and on dark grey, and told apart by the colour-blind (after Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#a0522d", "#999933", "#7f7f7f")
_INK = "#012345"  # stands for the page's text colour while matplotlib draws
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.15,
    "grid.color": _INK,
    "legend.frameon": False,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_SVG_DPI = 72  # what matplotlib draws SVG with, whatever it is told
_FLOOR = 1e-17  # an error below is zero: no logarithm shows it


def svg(
    draw: Callable[[Figure], None],
    alt: str,
    size: tuple[float, float],
    layout: Literal["constrained"] | None = "constrained",
) -> str:
    """What `draw` draws, as an <svg> element that says in words what it shows."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context({**_STYLE, "svg.hashsalt": alt}):  # ids must differ between the figures of a page
        figure = Figure(figsize=size, layout=layout, dpi=_SVG_DPI)
        FigureCanvasSVG(figure)
        draw(figure)
        _lay_out(figure)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = written.getvalue()
    drawn = drawn[drawn.index("<svg") :].replace(_INK, "currentColor")
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r' (width|height)="[\d.]+pt"', "", drawn, count=2)
    referenced = set(re.findall(r"#([\w-]+)", drawn))  # the other ids would repeat from figure to figure
    drawn = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in referenced else "", drawn)
    return drawn.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)


def _lay_out(figure: Figure) -> None:
    """Once, and for good: while there is a layout to be found, saving draws everything twice."""
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")


def panel(draw: Callable[[Axes], None], alt: str, size: tuple[float, float] = (4.6, 3.3)) -> str:
    """One pair of axes, a picture of its own: a page sets several side by side, or on a phone below each other."""

    def drawn(figure: Figure) -> None:
        wide, high = size
        axes = figure.add_axes((0.62 / wide, 0.5 / high, 1 - 0.75 / wide, 1 - 0.85 / high))
        draw(axes)
        _plain_powers(axes)
        axes.tick_params(which="minor", bottom=False, left=False)

    return svg(drawn, alt, size, layout=None)


def _plain_powers(axes: Axes) -> None:
    """Logarithmic axes say 10⁻³ in plain letters: as formulas, these labels took 40 % of the time of a page."""
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(lambda value, _: power_of_ten(value))
            axis.set_minor_formatter(lambda *_: "")


def power_of_ten(value: float) -> str:
    """10⁻³ for 0.001."""
    return f"10{raised(round(math.log10(value)))}"


def panels(pictures: Iterable[str], key: Mapping[str, str] | None = None, *, small: bool = False) -> str:
    """Pictures side by side; `key` gives the colour of every label, above the pictures and never over data."""
    items = "".join(
        f'<li><span style="border-color:{colour}"></span>{typeset(label)}</li>' for label, colour in (key or {}).items()
    )
    legend = f'<ul class="key">{items}</ul>' if items else ""
    return f'{legend}<div class="panels{" small" if small else ""}">{"".join(pictures)}</div>'


def positive(values: Array) -> Array:
    """What a logarithmic axis can show: zero becomes the floor, what is not finite a gap in the line."""
    return np.maximum(np.where(np.isfinite(values), values, np.nan), _FLOOR)
