"""What the privacy commands print with `--json`, and how they word an ε."""

from __future__ import annotations

from typing import TypedDict

from dpp2.privacy import Calibration, Epsilon, PaperEpsilon, Releases, Unsupported, epsilon, per_round
from dpp2.privacy.account import Account
from dpp2.privacy.query import PrivacyQuery, worst_mechanism
from dpp2.store.documents import EpsilonDocument
from dpp2.store.rundir import epsilon_document


class CostDocument(EpsilonDocument):
    rounds: int
    per_round: list[float] | None


class AccountDocument(CostDocument):
    curve: list[float] | None
    log10_curve: list[float] | None


class ApproximateDocument(TypedDict):
    delta: float
    epsilon_at_delta: float | None
    delta_reason: str | None


def cost_document(mechanism: Releases, rounds: int, *, published: bool) -> CostDocument:
    spent, costs = epsilon(mechanism, rounds, published=published), per_round(mechanism, rounds)
    listed = None if isinstance(costs, Unsupported) else costs.values.tolist()
    return {"rounds": rounds, **epsilon_document(spent, mechanism.paper_epsilon(rounds)), "per_round": listed}


def account_document(account: Account, rounds: int) -> AccountDocument:
    curve = account.curve(rounds)
    spent = epsilon_document(account.epsilon(rounds), account.paper_epsilon(rounds))
    if isinstance(curve, Unsupported):
        return {"rounds": rounds, **spent, "per_round": None, "curve": None, "log10_curve": None}
    costs = per_round(worst_mechanism(account.distinct, rounds), rounds)
    assert not isinstance(costs, Unsupported)  # the curve has one
    return {
        "rounds": rounds,
        **spent,
        "curve": curve.values.tolist(),
        "log10_curve": curve.log10.tolist(),
        "per_round": costs.values.tolist(),
    }


def approximate_document(query: PrivacyQuery, delta: float, *, published: bool) -> ApproximateDocument:
    found = query.epsilon_at(delta, published=published)
    if isinstance(found, Unsupported):
        return {"delta": delta, "epsilon_at_delta": None, "delta_reason": found.reason}
    return {"delta": delta, "epsilon_at_delta": found, "delta_reason": None}


def calibration_document(found: Calibration, *, published: bool) -> dict[str, object]:
    """What it costs, whether a budget is kept by it, and the numbers that were solved for."""
    solved: dict[str, object] = {"decay": found.decay} if found.solved == "decay" else {}
    if found.solved == "scale":
        scales = {name: getattr(found.mechanism, name) for name in found.mechanism.scales}
        solved = {**scales, "factor": found.factor}
    document = cost_document(found.mechanism, found.rounds, published=published)
    return {**document, "feasible": found.feasible, "reason": found.reason or document["reason"], **solved}


def spoken(spent: Epsilon | PaperEpsilon | Unsupported) -> str:
    """An ε as people read it, with the reason why it is infinite."""
    at = f" at δ_dp = {spent.tail}" if isinstance(spent, Epsilon) and spent.tail_counts else ""
    at += ", no promise" if at and isinstance(spent, Epsilon) and spent.log2_delta >= 0 else ""
    why = spent.reason if isinstance(spent, Epsilon) and spent.value is None else None
    return f"{spent}{at} ({why})" if why else f"{spent}{at}"
