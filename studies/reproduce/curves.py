"""The paper's figures 1 and 2, measured here: curves, and what the paper says of them, judged one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from dpp2 import Experiment, run
from dpp2.arrays import Array
from orchestrator import plots
from store.files import write_text
from studies.parallel import Counted, fan_out
from studies.reproduce.claims import Claim


@dataclass(frozen=True)
class Figure:
    """One figure of the paper: what is varied, and what stays."""

    name: str
    title: str
    symbol: str
    values: tuple[float, ...]
    keys: tuple[str, ...]  # which settings take the varied value
    fixed: Mapping[str, float]
    rounds: int  # enough for the slowest curve


_EXACT = 1e-12  # a gap that counts as exact; the floor of float64 lies ten orders lower

FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            name="fig1",
            title="Fig. 1: the decay r of the noise (u = 1)",
            symbol="r",
            values=(0.0, 0.5, 0.9, 0.95, 0.97, 0.98, 0.99),
            keys=("noise.decay",),
            fixed={},
            rounds=2000,
        ),
        Figure(
            name="fig2",
            title="Fig. 2: the size u of the noise (r = 0.95)",
            symbol="u",
            values=(0.0, 0.1, 0.3, 0.6, 1.0, 3.0, 5.0),
            keys=("noise.u_w", "noise.u_e"),
            fixed={"noise.decay": 0.95},
            rounds=2500,
        ),
    )
}


@dataclass(frozen=True)
class CurveJob:
    """One curve of one seed."""

    overrides: Mapping[str, float | int]


@dataclass(frozen=True, eq=False)
class Reproduction:
    figure: Figure
    seeds: int
    gaps: Array  # (values, seeds, rounds + 1)
    claims: list[Claim]

    @property
    def middle(self) -> Array:
        """Geometric mean over seeds: (values, rounds + 1)."""
        return np.asarray(np.exp(np.log(np.maximum(self.gaps, 1e-300)).mean(axis=1)))


def gap_curve(job: CurveJob) -> Array:
    """The gap of one run over the rounds."""
    quiet = {**job.overrides, "run.telemetry": "none"}
    return run(Experiment.load(overrides=quiet), record=False).metrics.gap


def reproduce(
    figure: Figure,
    *,
    seeds: int,
    rounds: int,
    executor: str | None = None,
    finished: Counted = lambda done, total: None,
) -> Reproduction:
    """Every curve of a figure for seeds 1 … `seeds`; a seed decides data, starting points and noise alike."""
    jobs = [
        CurveJob({"run.rounds": rounds, "run.seed": seed, **figure.fixed, **dict.fromkeys(figure.keys, value)})
        for value in figure.values
        for seed in range(1, seeds + 1)
    ]
    gaps = np.array(fan_out(gap_curve, jobs, executor=executor, finished=finished))
    gaps = gaps.reshape(len(figure.values), seeds, rounds + 1)
    made = Reproduction(figure, seeds, gaps, [])
    return Reproduction(figure, seeds, gaps, [_converges(made), _orders(made)])


def _converges(made: Reproduction) -> Claim:
    """Exact convergence, judged on the worst seed of every value: the gap gets to `_EXACT` and stays below it."""
    symbol, rounds = made.figure.symbol, made.gaps.shape[2] - 1
    short = [
        f"{symbol} = {value:g} ends at {worst:.1e}"
        for value, worst in zip(made.figure.values, made.gaps[:, :, -1].max(axis=1), strict=True)
        if not worst <= _EXACT
    ]
    evidence = f"after {rounds} rounds the worst seed of the worst {symbol} is at {made.gaps[:, :, -1].max():.1e}"
    return Claim(
        f"exact convergence for every {symbol}",
        not short,
        f"not within {rounds} rounds: {', '.join(short)}" if short else evidence,
    )


def _orders(made: Reproduction) -> Claim:
    """Smaller is better: the rounds until the mean curve stays below `_EXACT` do not fall as the value rises."""
    symbol = made.figure.symbol
    needed = [np.inf if curve[-1] > _EXACT else np.flatnonzero(curve > _EXACT)[-1] + 1 for curve in made.middle]
    # A twentieth is allowed for luck: among small values the algorithm's own rate decides, not the noise.
    ordered = all(later >= 0.95 * earlier for earlier, later in pairwise(needed))
    held = ordered and np.isfinite(needed).sum() > 1  # one curve that arrives says nothing of an order
    said = [f"{n:.0f}" if np.isfinite(n) else "not reached" for n in needed]
    table = ", ".join(f"{symbol} = {value:g}: {n}" for value, n in zip(made.figure.values, said, strict=True))
    return Claim(f"faster convergence with smaller {symbol}", bool(held), f"rounds to stay below {_EXACT:.0e}: {table}")


def write(made: Reproduction, out: Path) -> tuple[Path, Path]:
    """A CSV with every curve and a picture with every band."""
    out.mkdir(parents=True, exist_ok=True)
    csv, png = out / f"{made.figure.name}.csv", out / f"{made.figure.name}.png"
    lines = [f"{made.figure.symbol},seed,round,gap"]
    for value, curves in zip(made.figure.values, made.gaps.tolist(), strict=True):
        for seed, curve in enumerate(curves, start=1):
            lines += [f"{value},{seed},{k},{gap!r}" for k, gap in enumerate(curve)]
    write_text(csv, "\n".join(lines) + "\n")
    bands = [
        plots.Band(f"{made.figure.symbol} = {value:g}", middle, curves.min(axis=0), curves.max(axis=0))
        for value, middle, curves in zip(made.figure.values, made.middle, made.gaps, strict=True)
    ]
    plots.curves(bands, f"{made.figure.title}; {made.seeds} seeds", png)
    return csv, png
