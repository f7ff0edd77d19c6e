"""What the privacy commands ask of the accountant, and how they word its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpp2 import BadInput, Experiment, Simulation
from dpp2.privacy import (
    MOST_ROUNDS,
    Calibration,
    Dpp2Releases,
    Epsilon,
    PaperEpsilon,
    Releases,
    Unsupported,
    calibrate,
    epsilon,
    per_round,
    profile,
)
from dpp2.privacy.account import Account
from dpp2.privacy.calibrate import Unknown
from orchestrator.output import errors
from store.rundir import epsilon_document

_PAPER = Dpp2Releases(dimension=10, alpha=0.1, smoothness=5.03, adjacency=0.1, u_e=1.0, u_w=1.0, decay=0.9)


@dataclass(frozen=True)
class PrivacyQuery:
    """Which mechanisms over how many rounds: from a file, from options, or from the paper's experiment."""

    mechanisms: tuple[Releases, ...]  # of all agents that can be the worst-off one
    rounds: int
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, file: Path | None, overrides: list[str] | None, rounds: int | None, **given: float | None
    ) -> PrivacyQuery:
        mechanisms: tuple[Releases, ...] = (_PAPER,)
        notes: tuple[str, ...] = ()
        asked = 500
        if file is not None or overrides:
            simulation = Simulation(Experiment.load(file, overrides or []), record=False)
            mechanisms, asked = _accounted(simulation.account), simulation.experiment.run.rounds
            notes = simulation.account.notes
        chosen = {name: value for name, value in given.items() if value is not None}
        named = tuple(_named(mechanism, chosen) for mechanism in mechanisms)
        return cls(named, asked if rounds is None else _countable(rounds), notes)

    def worst(self, published: bool) -> Releases:
        return worst_mechanism(self.mechanisms, self.rounds, published=published)

    def calibrated(self, budget: float, solve: Unknown, published: bool) -> Calibration | Unsupported:
        """The answer that keeps the budget of every agent: the most noise or the fewest rounds that any one needs."""
        needs: list[Calibration] = []
        for mechanism in self.mechanisms:
            found = calibrate(mechanism, budget, solve, rounds=self.rounds, published=published)
            if isinstance(found, Unsupported):
                return found
            needs.append(found)
        infeasible = [found for found in needs if not found.feasible]
        if infeasible:
            return max(infeasible, key=lambda found: found.epsilon.log10)
        noise = {"decay": lambda c: c.decay, "scale": lambda c: c.factor, "rounds": lambda c: -c.rounds}
        return max(needs, key=noise[solve])


def _named(mechanism: Releases, chosen: dict[str, Any]) -> Releases:
    """Options into the mechanism; what is refused is named as it was typed."""
    for name in ("smoothness", "adjacency"):
        if name in chosen and not chosen[name] > 0:
            raise BadInput(f"--{name}", chosen[name], "a number > 0")
    for name in set(chosen) - set(mechanism.__dataclass_fields__):
        raise BadInput(f"--{name.replace('_', '-')}", chosen[name], "nothing: the account of this algorithm has none")
    try:
        return replace(mechanism, **chosen)
    except BadInput as refusal:
        raise BadInput(f"--{refusal.field.replace('_', '-')}", refusal.value, refusal.accepted) from None


def _countable(rounds: int) -> int:
    if not 1 <= rounds <= MOST_ROUNDS:
        raise BadInput("--rounds", rounds, f"a whole number from 1 to {MOST_ROUNDS}")
    return rounds


def _accounted(account: Account) -> tuple[Releases, ...]:
    if account.unsupported_reason and not account.mechanisms:
        raise BadInput(
            "algorithm.name", "this one", f"an algorithm with an account ({account.unsupported_reason.reason})"
        )
    return account.distinct


def worst_mechanism(mechanisms: Sequence[Releases], rounds: int, *, published: bool = False) -> Releases:
    """The worst-off agent's. Over other rounds it may be another's: decays differ."""
    return max(mechanisms, key=lambda m: _log10(epsilon(m, rounds, published=published)))


def _log10(spent: Epsilon | Unsupported) -> float:
    return spent.log10 if isinstance(spent, Epsilon) else float("inf")


def cost_document(mechanism: Releases, rounds: int, published: bool) -> dict[str, Any]:
    spent = epsilon(mechanism, rounds, published=published)
    costs = per_round(mechanism, rounds)
    return {
        "rounds": rounds,
        **epsilon_document(spent, mechanism.paper_epsilon(rounds)),
        "per_round": None if isinstance(costs, Unsupported) else costs.values.tolist(),
    }


def account_document(account: Account, rounds: int) -> dict[str, Any]:
    curve = account.curve(rounds)
    document = epsilon_document(account.epsilon(rounds), account.paper_epsilon(rounds))
    if isinstance(curve, Unsupported):
        return {"rounds": rounds, **document, "per_round": None, "curve": None, "log10_curve": None}
    costs = per_round(worst_mechanism(account.distinct, rounds), rounds)
    assert not isinstance(costs, Unsupported)  # the curve has one
    lists = {"curve": curve.values, "log10_curve": curve.log10, "per_round": costs.values}
    return {"rounds": rounds, **document, **{name: values.tolist() for name, values in lists.items()}}


def approximate_document(question: PrivacyQuery, delta: float, published: bool) -> dict[str, Any]:
    if not 0 < delta < 1:
        raise BadInput("--delta", delta, "a number in (0, 1)")
    known: list[float] = []
    for mechanism in question.mechanisms:
        found = profile(mechanism, question.rounds, published=published)
        if isinstance(found, Unsupported):
            return {"delta": delta, "epsilon_at_delta": None, "delta_reason": found.reason}
        known.append(found.epsilon(delta))
    return {"delta": delta, "epsilon_at_delta": max(known), "delta_reason": None}


def calibration_document(found: Calibration, published: bool) -> dict[str, Any]:
    solved: dict[str, Any] = {"decay": found.decay} if found.solved == "decay" else {}
    if found.solved == "scale":
        scales = {name: getattr(found.mechanism, name) for name in found.mechanism.scales}
        solved = {**scales, "factor": found.factor}
    document = cost_document(found.mechanism, found.rounds, published)
    return {**document, "feasible": found.feasible, "reason": found.reason or document["reason"], **solved}


def spoken(spent: Epsilon | PaperEpsilon | Unsupported) -> str:
    why = spent.reason if isinstance(spent, Epsilon) and spent.value is None else None
    return f"{spent} ({why})" if why else str(spent)


def print_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        errors.print(f"note: {note}")
