"""What the privacy commands ask of the accountant, and how they word its answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpp2 import BadInput, Experiment, Simulation
from dpp2.privacy import (
    Calibration,
    Epsilon,
    Mechanism,
    PaperEpsilon,
    Unsupported,
    epsilon,
    per_round,
    profile,
    theorem_3,
)
from dpp2.privacy.account import Account
from orchestrator.output import errors
from orchestrator.rundir import epsilon_document

_PAPER = Mechanism(dimension=10, alpha=0.1, smoothness=5.03, adjacency=0.1, u_e=1.0, u_w=1.0, decay=0.9)


@dataclass(frozen=True)
class Question:
    """Which mechanism over how many rounds: from a file, from options, or from the paper's experiment."""

    mechanism: Mechanism
    rounds: int
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, file: Path | None, overrides: list[str] | None, rounds: int | None, **given: float | None) -> Question:
        mechanism, asked = _PAPER, 500
        notes: tuple[str, ...] = ()
        if file is not None or overrides:
            simulation = Simulation(Experiment.load(file, overrides or []), record=False)
            mechanism, asked = worst_mechanism(simulation.account), simulation.experiment.run.rounds
            notes = simulation.account.notes
        chosen = {name: value for name, value in given.items() if value is not None}
        return cls(_named(mechanism, chosen), asked if rounds is None else _at_least_one(rounds), notes)


def _named(mechanism: Mechanism, chosen: dict[str, Any]) -> Mechanism:
    """Options into the mechanism; what is refused is named as it was typed."""
    for name in ("smoothness", "adjacency"):
        if name in chosen and not chosen[name] > 0:
            raise BadInput(f"--{name}", chosen[name], "a number > 0")
    try:
        return replace(mechanism, **chosen)
    except BadInput as refusal:
        raise BadInput(f"--{refusal.field.replace('_', '-')}", refusal.value, refusal.accepted) from None


def _at_least_one(rounds: int) -> int:
    if rounds < 1:
        raise BadInput("--rounds", rounds, "a whole number ≥ 1")
    return rounds


def worst_mechanism(account: Account) -> Mechanism:
    if account.outside:
        raise BadInput("algorithm.name", "this one", f"an algorithm with an account ({account.outside.reason})")
    return max(account.distinct, key=lambda m: _log10(epsilon(m, 1_000)))


def _log10(spent: Epsilon | Unsupported) -> float:
    return spent.log10 if isinstance(spent, Epsilon) else float("inf")


def cost_document(mechanism: Mechanism, rounds: int, published: bool) -> dict[str, Any]:
    spent = epsilon(mechanism, rounds, published=published)
    costs = per_round(mechanism, rounds)
    return {
        "rounds": rounds,
        **epsilon_document(spent, theorem_3(mechanism, rounds)),
        "per_round": None if isinstance(costs, Unsupported) else costs.values.tolist(),
    }


def account_document(account: Account, rounds: int) -> dict[str, Any]:
    curve = account.curve(rounds)
    document = epsilon_document(account.epsilon(rounds), account.paper_epsilon(rounds))
    if isinstance(curve, Unsupported):
        return {"rounds": rounds, **document, "per_round": None, "curve": None, "log10_curve": None}
    costs = per_round(worst_mechanism(account), rounds)
    assert not isinstance(costs, Unsupported)  # the curve has one
    lists = {"curve": curve.values, "log10_curve": curve.log10, "per_round": costs.values}
    return {"rounds": rounds, **document, **{name: values.tolist() for name, values in lists.items()}}


def approximate_document(question: Question, delta: float, published: bool) -> dict[str, Any]:
    if not 0 < delta < 1:
        raise BadInput("--delta", delta, "a number in (0, 1)")
    found = profile(question.mechanism, question.rounds, published=published)
    known = None if isinstance(found, Unsupported) else found.epsilon(delta)
    return {"delta": delta, "epsilon_at_delta": known, "delta_reason": str(found) if known is None else None}


def calibration_document(found: Calibration, published: bool) -> dict[str, Any]:
    solved: dict[str, Any] = {"decay": found.mechanism.decay} if found.solved == "decay" else {}
    if found.solved == "scale":
        solved = {"u_e": found.mechanism.u_e, "u_w": found.mechanism.u_w}
    document = cost_document(found.mechanism, found.rounds, published)
    return {"feasible": found.feasible, "reason": found.reason, **solved, **document}


def spoken(spent: Epsilon | PaperEpsilon | Unsupported) -> str:
    why = spent.reason if isinstance(spent, Epsilon) and spent.value is None else None
    return f"{spent} ({why})" if why else str(spent)


def print_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        errors.print(f"note: {note}")
