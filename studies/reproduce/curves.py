"""The paper's figures 1 and 2, measured here: curves, and what the paper says of them, judged one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from dpp2 import Experiment, run
from dpp2.arrays import Array
from dpp2.orchestrator import plots
from dpp2.store.files import write_text
from dpp2.studies.parallel import fan_out
from dpp2.studies.reproduce.study import Claim, Files, Order, Study

_EXACT = 1e-12  # a gap that counts as exact; the floor of float64 lies ten orders lower


@dataclass(frozen=True)
class Figure:
    """One figure of the paper: what is varied, and what stays."""

    name: str
    title: str
    symbol: str
    values: tuple[float, ...]
    keys: tuple[str, ...]  # which settings take the varied value
    fixed: Mapping[str, float]


@dataclass(frozen=True)
class CurveJob:
    """One curve of one seed."""

    overrides: Mapping[str, float | int]


@dataclass(frozen=True, eq=False)
class Curves:
    """What a figure shows. A run that diverged has the gap ∞ from there on."""

    figure: Figure
    seeds: int
    gaps: Array  # (values, seeds, rounds + 1)

    @property
    def middle(self) -> Array:
        """Geometric mean over seeds: (values, rounds + 1)."""
        return np.asarray(np.exp(np.log(np.maximum(self.gaps, 1e-300)).mean(axis=1)))


@dataclass(frozen=True)
class FigureDocument:
    figure: str
    csv: Path
    png: Path
    gap: Mapping[str, float]  # at the end, by the value that was varied
    claims: Sequence[Claim]


class CurveStudy(Study[Curves]):
    def __init__(self, figure: Figure, rounds: int) -> None:
        self.figure, self.rounds = figure, rounds

    def run(self, order: Order) -> Curves:
        """Every curve of a figure for seeds 1 … `seeds`; a seed decides data, starting points and noise alike."""
        figure, common = self.figure, {"run.rounds": order.rounds, **self.figure.fixed}
        jobs = [
            CurveJob({**common, "run.seed": seed, **dict.fromkeys(figure.keys, value)})
            for value in figure.values
            for seed in range(1, order.seeds + 1)
        ]
        found = fan_out(gap_curve, jobs, executor=order.executor, finished=order.counted())
        gaps = np.array([_padded(gaps, order.rounds + 1) for gaps in found])
        return Curves(figure, order.seeds, gaps.reshape(len(figure.values), order.seeds, order.rounds + 1))

    def judge(self, made: Curves) -> list[Claim]:
        return judged(made)

    def write(self, made: Curves, out: Path) -> Files:
        """A CSV with every curve and a picture with every band."""
        files = {"curves": out / f"{made.figure.name}.csv", "picture": out / f"{made.figure.name}.png"}
        write_text(files["curves"], "\n".join(_lines(made)) + "\n")
        bands = [
            plots.Band(f"{made.figure.symbol} = {value:g}", middle, curves.min(axis=0), curves.max(axis=0))
            for value, middle, curves in zip(made.figure.values, made.middle, made.gaps, strict=True)
        ]
        plots.curves(bands, f"{made.figure.title}; {made.seeds} seeds", files["picture"])
        return files

    def document(self, made: Curves, files: Files) -> FigureDocument:
        final = dict(zip(map(str, made.figure.values), made.middle[:, -1].tolist(), strict=True))
        return FigureDocument(made.figure.name, files["curves"], files["picture"], final, self.claims(made))


def gap_curve(job: CurveJob) -> Array:
    """The gap of one run over the rounds; a run that diverges ends early."""
    quiet = {**job.overrides, "run.telemetry": "none"}
    return run(Experiment.load(overrides=quiet), record=False).metrics.gap


def _padded(gaps: Array, length: int) -> Array:
    padded = np.full(length, np.inf)
    padded[: len(gaps)] = np.where(np.isnan(gaps), np.inf, gaps)
    return padded


def _lines(made: Curves) -> list[str]:
    lines = [f"{made.figure.symbol},seed,round,gap"]
    for value, curves in zip(made.figure.values, made.gaps.tolist(), strict=True):
        for seed, curve in enumerate(curves, start=1):
            lines += [f"{value},{seed},{k},{gap!r}" for k, gap in enumerate(curve)]
    return lines


def judged(made: Curves) -> list[Claim]:
    """What the paper says of the figure."""
    return [_converges(made), _orders(made)]


def _converges(made: Curves) -> Claim:
    """Exact convergence, judged on the worst seed of every value: the gap gets to `_EXACT` and stays below it."""
    symbol, rounds, worst = made.figure.symbol, made.gaps.shape[2] - 1, made.gaps[:, :, -1].max(axis=1)
    missed = [
        f"{symbol} = {value:g} {f'ends at {end:.1e}' if np.isfinite(end) else 'diverged'}"
        for value, end in zip(made.figure.values, worst, strict=True)
        if not end <= _EXACT
    ]
    evidence = f"after {rounds} rounds the worst seed of the worst {symbol} is at {worst.max():.1e}"
    said = f"not within {rounds} rounds: {', '.join(missed)}" if missed else evidence
    return Claim(f"exact convergence for every {symbol}", not missed, said)


def _orders(made: Curves) -> Claim:
    """Smaller is better: the rounds until the mean curve stays below `_EXACT` do not fall as the value rises."""
    symbol = made.figure.symbol
    needed = [np.inf if curve[-1] > _EXACT else np.flatnonzero(curve > _EXACT)[-1] + 1 for curve in made.middle]
    # A twentieth is allowed for luck: among small values the algorithm's own rate decides, not the noise.
    ordered = all(later >= 0.95 * earlier for earlier, later in pairwise(needed))
    held = ordered and np.isfinite(needed).sum() > 1  # one curve that arrives says nothing of an order
    said = [f"{n:.0f}" if np.isfinite(n) else "not reached" for n in needed]
    table = ", ".join(f"{symbol} = {value:g}: {n}" for value, n in zip(made.figure.values, said, strict=True))
    return Claim(f"faster convergence with smaller {symbol}", bool(held), f"rounds to stay below {_EXACT:.0e}: {table}")


FIG1 = CurveStudy(
    Figure(
        name="fig1",
        title="Fig. 1: the decay r of the noise (u = 1)",
        symbol="r",
        values=(0.0, 0.5, 0.9, 0.95, 0.97, 0.98, 0.99),
        keys=("noise.decay",),
        fixed={},
    ),
    rounds=2000,  # enough for the slowest curve
)
FIG2 = CurveStudy(
    Figure(
        name="fig2",
        title="Fig. 2: the size u of the noise (r = 0.95)",
        symbol="u",
        values=(0.0, 0.1, 0.3, 0.6, 1.0, 3.0, 5.0),
        keys=("noise.u_w", "noise.u_e"),
        fixed={"noise.decay": 0.95},
    ),
    rounds=2500,
)
