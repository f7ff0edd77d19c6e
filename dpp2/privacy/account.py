"""The account of one run: one mechanism per agent, what the worst-off agent spends, and what no ε covers.

The worst agent decides: ε is promised to everybody. Agents that differ in their smoothness alone are represented by
the least smooth one, since ε grows with M.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.privacy.accountant import cumulative, epsilon
from dpp2.privacy.epsilon_value import Curve, Epsilon, Unsupported
from dpp2.privacy.ledger import Allowance, Ledger
from dpp2.privacy.paper import PaperEpsilon
from dpp2.privacy.releases import Releases

if TYPE_CHECKING:
    from dpp2.experiment import Experiment


@dataclass(frozen=True)
class Note:
    """A sentence that belongs beside every ε of a run, and what it is about."""

    kind: Literal["seed", "telemetry", "smoothness", "solution", "start", "data", "divergence"]
    text: str


_WATCHED = Note(
    "divergence", "the divergence watch stopped the run: it looks at all agents' values, so when it did is outside ε"
)


@dataclass(frozen=True, eq=False)
class Account:
    """What a run costs its agents."""

    mechanisms: tuple[Releases, ...]  # one per agent (M = ∞ where it is not known); none without any account
    unsupported_reason: Unsupported | None  # why there is no ε, if there is none
    budget: float | None
    remarks: tuple[Note, ...]  # what makes every ε void, or lies outside it

    @classmethod
    def of(cls, experiment: Experiment, smoothness: Array, dimension: int) -> Account:
        """`smoothness` holds M_i of every agent, as its objective knows it; a declared bound takes its place."""
        section, algorithm = experiment.privacy, experiment.algorithm
        bounds = _bounds(section.smoothness, smoothness)
        known, remarks = np.isfinite(bounds), tuple(_remarks(experiment))
        # A run without an ε is charged, too: a ledger that forgot it would promise a budget that is gone.
        built = algorithm.mechanisms(
            experiment.noise, dimension, adjacency_of(experiment), np.where(known, bounds, np.inf)
        )
        if isinstance(built, Unsupported):
            return cls((), built, section.budget, remarks)
        outside = None if known.all() else Unsupported("no bound M_i is known: declare privacy.smoothness")
        return cls(tuple(built), outside, section.budget, remarks)

    @property
    def notes(self) -> tuple[str, ...]:
        """All remarks, as sentences."""
        return tuple(note.text for note in self.remarks)

    def notes_after(self, *, diverged: bool) -> tuple[str, ...]:
        """The same for a run that is over; `diverged`: the watch stopped it."""
        return (*self.notes, *([_WATCHED.text] if diverged else []))

    def notes_without(self, kind: str) -> tuple[str, ...]:
        """The same where one of them no longer applies."""
        return tuple(note.text for note in self.remarks if note.kind != kind)

    @cached_property
    def distinct(self) -> tuple[Releases, ...]:
        """The mechanisms that can be the worst: of those that differ in M alone, the one with the largest."""
        worst: dict[Releases, Releases] = {}
        for mechanism in self.mechanisms:
            key = replace(mechanism, smoothness=0.0)
            if key not in worst or mechanism.smoothness > worst[key].smoothness:
                worst[key] = mechanism
        return tuple(worst.values())

    def epsilon(self, rounds: int, *, published: bool = False) -> Epsilon | Unsupported:
        """ε of the worst-off agent after this many rounds."""
        return self._worst([epsilon(m, rounds, published=published) for m in self.distinct])

    def paper_epsilon(self, rounds: int) -> PaperEpsilon | Unsupported:
        """What the paper's Theorem 3 says of the same agent: no guarantee, see `dpp2.privacy.paper`."""
        if self.unsupported_reason:
            return self.unsupported_reason
        if rounds == 0:
            return Unsupported("the paper speaks of one round at least")
        worst = max(self.distinct, key=lambda m: _log10(epsilon(m, rounds)))
        return worst.paper_epsilon(rounds, network_smoothness=max(m.smoothness for m in self.distinct))

    def curve(self, rounds: int) -> Curve | Unsupported:
        """ε(1) … ε(K) of the worst-off agent of each round."""
        curves: list[Curve] = []
        for mechanism in self.distinct:
            curve = cumulative(mechanism, rounds)
            if isinstance(curve, Unsupported):
                return curve
            curves.append(curve)
        if self.unsupported_reason:
            return self.unsupported_reason
        return Curve(
            np.max([curve.log10 for curve in curves], axis=0), np.max([curve.values for curve in curves], axis=0)
        )

    def allowance(self, ledgers: Sequence[Ledger], run_id: str, wanted: int, resumed_at: int = 0) -> Allowance:
        """How many rounds every agent's budget admits, given what it has spent on the same data before."""
        if self.budget is None:
            return Allowance(wanted, self.epsilon(wanted))
        if self.unsupported_reason:
            return Allowance(0, self.unsupported_reason, f"no budget can be kept: {self.unsupported_reason.reason}")
        pairs = zip(ledgers, self.mechanisms, strict=True)
        found = [
            ledger.rounds_within(self.budget, mechanism, run_id, wanted, resumed_at=resumed_at)
            for ledger, mechanism in pairs
        ]
        return min(found, key=lambda allowance: (allowance.rounds, -_log10(allowance.total)))

    def _worst(self, spent: Sequence[Epsilon | Unsupported]) -> Epsilon | Unsupported:
        if self.unsupported_reason:
            return self.unsupported_reason
        for one in spent:
            if isinstance(one, Unsupported):
                return one
        return max((one for one in spent if isinstance(one, Epsilon)), key=_log10)


def adjacency_of(experiment: Experiment) -> float:
    """δ, of a resolved experiment: as declared, or that of exchanging one record."""
    section = experiment.privacy
    if not isinstance(section.adjacency, str):
        return section.adjacency
    assert section.feature_bound is not None  # checked when the experiment was resolved
    return experiment.problem.record_adjacency(section.feature_bound)


def _log10(spent: Epsilon | Unsupported) -> float:
    return spent.log10 if isinstance(spent, Epsilon) else float("inf")


def _bounds(declared: float | None, smoothness: Array) -> Array:
    """A declared public bound stands for every M_i, and data that break it are refused."""
    if declared is None:
        return smoothness
    above = np.flatnonzero(smoothness > declared * (1 + 1e-12))
    if len(above):
        worst = int(np.nanargmax(smoothness))
        raise BadInput(
            "privacy.smoothness",
            declared,
            f"a bound that the data keep, but agent {worst} has M = {smoothness[worst]:.6g}",
        )
    return np.full_like(smoothness, declared)


def _remarks(experiment: Experiment) -> Iterator[Note]:
    """Why no ε holds, and what lies outside it: said wherever an ε is printed."""
    if isinstance(experiment.run.seed, int):
        yield Note("seed", "experiment: no ε holds, because run.seed is public and with it the noise")
    if experiment.run.telemetry == "full":
        yield Note("telemetry", "experiment: no ε holds, because x, gradients and noise are recorded (truth.npz)")
    if experiment.privacy.smoothness is None:
        outside = "M_i is computed from the private data and is outside ε: declare privacy.smoothness"
        yield Note("smoothness", outside)
    if experiment.run.start not in ("normal", "zero"):
        yield Note("start", "run.start is a file: whatever data its x⁰ was made from are outside ε")
    if (looked := experiment.problem.looked_at()) is not None:
        yield Note("data", looked)
    release = ": release it with `dpp2 privacy publish`" if experiment.algorithm.publishes else ""
    yield Note("solution", f"solution.npz holds x^K as it is, which no ε covers{release}")
