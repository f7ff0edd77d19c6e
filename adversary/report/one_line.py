"""The verdict in one line, for whoever reads no further: does the eavesdropper have what the algorithm protects?"""

from __future__ import annotations

from collections.abc import Sequence

from dpp2 import Experiment
from dpp2.adversary.findings import Finding
from dpp2.adversary.verdicts import Recovery, best

_NAMES = {"x": "x", "gradient": "gradients"}


def one_line(experiment: Experiment, findings: Sequence[Finding], *, scored: bool) -> tuple[bool | None, str]:
    """One line, and whether what the algorithm protects is known to the eavesdropper."""
    if not scored:
        return None, "The eavesdropper is at work; without telemetry nobody here can say how close it comes."
    what = "gradient" if experiment.algorithm.result_is_covered else "x"
    found, aside = best(findings, what), "; x is public here" if what == "gradient" else ""
    if found is None:
        return None, f"No attack that applies gives an estimate of the {_NAMES[what]} yet{aside}."
    if found.rounds and found.glimpsed(what):
        had = f"the eavesdropper had all {_NAMES[what]} to {found.error:.0e} there, and not for long"
        return True, f"Glimpsed in {found.rounds.words}: {had} ({found.finding.name} attack)."
    return found.recovered, _spoken(found, _NAMES[what], aside)


def _spoken(found: Recovery, what: str, aside: str) -> str:
    by, error = found.finding.name, found.error
    when = f" in {found.rounds.words}" if found.rounds else ""
    if found.recovered:
        had = f"had all {what}{when}" if when else f"has every agent's {what}"
        return f"Overheard and undone: the eavesdropper {had} to {error:.0e} ({by} attack)."
    off = f"{100 * error:.0f} %" if error < 10 else f"a factor of {error:.0e}"
    missed = "x was" if what == "x" else f"The {what} were"
    return f"{missed} not recovered by these attacks: the closest, {by}, is off by {off}{when}{aside}."
