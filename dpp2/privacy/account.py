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
from dpp2.privacy.grid import largest_sizes, uncovered
from dpp2.privacy.ledger import Allowance, Ledger, distinct_pairs
from dpp2.privacy.paper import PaperEpsilon
from dpp2.privacy.releases import Releases

if TYPE_CHECKING:
    from dpp2.experiment import Experiment


@dataclass(frozen=True)
class Note:
    """A sentence that belongs beside every ε of a run, and what it is about."""

    kind: Literal[
        "seed",
        "telemetry",
        "metrics",
        "smoothness",
        "solution",
        "start",
        "data",
        "divergence",
        "bits",
        "coverage",
        "algorithm",
        "plaintext",
    ]
    text: str


_ORDINARY = 1.0  # a size that values may well have
_WATCHED = Note("divergence", "when the divergence watch stopped the run is outside ε: it looks at all agents' values")


@dataclass(frozen=True, eq=False)
class Account:
    """What a run costs its agents."""

    mechanisms: tuple[Releases, ...]  # one per agent (M = ∞ where it is not known); none without any account
    unsupported_reason: Unsupported | None  # why there is no ε, if there is none
    budget: float | None
    remarks: tuple[Note, ...]  # what makes every ε void, or lies outside it
    uncovered: int | None = None  # the first round whose noise float64 does not carry; ε = ∞ from there on

    @classmethod
    def of(
        cls, experiment: Experiment, smoothness: Array, dimension: int, records: Sequence[int] | None = None
    ) -> Account:
        """`smoothness` holds M_i of every agent, as its objective knows it; a declared bound takes its place.

        `records` holds m_i of every agent, which `privacy.clip` needs. It is public: an exchange does not change it.
        """
        section, algorithm = experiment.privacy, experiment.algorithm
        bounds = _bounds(section.smoothness, smoothness)
        known, remarks = np.isfinite(bounds), tuple(_remarks(experiment))
        # A run without an ε is charged, too: a ledger that forgot it would promise a budget that is gone.
        built = _mechanisms(experiment, dimension, np.where(known, bounds, np.inf), records)
        if isinstance(built, Unsupported):
            return cls((), built, section.budget, remarks)
        enough = known.all() or not algorithm.needs_smoothness
        if enough:
            return cls(tuple(built), None, section.budget, remarks)
        missing = Unsupported("no bound M_i is known: declare privacy.smoothness")
        left = tuple(note for note in remarks if note.kind != "smoothness")  # which speaks of an M_i that is known
        return cls(tuple(built), missing, section.budget, left)

    @property
    def notes(self) -> tuple[str, ...]:
        """All remarks, as sentences."""
        return tuple(note.text for note in self.remarks)

    def notes_after(self, *, diverged: bool) -> tuple[str, ...]:
        """The same for a run that is over; `diverged`: the watch stopped it.

        What might not be covered is no longer worth a word where a round was not: ε says so itself.
        """
        notes = self.notes if self.uncovered is None else self.notes_without("coverage")
        return (*notes, *([_WATCHED.text] if diverged else []))

    def notes_without(self, kind: str) -> tuple[str, ...]:
        """The same where one of them no longer applies."""
        return tuple(note.text for note in self.remarks if note.kind != kind)

    @cached_property
    def distinct(self) -> tuple[Releases, ...]:
        """The mechanisms that can be the worst: of those that differ in M alone, the one with the largest."""
        worst: dict[Releases, Releases] = {}
        for mechanism in {id(one): one for one in self.mechanisms}.values():  # most agents share theirs
            key = replace(mechanism, smoothness=0.0)
            if key not in worst or mechanism.smoothness > worst[key].smoothness:
                worst[key] = mechanism
        return tuple(worst.values())

    def epsilon(self, rounds: int, *, published: bool = False) -> Epsilon | Unsupported:
        """ε of the worst-off agent after this many rounds."""
        if self.uncovered is not None and self.uncovered < rounds + published and not self.unsupported_reason:
            return uncovered(self.uncovered)
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
        log10, values = (np.max([getattr(curve, part) for curve in curves], axis=0) for part in ("log10", "values"))
        if self.uncovered is not None:
            log10[self.uncovered :] = values[self.uncovered :] = np.inf
        return Curve(log10, values)

    def allowance(self, ledgers: Sequence[Ledger], run_id: str, wanted: int, resumed_at: int = 0) -> Allowance:
        """How many rounds every agent's budget admits, given what it has spent on the same data before."""
        if self.budget is None:
            return Allowance(wanted, self.epsilon(wanted))
        if self.unsupported_reason:
            return Allowance(0, self.unsupported_reason, f"no budget can be kept: {self.unsupported_reason.reason}")
        found = [
            ledger.rounds_within(self.budget, mechanism, run_id, wanted, resumed_at=resumed_at)
            for ledger, mechanism in distinct_pairs(ledgers, self.mechanisms)
        ]
        return min(found, key=lambda allowance: (allowance.rounds, -_log10(allowance.total)))

    def _worst(self, spent: Sequence[Epsilon | Unsupported]) -> Epsilon | Unsupported:
        if self.unsupported_reason:
            return self.unsupported_reason
        for one in spent:
            if isinstance(one, Unsupported):
                return one
        return max((one for one in spent if isinstance(one, Epsilon)), key=_log10)


def adjacency_of(experiment: Experiment, records: int = 0) -> float:
    """δ, of a resolved experiment: as declared, or that of exchanging one of an agent's `records`."""
    section = experiment.privacy
    if not isinstance(section.adjacency, str):
        return section.adjacency
    if section.clip is not None:
        return 2 * section.clip / records
    assert section.feature_bound is not None  # checked when the experiment was resolved
    return experiment.problem.record_adjacency(section.feature_bound)


def _mechanisms(
    experiment: Experiment, dimension: int, smoothness: Array, records: Sequence[int] | None
) -> Sequence[Releases] | Unsupported:
    """What the algorithm says of every agent, with the agent's own δ."""

    def built(m: int) -> Sequence[Releases] | Unsupported:
        delta = adjacency_of(experiment, m)
        return experiment.algorithm.accounts(experiment, dimension, delta, smoothness)

    if experiment.privacy.clip is None:
        return built(0)
    if records is None:
        return Unsupported("the number of an agent's records is not known without its data")
    found = {m: built(m) for m in set(records)}
    refused = (one for one in found.values() if isinstance(one, Unsupported))
    return next(refused, None) or [found[m][agent] for agent, m in enumerate(records)]  # type: ignore[index]


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


def _on_computers(experiment: Experiment) -> Iterator[Note]:
    """What float64 makes of the noise."""
    noise, rounds = experiment.noise, experiment.run.rounds
    agents = 1 if noise.alike else experiment.network.agents  # a million agents times all rounds fit no memory
    if not noise.grid:
        yield Note("bits", "noise.grid = 0: ε is void on real computers, because the bits of doubles betray their sum")
        return
    scales = [one.min(axis=1) for one in noise.scales_in(np.arange(rounds), agents).values() if one[0].any()]
    if not scales:
        return
    sizes = np.min([largest_sizes(one, noise.grid) for one in scales], axis=0)
    if sizes[-1] < _ORDINARY:
        last = int(np.argmax(sizes < _ORDINARY))
        yield Note(
            "coverage",
            f"float64 carries the noise of round {rounds - 1} only beside values below {sizes[-1]:.2g}, that of round "
            f"{last} below {_ORDINARY:g}: a round with larger values is not covered, and ε = ∞ from there on",
        )


def _remarks(experiment: Experiment) -> Iterator[Note]:
    """Why no ε holds, and what lies outside it: said wherever an ε is printed."""
    if isinstance(experiment.run.seed, int):
        yield Note("seed", "experiment: no ε holds, because run.seed is public, so everybody can draw the noise")
    if experiment.run.telemetry == "full":
        recorded = "gradients" if experiment.algorithm.result_is_covered else "x, gradients"
        yield Note("telemetry", f"experiment: no ε holds, because {recorded} and noise are recorded (truth.npz)")
    if experiment.privacy.smoothness is None and experiment.algorithm.needs_smoothness:
        outside = "M_i is computed from the private data and is outside ε: declare privacy.smoothness"
        yield Note("smoothness", outside)
    if experiment.run.start not in ("normal", "zero"):
        yield Note("start", "run.start is a file: whatever data its x⁰ was made from are outside ε")
    if isinstance(experiment.run.seed, str) and experiment.run.telemetry != "full":
        yield Note("metrics", "the gap, metrics.csv, the plot and the checkpoint are outside ε: keep them to yourself")
    yield from _on_computers(experiment)
    if (looked := experiment.problem.looked_at()) is not None:
        yield Note("data", looked)
    yield from (Note("algorithm", text) for text in experiment.algorithm.remarks(experiment))
    if experiment.algorithm.result_is_covered:
        return
    release = ": release it with `dpp2 privacy publish`" if experiment.algorithm.publishes else ""
    yield Note("solution", f"solution.npz holds x^K as it is, which no ε covers{release}")
