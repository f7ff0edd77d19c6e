"""The eavesdropper at work: the attacks that apply, on what was overheard so far, scored where there is a truth.

Attacks get a view and nothing else; the truth goes to the scorer. What comes out is thinned: a curve has some hundred
points, whatever the run has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from adversary.attacks import ATTACKS, Attack
from adversary.audit import Attacker, Interception, public_knowledge
from adversary.findings import Finding, Skipped, attempt
from adversary.observation import Observation
from adversary.scoring import Errors, Truth
from adversary.verdicts import RECOVERED
from dpp2 import Experiment
from dpp2.arrays import Array
from page.documents import AttackDocument, GuessDocument, OverheardDocument, Point, SkippedDocument

QUICK = tuple(attack for attack in ATTACKS if attack.quick)
_POINTS = 240  # of one curve
_MOST_GUESSED = 24_000  # numbers of x̂ and ∇̂f in one document
_NO_TRUTH = "errors cannot be measured: nobody here may see x (no telemetry)"
_NAMES = {"x": "x", "gradient": "gradients"}


def overheard(
    experiment: Experiment, heard: Interception, truth: Truth | None, attacks: Sequence[Attack] = QUICK
) -> OverheardDocument:
    """Everything that the page shows of an eavesdropper on all channels."""
    observation = heard.observation
    if observation is None:
        return _ciphertext(heard)
    view = Attacker().view(observation, public_knowledge(experiment, observation), truth)
    tried = [attempt(attack, view, truth) for attack in attacks if not attack.excludes]
    findings = [one for one in tried if isinstance(one, Finding)]
    broken, verdict = _verdict(experiment, findings, scored=truth is not None)
    first, rounds = observation.first, observation.shape[0]
    return OverheardDocument(
        source=heard.source,
        ciphertext=(),
        first=first,
        last=first + rounds - 1,
        channels=len(observation.channels),
        attacks=[_attack(one, first) for one in findings],
        skipped=[SkippedDocument(one.name, one.reason) for one in tried if isinstance(one, Skipped)],
        unscored=None if truth else _NO_TRUTH,
        truth=_true(truth, observation, len(findings)) if truth else None,
        guesses={one.name: guess for one in findings if (guess := _guess(one, len(findings)))},
        verdict=verdict,
        broken=broken,
    )


def _ciphertext(heard: Interception) -> OverheardDocument:
    said = "The eavesdropper hears ciphertext: no attack has anything to work on."
    return OverheardDocument(heard.source, heard.leaks, 0, 0, 0, (), (), None, None, {}, said, False)


def _attack(finding: Finding, first: int) -> AttackDocument:
    return AttackDocument(
        name=finding.name,
        summary=finding.attack.summary,
        listens=finding.attack.listens,
        x=_curve(finding.errors.get("x"), first),
        gradient=_curve(finding.errors.get("gradient"), first),
        x_now=finding.error("x"),
        gradient_now=finding.error("gradient"),
    )


def _curve(errors: Errors | None, first: int) -> list[Point]:
    """Some of the rounds, the last one among them."""
    if errors is None:
        return []
    chosen = _some(len(errors.rounds))
    return [(first + int(k), float(errors.rounds[k])) for k in chosen]


def _some(count: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, count - 1, min(count, _POINTS)).round().astype(np.intp))


def _guess(finding: Finding, attacks: int) -> GuessDocument | None:
    x, grad = finding.estimate.x, finding.estimate.grad
    if x is None and grad is None:
        return None
    return GuessDocument(_last(x, attacks), _last(grad, attacks))


def _true(truth: Truth, observation: Observation, attacks: int) -> GuessDocument | None:
    """In the last round that was heard, if it is on record already."""
    k = observation.first + observation.shape[0] - 1
    if k >= len(truth.x):
        return None
    return GuessDocument(_last(truth.x[k : k + 1], attacks), _last(truth.grad[k : k + 1], attacks))


def _last(rows: Array | None, attacks: int) -> list[list[float]]:
    """Of as many agents as fit."""
    if rows is None or not len(rows):
        return []
    agents = max(_MOST_GUESSED // (2 * (attacks + 1) * rows.shape[2]), 1)
    return [[float(value) for value in row] for row in rows[-1, :agents]]


def _verdict(experiment: Experiment, findings: Iterable[Finding], *, scored: bool) -> tuple[bool | None, str]:
    """One line, and whether what the algorithm protects is known to the eavesdropper."""
    if not scored:
        return None, "The eavesdropper is at work; without telemetry nobody here can say how close it comes."
    what = "gradient" if experiment.algorithm.result_is_covered else "x"
    listening = [one for one in findings if one.attack.listens and what in one.errors]
    now = {one.name: error for one in listening if (error := one.error(what)) is not None}
    ever = {one.name: found for one in listening if (found := _closest(one, what)) is not None}
    return _spoken(_NAMES[what], "; x is public here" if what == "gradient" else "", now, ever)


def _closest(finding: Finding, what: str) -> tuple[float, int] | None:
    """The least error, and in which round: what was known once is known."""
    errors = finding.errors[what].rounds
    if np.isnan(errors).all():
        return None
    k = int(np.nanargmin(errors))
    return float(errors[k]), k


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
