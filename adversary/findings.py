"""What one attack found, scored, in the shape that verdicts, tables and figures read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpp2.adversary.attacks import ATTACKS, Attack, Estimate
from dpp2.adversary.attacks.float_bits import Exclusion
from dpp2.adversary.candidates import ruled_out
from dpp2.adversary.scoring import Errors, Stretch, Truth, score
from dpp2.adversary.views import View

QUANTITIES = {"x": "x_i", "gradient": "∇f_i", "eta": "η"}


@dataclass(frozen=True, eq=False)
class Finding:
    """One attack on one run; quantities that it does not estimate, or that nobody could score, are left out."""

    attack: Attack
    attacker: str
    estimate: Estimate
    errors: Mapping[str, Errors] = field(default_factory=dict)
    data: Mapping[str, float] = field(default_factory=dict)  # relative errors of what was found of the data
    parameters: Mapping[str, float] = field(default_factory=dict)  # relative errors of the algorithm's parameters
    ruled_out: Mapping[str, float] = field(default_factory=dict)  # shares of objectives (`candidates.ruled_out`)

    @property
    def name(self) -> str:
        return self.attack.name

    def error(self, what: str) -> float | None:
        """The median over the last tenth of the rounds; None where there is none."""
        errors = self.errors.get(what)
        median = errors.median if errors else None
        return median if median is not None and math.isfinite(median) else None

    def closest(self, what: str) -> Stretch | None:
        """The best few rounds, wherever they lie; None where there are none."""
        errors = self.errors.get(what)
        return errors.closest if errors else None


@dataclass(frozen=True)
class Skipped:
    """An attack that was not run, and the reason."""

    name: str
    reason: str


def attempt(attack: Attack, view: View, truth: Truth | None) -> Finding | Skipped:
    """Run one attack if it applies, and score it if there is a truth to score it by."""
    missing = attack.needs(view)
    if missing:
        return Skipped(attack.name, missing)
    estimate = attack.run(view)
    if truth is None:
        return Finding(attack, view.attacker, estimate)
    if isinstance(estimate, Exclusion):
        excludes = estimate.excludes if truth.experiment else None
        shares = ruled_out(excludes, truth, view.agents) if excludes else {}
        return Finding(attack, view.attacker, estimate, ruled_out=shares)
    scored = score(estimate, truth, view.agents, view.observation.first)
    found = {"x": scored.x, "gradient": scored.grad, "eta": scored.eta}
    errors = {what: one for what, one in found.items() if one is not None}
    return Finding(attack, view.attacker, estimate, errors, scored.data, scored.parameters)


def untried(findings: Sequence[Finding], view: View) -> tuple[Skipped, ...]:
    """Attacks on x and on gradients that are for what was run and for this attacker, but were not run, and why."""
    ran = {one.name for one in findings}
    left = [one for one in ATTACKS if one.listens and one.compared and one.name not in ran and one.made_for(view)]
    return tuple(Skipped(one.name, one.needs(view) or "was not chosen") for one in left)
