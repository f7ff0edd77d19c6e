"""The verdict in one line, for whoever reads no further: does the eavesdropper have what the algorithm protects?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from dpp2 import Experiment
from dpp2.adversary.findings import Finding
from dpp2.adversary.verdicts import RECOVERED

_NAMES = {"x": "x", "gradient": "gradients"}


def one_line(
    experiment: Experiment, findings: Iterable[Finding], *, scored: bool, first: int = 0
) -> tuple[bool | None, str]:
    """One line, and whether what the algorithm protects is known to the eavesdropper, who has rounds first … on."""
    if not scored:
        return None, "The eavesdropper is at work; without telemetry nobody here can say how close it comes."
    what = "gradient" if experiment.algorithm.result_is_covered else "x"
    listening = [one for one in findings if one.attack.listens and what in one.errors]
    now = {one.name: error for one in listening if (error := one.error(what)) is not None}
    ever = {one.name: found for one in listening if (found := _closest(one, what, first)) is not None}
    return _spoken(_NAMES[what], "; x is public here" if what == "gradient" else "", now, ever)


def _closest(finding: Finding, what: str, first: int) -> tuple[float, int] | None:
    """The least error, and in which round of the run: what was known once is known."""
    errors = finding.errors[what].rounds
    if np.isnan(errors).all():
        return None
    k = int(np.nanargmin(errors))
    return float(errors[k]), first + k


def _spoken(
    what: str, aside: str, now: Mapping[str, float], ever: Mapping[str, tuple[float, int]]
) -> tuple[bool | None, str]:
    """`now`: errors lately; `ever`: the least ones, and their rounds."""
    if not ever:
        return None, f"No attack that applies gives an estimate of the {what} yet{aside}."
    last = min(now, key=lambda name: now[name], default="")
    if last and now[last] <= RECOVERED:
        return True, f"Overheard and undone: the eavesdropper has every agent's {what}, by {last} to {now[last]:.0e}."
    best = min(ever, key=lambda name: ever[name])
    error, k = ever[best]
    if error <= RECOVERED:
        return True, f"Overheard and undone: in round {k} the eavesdropper had all {what}, by {best} to {error:.0e}."
    off = f"{100 * error:.0f} %" if error < 10 else f"a factor of {error:.0e}"
    return False, f"The {what} stay hidden: the closest attack, {best}, is never closer than {off}{aside}."
