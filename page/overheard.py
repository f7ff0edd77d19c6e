"""The eavesdropper at work: the attacks that apply, on what was overheard so far, scored where there is a truth.

Attacks get a view and nothing else; the truth goes to the scorer. What comes out is thinned: a curve has some hundred
points, whatever the run has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpp2 import Experiment
from dpp2.adversary.attacker import Attacker
from dpp2.adversary.attacks import ATTACKS, Attack
from dpp2.adversary.audit import Interception, public_knowledge
from dpp2.adversary.findings import Finding, Skipped, attempt
from dpp2.adversary.report.one_line import one_line
from dpp2.adversary.scoring import Errors, Truth
from dpp2.adversary.verdicts import Recovery, best
from dpp2.arrays import Array
from dpp2.page.documents import AttackDocument, GuessDocument, OverheardDocument, Point, SkippedDocument
from dpp2.thinning import chosen

QUICK = tuple(attack for attack in ATTACKS if attack.quick)
_POINTS = 240  # of one curve
_MOST_GUESSED = 24_000  # numbers of x̂ and ∇̂f in one document
_NO_TRUTH = "errors cannot be measured: nobody here may see x (no telemetry)"


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
    first, rounds = observation.first, observation.shape[0]
    broken, verdict = one_line(experiment, findings, scored=truth is not None)
    closest = {what: found for what in ("x", "gradient") if (found := best(findings, what))}
    named = _named(closest.get("gradient" if experiment.algorithm.result_is_covered else "x"))
    if first and broken is False:  # of rounds that nobody has attacked nothing can be said
        broken, verdict = None, f"{verdict} That holds from round {first} on: earlier ones were not attacked."
    at = {named[0]: named[1] - first} if named else {}
    guesses = {one.name: guess for one in findings if (guess := _guess(one, first, len(findings), at.get(one.name)))}
    return OverheardDocument(
        source=heard.source,
        ciphertext=(),
        first=first,
        last=first + rounds - 1,
        channels=len(observation.channels),
        attacks=[_attack(one, first) for one in findings],
        closest={what: found.finding.name for what, found in closest.items()},
        skipped=[SkippedDocument(one.name, one.reason) for one in tried if isinstance(one, Skipped)],
        unscored=None if truth else _NO_TRUTH,
        truths=_true(truth, guesses, len(findings)) if truth else {},
        guesses=guesses,
        verdict=verdict,
        broken=broken,
        quick=all(attack.quick for attack in attacks),
        named=named[1] if named else None,
        report=_report(experiment, truth),
    )


def _named(found: Recovery | None) -> tuple[str, int] | None:
    """The attack and the round that the verdict names; None where it is about the end of the run."""
    return (found.finding.name, found.rounds.last) if found and found.rounds else None


def _report(experiment: Experiment, truth: Truth | None) -> Mapping[str, float]:
    """What the problem reports, such as accuracy, of where the agents are on average; for those who may see x."""
    if truth is None or not len(truth.x):
        return {}
    mean = truth.x[-1].mean(axis=0)
    return experiment.problem.report(mean) if np.isfinite(mean).all() else {}


def _ciphertext(heard: Interception) -> OverheardDocument:
    said = "The eavesdropper hears ciphertext: no attack has anything to work on."
    return OverheardDocument(heard.source, heard.leaks, 0, 0, 0, (), {}, (), None, {}, {}, said, False)


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
    """Some of the rounds, the last one and all peaks among them; of an attack that is mostly silent, its claims."""
    if errors is None:
        return []
    claimed = np.flatnonzero(~np.isnan(errors.rounds))
    rounds = claimed if len(claimed) < len(errors.rounds) / 2 else np.arange(len(errors.rounds))
    shown = rounds[chosen(errors.rounds[rounds], _POINTS)]
    return [(first + int(k), float(errors.rounds[int(k)])) for k in shown]


def _guess(finding: Finding, first: int, attacks: int, named: int | None) -> GuessDocument | None:
    """In the round that the verdict names, or the last one of which it claims all that it ever claims."""
    claims = [rows for rows in (finding.estimate.x, finding.estimate.grad) if rows is not None]
    spoken = [rounds for rows in claims if (rounds := ~np.isnan(rows).all(axis=(1, 2))).any()]
    together = np.all(spoken, axis=0).nonzero()[0].tolist() if spoken else []
    if not together:
        return None
    k = named if named is not None and named in together else together[-1]  # an attack may be silent in most of them
    return _in_round(first + k, k, finding.estimate.x, finding.estimate.grad, attacks)


def _true(truth: Truth, guesses: Mapping[str, GuessDocument], attacks: int) -> dict[str, GuessDocument]:
    """In the rounds of the guesses, as far as they are on record already."""
    rounds = sorted({guess.round for guess in guesses.values()})
    known = [k for k in rounds if truth.first <= k < truth.first + len(truth.x)]
    return {str(k): _in_round(k, k - truth.first, truth.x, truth.grad, attacks) for k in known}


def _in_round(k: int, row: int, x: Array | None, grad: Array | None, attacks: int) -> GuessDocument:
    return GuessDocument(k, _rows(x, row, attacks), _rows(grad, row, attacks))


def _rows(values: Array | None, row: int, attacks: int) -> list[list[float]]:
    """Of as many agents as fit."""
    if values is None or row >= len(values):
        return []
    agents = max(_MOST_GUESSED // (2 * (attacks + 1) * values.shape[2]), 1)
    return [[float(value) for value in one] for one in values[row, :agents]]
