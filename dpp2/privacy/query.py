"""Questions to the accountant: what do these mechanisms cost over so many rounds, and which noise keeps a budget?

A question is about all agents at once, and the answer is that of the worst-off one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from dpp2.errors import BadInput
from dpp2.experiment import Experiment
from dpp2.prepared import PreparedRun
from dpp2.privacy import (
    MOST_ROUNDS,
    Calibration,
    Dpp2Releases,
    Epsilon,
    Releases,
    Unsupported,
    calibrate,
    epsilon,
    profile,
)
from dpp2.privacy.account import Account
from dpp2.privacy.calibrate import Unknown

_PAPER = Dpp2Releases(dimension=10, alpha=0.1, smoothness=5.03, adjacency=0.1, u_e=1.0, u_w=1.0, decay=0.9, bits=20)
_PAPER_ROUNDS = 500


@dataclass(frozen=True)
class PrivacyQuery:
    """Which mechanisms over how many rounds. Without an experiment, those of the paper's."""

    mechanisms: tuple[Releases, ...] = (_PAPER,)  # of all agents that can be the worst-off one
    rounds: int = _PAPER_ROUNDS
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, experiment: Experiment) -> PrivacyQuery:
        prepared = PreparedRun.of(experiment)  # resolved: an algorithm may decide how many rounds it needs
        account, rounds = prepared.account(), prepared.experiment.run.rounds
        return cls(_mechanisms(experiment.algorithm.name, account), rounds, account.notes)

    def changed(self, rounds: int | None, parameters: Mapping[str, float]) -> PrivacyQuery:
        """The same question with other rounds and parameters; what is refused is named as it is here."""
        if rounds is not None and not 1 <= rounds <= MOST_ROUNDS:
            raise BadInput("rounds", rounds, f"a whole number from 1 to {MOST_ROUNDS:,}")
        mechanisms = tuple(_changed(mechanism, parameters) for mechanism in self.mechanisms)
        return replace(self, mechanisms=mechanisms, rounds=self.rounds if rounds is None else rounds)

    def worst(self, *, published: bool) -> Releases:
        return worst_mechanism(self.mechanisms, self.rounds, published=published)

    def epsilon_at(self, delta: float, *, published: bool) -> float | Unsupported:
        """The ε of (ε, δ)-privacy at this δ."""
        if not 0 < delta < 1:
            raise BadInput("delta", delta, "a number in (0, 1)")
        known: list[float] = []
        for mechanism in self.mechanisms:
            exact = mechanism.epsilon_at(self.rounds, delta)
            found = profile(mechanism, self.rounds, published=published) if exact is None else exact
            if isinstance(found, Unsupported):
                return found
            known.append(found if isinstance(found, float) else found.epsilon(delta))
        return max(known)

    def calibrated(self, budget: float, solve: Unknown, *, published: bool) -> Calibration | Unsupported:
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


def worst_mechanism(mechanisms: Sequence[Releases], rounds: int, *, published: bool = False) -> Releases:
    """The worst-off agent's. Over other rounds it may be another's: decays differ."""
    return max(mechanisms, key=lambda m: _log10(epsilon(m, rounds, published=published)))


def _log10(spent: Epsilon | Unsupported) -> float:
    return spent.log10 if isinstance(spent, Epsilon) else float("inf")


def _mechanisms(name: str, account: Account) -> tuple[Releases, ...]:
    if account.unsupported_reason and not account.mechanisms:
        accepted = f"an algorithm with an account ({account.unsupported_reason.reason})"
        raise BadInput("algorithm.name", name, accepted)
    return account.distinct


def _changed(mechanism: Releases, parameters: Mapping[str, float]) -> Releases:
    for name in ("smoothness", "adjacency"):
        if name in parameters and not parameters[name] > 0:
            raise BadInput(name, parameters[name], "a number > 0")
    for name in set(parameters) - {field.name for field in fields(mechanism)}:
        raise BadInput(name, parameters[name], "nothing: the account of this algorithm has none")
    return mechanism.changed(**parameters)
