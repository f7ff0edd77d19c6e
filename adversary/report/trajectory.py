"""What the wire carried of one agent, and what an attack made of it, beside the truth.

That is x, or ∇f where a method sends x openly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpp2.adversary.audit import AuditReport
from dpp2.adversary.findings import Finding
from dpp2.adversary.report.drawing import COLOURS, panel, panels, positive
from dpp2.adversary.report.page import Shown
from dpp2.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One coordinate of one agent: the message, and in rounds k the truth and the estimate."""

    agent: int
    symbol: str  # of what is hidden: x or ∇f
    coordinate: int
    phase: str
    attack: str
    k: NDArray[np.intp]
    heard: NDArray[np.intp]  # the rounds of `sent`
    sent: Array
    true: Array
    recovered: Array
    last: list[tuple[float, float]]  # truth and estimate of the last round, coordinate by coordinate


def trajectory(report: AuditReport, agent: int) -> Shown | None:
    """The message of one agent on the left, its x or its gradient on the right."""
    shown = _taken(report, agent)
    if shown is None:
        return None
    what, found = shown.symbol, f"estimate of {shown.attack}"
    alt = f"Message of agent {agent} as overheard, and its {what}, true and estimated, over {len(shown.k)} rounds"
    caption = (
        f"First, what the wire shows of agent {agent}; then its true {what} (broad), and what the {shown.attack} "
        f"attack makes of the wire (thin, or points), both in coordinate {shown.coordinate}. Where the estimate lies "
        f"inside the broad line, {what} is known; where it leaves the picture, it is wrong."
    )
    key = {f"true {what}": COLOURS[5], found: COLOURS[1]}
    picture = panels(
        [panel(lambda axes: _wire(axes, shown), f"{alt}: left"), panel(lambda axes: _inside(axes, shown), alt)], key
    )
    head = ["coordinate", f"{what} of agent {agent} in round {shown.k[-1]}", found]
    rows = [[str(c), f"{true:.6g}", f"{found:.6g}"] for c, (true, found) in enumerate(shown.last)]
    return Shown("What was sent, and what was recovered from it", picture, caption, head, rows)


def _taken(report: AuditReport, agent: int) -> Trajectory | None:
    """By the attack that comes closest, in the coordinate that moves most; None where there is nothing to show."""
    what = "gradient" if report.experiment.algorithm.result_is_covered else "x"
    attack = _closest_throughout(report, what)
    if report.view is None or report.truth is None or attack is None:
        return None
    observation, truth = report.view.observation, report.truth
    claimed, true = (attack.estimate.x, truth.x) if what == "x" else (attack.estimate.grad, truth.grad)
    if claimed is None:
        return None
    first, rounds = observation.first, observation.shape[0]
    true, claimed = true[first - truth.first :][:rounds, agent], claimed[:, agent]
    k = _shown_rounds(true, claimed)
    if not len(k) or np.isnan(claimed[k]).all():
        return None
    c = int(np.argmax(np.ptp(true[k], axis=0)))
    phase, sent = next(iter(observation.phases.items()))
    heard = np.flatnonzero(np.isfinite(sent[:, agent]).all(axis=1))
    last = list(zip(true[k[-1]].tolist(), claimed[k[-1]].tolist(), strict=True))
    lines = (first + k, first + heard, sent[heard, agent, c], true[k, c], claimed[k, c])
    return Trajectory(agent, {"x": "x", "gradient": "∇f"}[what], c, phase, attack.name, *lines, last)


def _shown_rounds(true: Array, claimed: Array) -> NDArray[np.intp]:
    """Where the truth is finite (a run that diverged ends beyond float64); of a few estimates, where these are."""
    finite = np.asarray(np.isfinite(true[: len(claimed)]).all(axis=1))
    estimated = finite & ~np.isnan(claimed).any(axis=1)
    return np.flatnonzero(estimated if 0 < np.count_nonzero(estimated) < len(finite) / 2 else finite)


def _wire(wire: Axes, shown: Trajectory) -> None:
    wire.plot(shown.heard, shown.sent, lw=0.8, color=COLOURS[-1])
    wire.set(title=f"overheard: message {shown.phase} of agent {shown.agent}")
    wire.set(xlabel="round k")


def _inside(inside: Axes, shown: Trajectory) -> None:
    inside.plot(shown.k, shown.true, lw=4, alpha=0.5, color=COLOURS[5])
    inside.plot(shown.k, shown.recovered, lw=1.2, color=COLOURS[1], **_points(shown))
    low, high = shown.true.min(), shown.true.max()
    margin = 0.3 * (high - low) + 1e-12
    inside.set(title=f"kept to itself: {shown.symbol} of agent {shown.agent}", ylim=(low - margin, high + margin))
    inside.set(xlabel="round k")


def _points(shown: Trajectory) -> dict[str, Any]:
    """Rounds that are far apart are marked: a line between them would claim more than is there."""
    apart = len(shown.k) < (shown.k[-1] - shown.k[0] + 1) / 2
    return {"marker": "o", "ms": 4, "ls": "none"} if apart else {}


def _closest_throughout(report: AuditReport, what: str) -> Finding | None:
    """The attack with the least error over the whole run, in the mean of its logarithm."""
    scored = [one for one in report.findings if one.attack.listens and what in one.errors]

    def mean(finding: Finding) -> float:
        logs = np.log10(positive(finding.errors[what].rounds))
        return float(np.nan_to_num(logs, nan=0.0).mean())  # a round without an estimate is as good as none

    return min(scored, key=mean, default=None)
