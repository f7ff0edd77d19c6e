"""A comparison as rows: for the terminal, for JSON, CSV and Markdown."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from studies.compare.comparison import Comparison, TunedMethod
from studies.compare.methods import further_settings

HEAD = (
    "method",
    "gap Ŵ^K (mean)",
    "least",
    "greatest",
    "of it disagreement",
    "K",
    "MB sent",
    "ε",
    "decay r",
    "step ×",
    "noise",
    "tuned further",
)
NARROW = 8  # columns that fit a terminal


def cells(entry: TunedMethod) -> tuple[str, ...]:
    """One method at its best point, as text."""
    point, noise = entry.point, entry.experiment.noise
    scales = ", ".join(f"{name} = {_short(getattr(noise, name))}" for name in noise.scales)
    further = entry.experiment.algorithm.further
    return (
        entry.method.label,
        f"{entry.mean:.3g}",
        f"{min(entry.finals):.3g}",
        f"{max(entry.finals):.3g}",
        f"{100 * disagreement(entry):.0f} %",
        str(point.rounds),
        f"{entry.over_seeds('bytes')[:, -1].max() / 1e6:.2f}",
        str(entry.epsilon),
        f"{point.decay:g}",
        f"{point.step:g}",
        scales,
        f"{further.key} × {point.further:g}" if further else "–",
    )


def disagreement(entry: TunedMethod) -> float:
    """The share of consensus in the mean final gap."""
    return float(np.mean([one.consensus[-1] for one in entry.curves])) / entry.mean


def sentences(made: Comparison) -> list[str]:
    """Who wins, and what the figures are worth."""
    if not made.entries:
        return [f"no method of this list has a pure ε, so none can be held to ε = {made.budget:g}"]
    best, *others = made.entries
    said = [f"{best.method.label} ends lowest at ε = {made.budget:g}: a mean gap of {best.mean:.3g}"]
    if others:
        said[0] += f"; next is {others[0].method.label} with {others[0].mean:.3g}"
    below = [entry.method.label for entry in made.entries if max(entry.finals) < made.zero_gap]
    free = f"agents that all stay at 0 have a gap of {made.zero_gap:.3g}, and it costs them no message and no ε"
    if below:
        said.append(f"{free}; below that in every seed: {', '.join(below)}")
    else:
        said.append(f"{free}; no method is below that in every seed, so at this ε none is worth its rounds here")
    return said


def effort(made: Comparison) -> str:
    """What was tried, so that nobody has to guess how hard each method was tuned."""
    grid = made.grid
    return (
        f"Each method was tuned with at most {grid.runs} runs: every K in {_listed(grid.rounds)}, decay in "
        f"{_listed(grid.decays)} and factor on its step in {_listed(grid.steps)} once; then the best {grid.finalists} "
        f"with three values of one further setting (where it has one), {grid.trials} runs each. Reported are "
        f"{made.seeds} fresh seeds."
    )


def csv_text(made: Comparison) -> str:
    """Every curve."""
    lines = ["method,seed,round,gap,consensus,stationarity,bytes,epsilon"]
    for entry in made.entries:
        for seed, one in enumerate(entry.curves, start=1):
            columns = (one.gap, one.consensus, one.stationarity, one.bytes, one.epsilon)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            lines += [f'"{entry.method.label}",{seed},{k},' + ",".join(map(repr, row)) for k, row in enumerate(rows)]
    return "\n".join(lines) + "\n"


def document(made: Comparison) -> dict[str, object]:
    """For JSON."""
    return {
        "budget": made.budget,
        "adjacency": made.problem.privacy.adjacency,
        "seeds": made.seeds,
        "tuning": {
            "runs_per_method": made.grid.runs,
            "rounds": made.grid.rounds,
            "decays": made.grid.decays,
            "steps": made.grid.steps,
            "further": {name: asdict(one) for name, one in further_settings().items()},
        },
        "start_gap": made.start_gap,
        "zero_gap": made.zero_gap,
        "methods": [_described(entry) for entry in made.entries],
        "left_out": [{"method": one.label, "reason": one.reason} for one in made.left_out],
        "findings": sentences(made),
    }


def _described(entry: TunedMethod) -> dict[str, object]:
    return {
        "method": entry.method.label,
        "gap": {"mean": entry.mean, "seeds": entry.finals},
        "epsilon": entry.epsilon.value,
        "rounds": entry.point.rounds,
        "bytes": float(entry.over_seeds("bytes")[:, -1].max()),
        "algorithm": entry.experiment.algorithm.table(),
        "noise": entry.experiment.noise.table(),
    }


def _short(scale: float | list[float]) -> str:
    return f"{scale:.3g}" if not isinstance(scale, list) else f"{min(scale):.3g} … {max(scale):.3g}"


def _listed(values: tuple[float, ...]) -> str:
    return "{" + ", ".join(f"{value:g}" for value in values) + "}"
