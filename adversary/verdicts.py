"""The paper's claims, judged one by one from what an audit found.

A claim that something is hidden did not hold as soon as one attack recovered it in some stretch of rounds. The other
way round no attack proves anything: where all that are for this run and this attacker were run and failed, it was "not
recovered by these attacks", and where some were not run, it is not judged. The evidence is a sentence with numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from dpp2.adversary.findings import QUANTITIES, Finding, Skipped
from dpp2.adversary.game_result import GameResult
from dpp2.adversary.scoring import Stretch
from dpp2.adversary.style import raised
from dpp2.privacy import Epsilon, PaperEpsilon, Unsupported

RECOVERED = 0.1  # relative error up to which a quantity counts as recovered
PARAMETER_RECOVERED = 0.01  # the same for a parameter, which is one number and not a cloud of them
_GONE = 1e-3  # of its first scale: noise that no longer hides anything
_LARGE = 10.0  # an ε from which on a guarantee is one in name only
_READABLE = 6  # digits before the point
_ALIKE = 1.1  # errors at the end that differ by less are the same: then the whole run decides
_LASTING = 3  # rounds in a row in which something is recovered before it is more than a glimpse


PROMISED = "ε-DP of f_i"  # the claim that ε is about


class Outcome(StrEnum):
    """What can be said of a claim, in the words of every report."""

    BROKEN = "did not hold"
    NOT_RECOVERED = "not recovered by these attacks"
    NOT_REFUTED = "not refuted"  # of an ε: the game was played, and proved no more
    IN_NAME = "in name only"  # of an ε that says next to nothing
    VOID = "not of this run"  # of an ε that the mechanism has, and that this run has given away
    NOT_JUDGED = "not judged"

    @property
    def words(self) -> str:
        """As a person reads it: the value is what programs look for in audit.json."""
        return "holds for the method, not for this run" if self is Outcome.VOID else str(self)


@dataclass(frozen=True)
class Verdict:
    """One claim, what can be said of it, and why."""

    claim: str
    outcome: Outcome
    evidence: str


@dataclass(frozen=True)
class Evidence:
    """What the verdicts rest on."""

    findings: Sequence[Finding]
    untried: Sequence[Skipped]  # attacks that are for this run and this attacker, but were not run
    attacker: str  # such as "global eavesdropper"
    last: tuple[int, int]  # the rounds that medians are taken over
    unscored: str | None  # why there are no errors, if there are none
    tier_one: bool | None  # whether η mixes; None for algorithms without it
    knows_eta: bool  # a participant does
    noise_left: float | None  # scale of the noise in the last of these rounds, in units of its first; None: no noise
    epsilon: Epsilon | Unsupported
    account: str  # whose ε that is
    paper_epsilon: PaperEpsilon | Unsupported
    game: GameResult | Unsupported | None
    uncovered: str | None  # why the formula's ε is not even the price of the messages
    void: Sequence[str]  # why no ε holds for this very run, however sound its mechanism


def judge(evidence: Evidence) -> tuple[Verdict, ...]:
    """All four claims."""
    return (
        _hidden("x_i hidden by tier one", "x", evidence),
        _hidden("gradients hidden by tier one", "gradient", evidence),
        _persists("protection persists when noise → 0", evidence),
        _dp(PROMISED, evidence),
    )


@dataclass(frozen=True, eq=False)
class Recovery:
    """How close the attacks came: which one, its relative error, and in which rounds (None: median of the last)."""

    finding: Finding
    error: float
    rounds: Stretch | None

    @property
    def recovered(self) -> bool:
        return self.error <= RECOVERED

    def glimpsed(self, what: str) -> bool:
        """Whether it is recovered in a round or two in a row and not for longer; claims are counted, where they are."""
        if self.rounds is None or self.rounds.first != self.rounds.last or not self.recovered:
            return False
        errors = self.finding.errors[what].rounds
        close = errors[~np.isnan(errors)] <= RECOVERED
        width = min(_LASTING, len(close))
        return not np.lib.stride_tricks.sliding_window_view(close, width).all(axis=1).any()


def best(findings: Sequence[Finding], what: str) -> Recovery | None:
    """The least error among the attacks that listen: at the end if it is recovered there, or else in any stretch."""
    listening = [one for one in findings if one.attack.listens]
    late = [Recovery(one, error, None) for one in listening if (error := one.error(what)) is not None]
    ever = [Recovery(one, at.error, at) for one in listening if (at := one.closest(what))]
    least = min((one.error for one in late), default=0.0)
    at_the_end = min(
        (one for one in late if one.error <= _ALIKE * least), key=lambda one: _over_all(one, what), default=None
    )
    at_best = min(ever, key=lambda one: one.error, default=None)
    if at_the_end is None or at_best is None or at_the_end.recovered:
        return at_the_end or at_best
    return at_best if at_best.recovered else at_the_end


def _over_all(found: Recovery, what: str) -> float:
    """The median over all rounds."""
    errors = found.finding.errors[what].rounds
    return float(np.median(errors[~np.isnan(errors)]))


def recovery(evidence: Evidence, what: str) -> str:
    """ "recovered to 3e-9 by …", or that it was not."""
    found = best(evidence.findings, what)
    if found is None:
        return "not recovered by these attacks: none of them gives an estimate"
    first, last = evidence.last
    when = found.rounds.words if found.rounds else f"median over rounds {first}–{last}"
    where = f"{found.finding.name}, {evidence.attacker}; {when}"
    if found.recovered:
        return f"recovered to {found.error:.0e} ({where})"
    return f"not recovered by these attacks (the closest: relative error {found.error:.2g}, {where})"


def _hidden(claim: str, what: str, evidence: Evidence) -> Verdict:
    symbol = QUANTITIES[what]
    if evidence.unscored:
        return Verdict(claim, Outcome.NOT_JUDGED, evidence.unscored)
    said = f"{symbol} {recovery(evidence, what)}"
    if not evidence.tier_one:
        off = "tier one is off in this run (η = 1)" if evidence.tier_one is False else "this algorithm has no tier one"
        return Verdict(claim, Outcome.NOT_JUDGED, f"{off}; {said}")
    if _recovered(evidence, what) and evidence.knows_eta:
        said += "; every participant knows η, so tier one is no obstacle"
    elif what == "gradient":
        said += "; z = ∇f + ρPd⁺ + e holds no η at all, so tier one cannot hide what z carries"
    return _attacked(claim, said, broken=_recovered(evidence, what), evidence=evidence)


def _persists(claim: str, evidence: Evidence) -> Verdict:
    if evidence.unscored:
        return Verdict(claim, Outcome.NOT_JUDGED, evidence.unscored)
    left = "there was no noise"
    if evidence.noise_left is not None:
        left = f"in round {evidence.last[1]} the noise has {evidence.noise_left:.1e} of its first scale"
        if evidence.noise_left > _GONE:
            lasting = "this noise stays" if evidence.noise_left >= 1 else "this run ends before the noise has gone"
            return Verdict(claim, Outcome.NOT_JUDGED, f"{left}: {lasting}")
    broken = _recovered(evidence, "x") or _recovered(evidence, "gradient")
    said = f"{left}; x_i {recovery(evidence, 'x')}; ∇f_i {recovery(evidence, 'gradient')}"
    return _attacked(claim, said, broken=broken, evidence=evidence)


def _attacked(claim: str, said: str, *, broken: bool, evidence: Evidence) -> Verdict:
    """One success is enough; failures count only if everything was tried."""
    if broken:
        return Verdict(claim, Outcome.BROKEN, said)
    if evidence.untried:
        left = "; ".join(f"{one.name} ({one.reason})" for one in evidence.untried)
        return Verdict(claim, Outcome.NOT_JUDGED, f"{said}. Attacks that were not run: {left}")
    return Verdict(claim, Outcome.NOT_RECOVERED, said)


def _recovered(evidence: Evidence, what: str) -> bool:
    found = best(evidence.findings, what)
    return found is not None and found.recovered


def _dp(claim: str, evidence: Evidence) -> Verdict:
    spent = evidence.epsilon
    if isinstance(spent, Unsupported):
        return Verdict(claim, Outcome.NOT_JUDGED, f"no ε can be given: {spent.reason}")
    if spent.log10 == math.inf:
        return Verdict(claim, Outcome.BROKEN, f"ε = ∞: {spent.reason}")
    said = f"ε = {amount(spent)} by {evidence.account}; {papers(evidence.paper_epsilon)}; {_played(evidence.game)}"
    outcome = _tested(evidence)
    if outcome is Outcome.IN_NAME and not evidence.uncovered:
        said += ". It holds in name only: what was overheard may change anybody's odds by a factor of e^ε"
    if evidence.void:
        said += f". The method has this ε; this run does not, because {_in_turn(evidence.void)}"
    return Verdict(claim, outcome, said)


def _in_turn(reasons: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(filter(None, [", ".join(reasons[:-1]), reasons[-1]]))


def _tested(evidence: Evidence) -> Outcome:
    """A finite ε against what the game proves."""
    spent, claimed, played = evidence.epsilon, evidence.paper_epsilon, evidence.game
    limits = [one.value for one in (spent, claimed) if not isinstance(one, Unsupported) and one.value is not None]
    if isinstance(played, GameResult) and (played.refuted or any(played.bound.value > limit for limit in limits)):
        return Outcome.BROKEN
    if isinstance(spent, Epsilon) and spent.log10 > math.log10(_LARGE):
        return Outcome.IN_NAME
    if evidence.void:
        return Outcome.VOID
    return Outcome.NOT_REFUTED if isinstance(played, GameResult) else Outcome.NOT_JUDGED


def _played(played: GameResult | Unsupported | None) -> str:
    if isinstance(played, GameResult):
        bound = played.bound
        return f"the distinguishing game proves ε ≥ {bound.value:.3g} at confidence {percent(bound.confidence)}"
    return f"the distinguishing game was not played{f' ({played.reason})' if played else ''}"


def amount(spent: Epsilon | PaperEpsilon | Unsupported) -> str:
    """An ε as people read it."""
    if isinstance(spent, Unsupported) or spent.log10 < _READABLE:
        return str(spent)
    exponent = math.floor(spent.log10)
    return f"{10 ** (spent.log10 - exponent):.1f}·10{raised(exponent)}"


def papers(claimed: PaperEpsilon | Unsupported) -> str:
    """What the paper says of the same run."""
    says = f"does not apply ({claimed.reason})" if isinstance(claimed, Unsupported) else f"says {amount(claimed)}"
    return f"the paper's Theorem 3 {says}"


def percent(confidence: float) -> str:
    return f"{100 * confidence:.8g} %"
