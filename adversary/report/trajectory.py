"""What the wire carried of one agent, and what an attack made of it, beside the true x."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """One coordinate of one agent: the message, the truth and the estimate in rounds k."""

    agent: int
    coordinate: int
    phase: str
    attack: str
    k: NDArray[np.intp]
    sent: Array
    true: Array
    recovered: Array
    last: list[tuple[float, float]]  # x and x̂ of the last round, coordinate by coordinate


def trajectory(report: AuditReport, agent: int) -> Shown | None:
    """The message of one agent on the left, its x on the right."""
    shown = _taken(report, agent)
    if shown is None:
        return None
    alt = f"Message of agent {agent} as overheard, and its true and recovered x over {len(shown.k)} rounds"
    caption = (
        f"First, what the wire shows of agent {agent}; then its true x (broad), and what the {shown.attack} attack "
        f"makes of the wire (thin), both in coordinate {shown.coordinate}. Where the thin line runs inside the broad "
        "one, x is known. Units are those of the problem's x."
    )
    key = {"true x": COLOURS[5], f"recovered by {shown.attack}": COLOURS[1]}
    picture = panels(
        [panel(lambda axes: _wire(axes, shown), f"{alt}: left"), panel(lambda axes: _inside(axes, shown), alt)], key
    )
    head = ["coordinate", f"x of agent {agent} in round {shown.k[-1]}", f"recovered by {shown.attack}"]
    rows = [[str(c), f"{true:.6g}", f"{found:.6g}"] for c, (true, found) in enumerate(shown.last)]
    return Shown("What was sent, and what was recovered from it", picture, caption, head, rows)


def _taken(report: AuditReport, agent: int) -> Trajectory | None:
    """By the attack that comes closest, in the coordinate that moves most; None where there is nothing to show."""
    attack = _closest_throughout(report)
    if report.view is None or report.truth is None or attack is None or attack.estimate.x is None:
        return None
    first, rounds = report.view.observation.first, report.view.observation.shape[0]
    x = report.truth.x[first - report.truth.first :][:rounds, agent]
    k = np.flatnonzero(np.isfinite(x).all(axis=1))  # a run that diverged ends beyond float64
    recovered = attack.estimate.x[k, agent]
    if np.isnan(recovered).all():
        return None
    c = int(np.argmax(np.ptp(x[k], axis=0)))
    phase, sent = next(iter(report.view.observation.phases.items()))
    last = list(zip(x[k[-1]].tolist(), recovered[-1].tolist(), strict=True))
    return Trajectory(agent, c, phase, attack.name, first + k, sent[k, agent, c], x[k, c], recovered[:, c], last)


def _wire(wire: Axes, shown: Trajectory) -> None:
    wire.plot(shown.k, shown.sent, lw=0.8, color=COLOURS[-1])
    wire.set(title=f"overheard: message {shown.phase} of agent {shown.agent}")
    wire.set(xlabel="round k")


def _inside(inside: Axes, shown: Trajectory) -> None:
    inside.plot(shown.k, shown.true, lw=4, alpha=0.5, color=COLOURS[5])
    inside.plot(shown.k, shown.recovered, lw=1.2, color=COLOURS[1])
    low, high = shown.true.min(), shown.true.max()
    margin = 0.3 * (high - low) + 1e-12
    inside.set(title=f"kept to itself: x of agent {shown.agent}", ylim=(low - margin, high + margin))
    inside.set(xlabel="round k")


def _closest_throughout(report: AuditReport) -> Finding | None:
    """The attack with the least error of x over the whole run, in the mean of its logarithm."""
    scored = [one for one in report.findings if one.attack.listens and "x" in one.errors]

    def mean(finding: Finding) -> float:
        logs = np.log10(positive(finding.errors["x"].rounds))
        return float(np.nan_to_num(logs, nan=0.0).mean())  # a round without an estimate is as good as none

    return min(scored, key=mean, default=None)
