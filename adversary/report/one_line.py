"""The verdict in one line, for whoever reads no further: does the eavesdropper have what the algorithm protects?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpp2 import Experiment
from dpp2.adversary.findings import Finding
from dpp2.adversary.verdicts import Recovery, best

_NAMES = {"x": "x", "gradient": "gradients"}
_GUESSING = 1.0  # the relative error of zero


@dataclass(frozen=True)
class Heard:
    """Who listened, and whose messages were attacked; None: everybody's."""

    agents: Sequence[int] | None = None
    listener: str = "the eavesdropper"

    def had(self, what: str) -> str:
        """ "all x", "agent 7's x" or "the x of 3 agents"."""
        return f"all {what}" if self.agents is None else self._of_some(what)

    def has(self, what: str) -> str:
        return f"every agent's {what}" if self.agents is None else self._of_some(what)

    def _of_some(self, what: str) -> str:
        assert self.agents is not None
        if len(self.agents) == 1:
            return f"agent {self.agents[0]}'s {what}"
        return f"the {what} of {len(self.agents)} agents"


_EVERYBODY = Heard()


def one_line(
    experiment: Experiment, findings: Sequence[Finding], *, scored: bool, heard: Heard = _EVERYBODY
) -> tuple[bool | None, str]:
    """One line, and whether what the algorithm protects is known to the eavesdropper."""
    if not scored:
        return None, "The eavesdropper is at work; without telemetry nobody here can say how close it comes."
    what = "gradient" if experiment.algorithm.result_is_covered else "x"
    found, aside = best(findings, what), "; x is public here" if what == "gradient" else ""
    if found is None:
        return None, f"No attack that applies gives an estimate of the {_NAMES[what]} yet{aside}."
    if found.rounds and found.glimpsed(what):
        had = f"{heard.listener} had {heard.had(_NAMES[what])} to {found.error:.0e} there, and not for long"
        return True, f"Glimpsed in {found.rounds.words}: {had} ({found.finding.name} attack)."
    return found.recovered, _spoken(found, _NAMES[what], aside, heard)


def _spoken(found: Recovery, what: str, aside: str, heard: Heard) -> str:
    by, error = found.finding.name, found.error
    when = f" in {found.rounds.words}" if found.rounds else ""
    if found.recovered:
        had = f"had {heard.had(what)}{when}" if when else f"has {heard.has(what)}"
        return f"Overheard and undone: {heard.listener} {had} to {error:.0e} ({by} attack)."
    missed = "x was" if what == "x" else f"The {what} were"
    return f"{missed} not recovered by these attacks: {how_far(found)}{when}{aside}."


def how_far(found: Recovery) -> str:
    """How far off the closest attack is; an error of 1 is that of zero as an estimate, which takes no listening."""
    by, error = found.finding.name, found.error
    if error >= _GUESSING:
        late = "" if found.rounds else "in the last rounds "
        return f"{late}no attack beats guessing zero (best: error {error:.3g}, {by}; guessing: 1)"
    return f"the closest, {by}, is off by {100 * error:.0f} %"
