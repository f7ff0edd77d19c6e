"""The paper's claims, judged one by one from what an audit found.

A verdict is `held`, not held, or None where this run cannot tell; its evidence is a sentence with numbers. "Not
recovered by these attacks" is all that can ever be said in a protection's favour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpp2.adversary.findings import QUANTITIES, Finding
from dpp2.adversary.game_result import GameResult
from dpp2.privacy import Epsilon, PaperEpsilon, Unsupported

RECOVERED = 0.1  # relative error up to which a quantity counts as recovered
PARAMETER_RECOVERED = 0.01  # the same for a parameter, which is one number and not a cloud of them
_GONE = 1e-3  # of its first scale: noise that no longer hides anything
_LARGE = 10.0  # an ε from which on a guarantee is one in name only
_READABLE = 6  # digits before the point


@dataclass(frozen=True)
class Verdict:
    """One claim, whether it held in this run (None: cannot be told), and why."""

    claim: str
    held: bool | None
    evidence: str
    in_name: bool = False  # it held, but says next to nothing


@dataclass(frozen=True)
class Evidence:
    """What the verdicts rest on."""

    findings: Sequence[Finding]
    attacker: str  # such as "global eavesdropper"
    last: tuple[int, int]  # the rounds that medians are taken over
    unscored: str | None  # why there are no errors, if there are none
    tier_one: bool | None  # whether η mixes; None for algorithms without it
    knows_eta: bool  # a participant does
    noise_left: float  # scale of the noise in the last of these rounds, in units of its first
    epsilon: Epsilon | Unsupported
    paper_epsilon: PaperEpsilon | Unsupported
    game: GameResult | Unsupported | None
    void: Sequence[str]  # why no ε holds for this very run, however sound its mechanism


def judge(evidence: Evidence) -> tuple[Verdict, ...]:
    """All four claims."""
    return (
        _hidden("x_i hidden by tier one", "x", evidence),
        _hidden("gradients hidden by tier one", "gradient", evidence),
        _persists("protection persists when noise → 0", evidence),
        _dp("ε-DP of f_i", evidence),
    )


def best(findings: Sequence[Finding], what: str) -> tuple[Finding, float] | None:
    """The attack with the least error, among those that listen."""
    scored = [(one, one.error(what)) for one in findings if one.attack.listens]
    known = [(one, error) for one, error in scored if error is not None]
    return min(known, key=lambda pair: pair[1], default=None)


def recovery(evidence: Evidence, what: str) -> str:
    """ "recovered to 3e-9 by …", or that it was not."""
    found = best(evidence.findings, what)
    if found is None:
        return "not recovered by these attacks: none of them gives an estimate"
    attack, error = found
    first, last = evidence.last
    where = f"{attack.name}, {evidence.attacker}; median over rounds {first}–{last}"
    if error <= RECOVERED:
        return f"recovered to {error:.0e} ({where})"
    return f"not recovered by these attacks (the closest: relative error {error:.2g}, {where})"


def _hidden(claim: str, what: str, evidence: Evidence) -> Verdict:
    symbol = QUANTITIES[what]
    if evidence.unscored:
        return Verdict(claim, None, evidence.unscored)
    if not evidence.tier_one:
        off = "tier one is off in this run (η = 1)" if evidence.tier_one is False else "this algorithm has no tier one"
        return Verdict(claim, None, f"{off}; {symbol} {recovery(evidence, what)}")
    said = f"{symbol} {recovery(evidence, what)}"
    if best(evidence.findings, what) is None:
        return Verdict(claim, None, said)
    if evidence.knows_eta:
        said += "; every participant knows η, so tier one is no obstacle"
    elif what == "gradient":
        said += "; z = ∇f + ρPd⁺ + e holds no η at all, so tier one cannot hide what z carries"
    return Verdict(claim, not _recovered(evidence, what), said)


def _persists(claim: str, evidence: Evidence) -> Verdict:
    if evidence.unscored:
        return Verdict(claim, None, evidence.unscored)
    left = f"in round {evidence.last[1]} the noise has {evidence.noise_left:.1e} of its first scale"
    if evidence.noise_left > _GONE:
        lasting = "this noise stays" if evidence.noise_left >= 1 else "this run ends before the noise has gone"
        return Verdict(claim, None, f"{left}: {lasting}")
    broken = _recovered(evidence, "x") or _recovered(evidence, "gradient")
    said = f"{left}; x_i {recovery(evidence, 'x')}; ∇f_i {recovery(evidence, 'gradient')}"
    return Verdict(claim, not broken, said)


def _recovered(evidence: Evidence, what: str) -> bool:
    found = best(evidence.findings, what)
    return found is not None and found[1] <= RECOVERED


def _dp(claim: str, evidence: Evidence) -> Verdict:
    spent, claimed, played = evidence.epsilon, evidence.paper_epsilon, evidence.game
    if isinstance(spent, Unsupported):
        return Verdict(claim, None, f"no ε can be given: {spent.reason}")
    if spent.log10 == math.inf:
        return Verdict(claim, False, f"ε = ∞: {spent.reason}")
    paper = f"does not apply ({claimed.reason})" if isinstance(claimed, Unsupported) else f"says {amount(claimed)}"
    said = f"ε = {amount(spent)} by the exact account; the paper's Theorem 3 {paper}"
    proven = played.bound.value if isinstance(played, GameResult) else 0.0
    if isinstance(played, GameResult):
        said += f"; the distinguishing game proves ε ≥ {proven:.3g} at confidence {percent(played.bound.confidence)}"
    limits = [one.value for one in (spent, claimed) if not isinstance(one, Unsupported) and one.value is not None]
    held = all(proven <= limit for limit in limits)
    in_name = held and spent.log10 > math.log10(_LARGE)
    if in_name:
        said += ". It holds in name only: what was overheard may change anybody's odds by a factor of e^ε"
    if evidence.void:
        said += f". For this run ε does not hold, because {' and '.join(evidence.void)}"
    return Verdict(claim, held, said, in_name)


def amount(spent: Epsilon | PaperEpsilon | Unsupported) -> str:
    """An ε as people read it."""
    if isinstance(spent, Unsupported) or spent.log10 < _READABLE:
        return str(spent)
    return f"10^{spent.log10:.1f}"


def percent(confidence: float) -> str:
    return f"{100 * confidence:.8g} %"
