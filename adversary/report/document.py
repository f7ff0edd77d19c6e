"""audit.json: plain values only, so that a program can read what a person reads in report.html."""

from __future__ import annotations

from typing import Any

import numpy as np

from adversary.audit import AuditReport
from adversary.findings import QUANTITIES, Finding
from adversary.game_result import GameResult, Prediction
from adversary.report import sentences
from dpp2.arrays import Array
from dpp2.privacy import Epsilon, PaperEpsilon, Unsupported


def document(report: AuditReport) -> dict[str, Any]:
    """Errors are medians over the last tenth of the rounds; null where there is none."""
    cost, played = report.cost, report.game
    return {
        "run": report.run,
        "attacker": report.attacker.kind,
        "observation": report.interception.source,
        "summary": sentences.summary(report),
        "attacks": [_finding(one) for one in report.findings],
        "not_applicable": [{"name": one.name, "reason": one.reason} for one in report.skipped],
        "unscored": report.unscored,
        "leaks": list(report.interception.leaks),
        **_epsilon("", cost.epsilon),
        **_epsilon("paper_", cost.paper_epsilon),
        "epsilon_lower_bound": played.bound.value if isinstance(played, GameResult) else None,
        "confidence": played.bound.confidence if isinstance(played, GameResult) else None,
        "game": _game(played),
        "verdicts": [{"claim": one.claim, "held": one.held, "evidence": one.evidence} for one in report.verdicts],
        "notes": notes(report),
    }


def notes(report: AuditReport) -> list[str]:
    """What the tap missed, and what makes every ε void."""
    observation = report.interception.observation
    return [*(observation.gaps + observation.notes if observation else ()), *report.cost.notes]


def _finding(finding: Finding) -> dict[str, Any]:
    errors = finding.errors
    return {
        "name": finding.name,
        "attacker": finding.attacker,
        **{f"{what}_error": finding.error(what) for what in QUANTITIES},
        "rounds": {what: _numbers(errors[what].rounds) if what in errors else None for what in QUANTITIES},
        "since": {what: {f"{bound:g}": k for bound, k in one.since.items()} for what, one in errors.items()},
        "facts": dict(finding.estimate.parameters),
        "fact_errors": dict(finding.parameters),
        "data_errors": dict(finding.data),
    }


def _epsilon(prefix: str, spent: Epsilon | PaperEpsilon | Unsupported) -> dict[str, Any]:
    if isinstance(spent, Unsupported):
        return {f"{prefix}epsilon": None, f"{prefix}log10_epsilon": None, f"{prefix}reason": spent.reason}
    reason = spent.reason if isinstance(spent, Epsilon) else None
    return {f"{prefix}epsilon": spent.value, f"{prefix}log10_epsilon": spent.log10, f"{prefix}reason": reason}


def _game(played: GameResult | Unsupported | None) -> dict[str, Any] | None:
    if not isinstance(played, GameResult):
        return None if played is None else {"reason": played.reason}
    prediction, curve = played.prediction, played.trade_off
    agreed = prediction if isinstance(prediction, Prediction) else None
    return {
        "rounds": played.game.rounds,
        "trials": played.trials,
        "epsilon": played.game.epsilon,
        "bounds": [{"rounds": k, "epsilon": one.value} for k, one in zip(played.stops, played.bounds, strict=True)],
        "false_positive": _numbers(curve.false_positive),
        "false_negative": _numbers(curve.false_negative),
        "agrees_with_prediction": agreed.agrees if agreed else None,
        "within_account": agreed.keeps if agreed else None,
        "reason": prediction.reason if isinstance(prediction, Unsupported) else None,
    }


def _numbers(values: Array) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
