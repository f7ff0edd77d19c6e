"""audit.json: plain values only, so that a program can read what a person reads in report.html."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpp2.adversary.audit import AuditReport
from dpp2.adversary.findings import QUANTITIES, Finding
from dpp2.adversary.game_result import GameResult, Prediction
from dpp2.adversary.report import sentences
from dpp2.adversary.scoring import Stretch
from dpp2.adversary.verdicts import Outcome
from dpp2.arrays import Array
from dpp2.privacy import Epsilon, PaperEpsilon, Unsupported

Numbers = list[float | None]  # null where there is none


@dataclass(frozen=True)
class AttackDocument:
    """One attack. Errors are medians over the last tenth of the rounds; `rounds` has them round by round.

    `closest` has the best few rounds of the run, and the largest error in them.
    """

    name: str
    attacker: str
    x_error: float | None
    gradient_error: float | None
    eta_error: float | None
    rounds: Mapping[str, Numbers | None]
    since: Mapping[str, Mapping[str, int | None]]  # from which round on the error stays below each threshold
    closest: Mapping[str, Stretch | None]
    facts: Mapping[str, float]  # parameters: (1+τ)α and (1+τ)β, by the names alpha and beta
    fact_errors: Mapping[str, float]
    data_errors: Mapping[str, float]
    ruled_out: Mapping[str, float]  # shares of objectives that the bits of messages rule out


@dataclass(frozen=True)
class SkippedDocument:
    name: str
    reason: str


@dataclass(frozen=True)
class VerdictDocument:
    claim: str
    outcome: Outcome
    evidence: str


@dataclass(frozen=True)
class BoundDocument:
    rounds: int
    epsilon: float


@dataclass(frozen=True)
class GameDocument:
    """What was played; `reason` says why there is no prediction to compare it with, if there is none."""

    rounds: int
    trials: int
    epsilon: float
    smallest_understatement: float | None  # that would have been caught, as a factor on ε
    bounds: list[BoundDocument]
    false_positive: Numbers
    false_negative: Numbers
    agrees_with_prediction: bool | None
    within_account: bool
    reason: str | None


@dataclass(frozen=True)
class NotPlayed:
    reason: str


@dataclass(frozen=True)
class AttacksDocument:
    """Who attacked what, and how close each attack came."""

    run: str
    asked: str
    attacker: str
    observation: str
    summary: list[str]
    attacks: list[AttackDocument]
    not_applicable: list[SkippedDocument]
    unscored: str | None
    leaks: tuple[str, ...]


@dataclass(frozen=True)
class AuditDocument(AttacksDocument):
    """The attacks, what the run cost, what the game proved, and the verdicts."""

    epsilon: float | None
    log10_epsilon: float | None
    log2_delta: float | None
    uncovered: str | None
    reason: str | None
    paper_epsilon: float | None
    paper_log10_epsilon: float | None
    paper_reason: str | None
    epsilon_lower_bound: float | None
    confidence: float | None
    game: GameDocument | NotPlayed | None
    verdicts: list[VerdictDocument]
    notes: list[str]


def document(report: AuditReport) -> AuditDocument:
    (spent, log10, reason), (claimed, claimed_log10, claimed_reason) = map(
        _epsilon, (report.cost.epsilon, report.cost.paper_epsilon)
    )
    bound = report.game.bound if isinstance(report.game, GameResult) else None
    return AuditDocument(
        run=report.run,
        asked=report.asked,
        attacker=report.attacker.kind,
        observation=report.interception.source,
        summary=sentences.summary(report),
        attacks=[_attack(one) for one in report.findings],
        not_applicable=[SkippedDocument(one.name, one.reason) for one in report.skipped],
        unscored=report.unscored,
        leaks=report.interception.leaks,
        epsilon=spent,
        log10_epsilon=log10,
        log2_delta=_log2_delta(report.cost.epsilon),
        uncovered=report.cost.uncovered,
        reason=reason,
        paper_epsilon=claimed,
        paper_log10_epsilon=claimed_log10,
        paper_reason=claimed_reason,
        epsilon_lower_bound=bound.value if bound else None,
        confidence=bound.confidence if bound else None,
        game=_game(report.game),
        verdicts=[VerdictDocument(one.claim, one.outcome, one.evidence) for one in report.verdicts],
        notes=notes(report),
    )


def notes(report: AuditReport) -> list[str]:
    """What the tap missed, and what makes every ε void."""
    observation = report.interception.observation
    return [*(observation.gaps + observation.notes if observation else ()), *report.cost.notes]


def _attack(finding: Finding) -> AttackDocument:
    errors = finding.errors
    return AttackDocument(
        name=finding.name,
        attacker=finding.attacker,
        x_error=finding.error("x"),
        gradient_error=finding.error("gradient"),
        eta_error=finding.error("eta"),
        rounds={what: _numbers(errors[what].rounds) if what in errors else None for what in QUANTITIES},
        since={what: {f"{bound:g}": k for bound, k in one.since.items()} for what, one in errors.items()},
        closest={what: finding.closest(what) for what in QUANTITIES},
        facts=finding.estimate.parameters,
        fact_errors=finding.parameters,
        data_errors=finding.data,
        ruled_out=finding.ruled_out,
    )


def _epsilon(spent: Epsilon | PaperEpsilon | Unsupported) -> tuple[float | None, float | None, str | None]:
    """Its value, its logarithm and the reason why it is infinite or missing."""
    if isinstance(spent, Unsupported):
        return None, None, spent.reason
    return spent.value, spent.log10, spent.reason if isinstance(spent, Epsilon) else None


def _log2_delta(spent: Epsilon | Unsupported) -> float | None:
    """Of the δ_dp that noise on a grid leaves beside ε."""
    return spent.log2_delta if isinstance(spent, Epsilon) and spent.tail else None


def _game(played: GameResult | Unsupported | None) -> GameDocument | NotPlayed | None:
    if not isinstance(played, GameResult):
        return None if played is None else NotPlayed(played.reason)
    prediction, curve = played.prediction, played.trade_off
    agreed = prediction if isinstance(prediction, Prediction) else None
    return GameDocument(
        rounds=played.game.rounds,
        trials=played.trials,
        epsilon=played.game.epsilon,
        smallest_understatement=played.caught if math.isfinite(played.caught) else None,
        bounds=[BoundDocument(k, one.value) for k, one in zip(played.stops, played.bounds, strict=True)],
        false_positive=_numbers(curve.false_positive),
        false_negative=_numbers(curve.false_negative),
        agrees_with_prediction=agreed.agrees if agreed else None,
        within_account=not played.refuted,
        reason=prediction.reason if isinstance(prediction, Unsupported) else None,
    )


def _numbers(values: Array) -> Numbers:
    return [float(value) if np.isfinite(value) else None for value in values]
