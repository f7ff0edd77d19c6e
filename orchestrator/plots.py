"""The pictures: one look, labels with units, log scales where orders of magnitude are the message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from dpp2 import Result
from dpp2.arrays import Array
from dpp2.drawing import draw_convergence, positive
from dpp2.privacy import PaperEpsilon, Unsupported
from dpp2.privacy.account import Account
from dpp2.privacy.plans import AnyPlans
from dpp2.store.files import PRIVATE, PUBLIC, write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_TITLE = 80  # letters that fit above a picture


@dataclass(frozen=True, eq=False)
class Band:
    """Mean and band over seeds of one setting: arrays over rounds."""

    label: str
    middle: Array
    low: Array
    high: Array


def convergence(result: Result, path: Path) -> None:
    """Gap, consensus and stationarity against the round: for the owner of the run, since no ε covers them."""
    _save(lambda axes: draw_convergence(result, axes), path, PRIVATE)


def epsilon(account: Account, rounds: int, path: Path) -> None:
    """ε(K) of the worst-off agent as a curve, the paper's beside it: it grows like r^−K, so log10 is drawn."""
    rounds = max(rounds, 1)
    ours = account.curve(rounds)
    counts = np.unique(np.geomspace(1, rounds, 200).astype(int))
    claims = [account.paper_epsilon(int(count)) for count in counts]
    paper = [claim.log10 if isinstance(claim, PaperEpsilon) else np.nan for claim in claims]

    def draw(axes: Axes) -> None:
        title = "What K rounds cost the worst-off agent"
        if isinstance(ours, Unsupported):
            axes.text(0.5, 0.5, f"no ε: {ours}", ha="center", va="center", transform=axes.transAxes, wrap=True)
        else:
            title += why_infinite(account, rounds)
            shown = np.where(np.isfinite(ours.log10), ours.log10, np.nan)
            if np.isfinite(shown).any():
                axes.plot(np.arange(1, rounds + 1), shown, label="exact account", lw=2)
            if np.isfinite(paper).any():
                axes.plot(counts, paper, label="paper's Theorem 3", lw=1, ls="--")
            if axes.lines:
                axes.legend()
        axes.set_title(title)
        axes.set_xlabel("rounds K")
        axes.set_ylabel("log10 ε(K)")

    _save(draw, path)


def why_infinite(account: Account, rounds: int) -> str:
    """A second line for a title, over the picture and not across its lines; empty where ε is finite."""
    spent = account.epsilon(rounds)
    if isinstance(spent, Unsupported) or not np.isposinf(spent.log10):
        return ""
    return "\n" + fill(f"ε = ∞: {spent.reason}", _TITLE)


def frontier(plans: Sequence[AnyPlans], path: Path) -> None:
    """The gap that a budget buys, for every kind of plan, with the spread of the runs."""
    budgets = [one.budget for one in plans]

    def draw(axes: Axes) -> None:
        for label in plans[0].kinds:
            found = [one.kinds[label] for one in plans]
            spread = [plan.spread or (plan.gap, plan.gap) for plan in found]
            drawn = axes.loglog(budgets, [plan.gap for plan in found], "o-", label=label)[0]
            low, high = zip(*spread, strict=True)
            axes.fill_between(budgets, low, high, color=drawn.get_color(), alpha=0.2, lw=0)
        axes.axhline(plans[0].start_gap, color="grey", ls=":", label="doing nothing: E Ŵ⁰")
        axes.axhline(plans[0].common_gap, color="grey", ls="--", label="all agents at 0")
        axes.set_title("What a privacy budget buys")
        axes.set_xlabel("budget ε of every agent")
        axes.set_ylabel("final gap Ŵ^K (mean of runs, band: least and greatest)")
        axes.legend()

    _save(draw, path)


def curves(lines: Sequence[Band], title: str, path: Path) -> None:
    """Several settings, each a line with its band over seeds."""

    def draw(axes: Axes) -> None:
        for line in lines:
            rounds = np.arange(len(line.middle))
            drawn = axes.semilogy(rounds, positive(line.middle), label=line.label, lw=1.5)[0]
            axes.fill_between(rounds, positive(line.low), positive(line.high), color=drawn.get_color(), alpha=0.2, lw=0)
        axes.set_title(title)
        axes.set_xlabel("round k")
        axes.set_ylabel("optimality gap Ŵ (geometric mean, band: least and greatest)")
        axes.legend(ncols=2)

    _save(draw, path)


def _save(draw: Callable[[Axes], None], path: Path, mode: int = PUBLIC) -> None:
    # Imported here: pyplot takes a second to load and most commands never draw. Agg needs no screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(alpha=0.3)
    draw(axes)
    write_whole(path, lambda file: figure.savefig(file, dpi=120, format="png"), mode)
