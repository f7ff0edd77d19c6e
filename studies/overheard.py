"""Audited runs side by side: what each one cost, how far it came, and what the eavesdropper made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpp2 import BadInput, Experiment
from dpp2.adversary.attacks import ATTACKS
from dpp2.adversary.verdicts import PROMISED, RECOVERED, Outcome
from dpp2.store.files import read_json, read_npz
from dpp2.store.rundir import RunDirectory, read_metrics
from dpp2.studies.reproduce.curator import curated


@dataclass(frozen=True)
class Overheard:
    """One run. `gradient_error` is relative; None where no attack that listens gives an estimate."""

    run: str
    algorithm: str
    damped: bool
    epsilon: float | None
    log10_epsilon: float | None
    log2_delta: float | None
    unbounded: bool  # ε is ∞ by the formula; where there is no formula it is unknown instead
    reason: str | None  # why ε is ∞ or unknown, if it is
    uncovered: str | None  # why ε is ∞ on a real computer, if it is
    problem: str
    gap_initial: float
    gap: float
    curator: float | None  # of somebody trusted, at the same ε; None where the algorithm has no such counterpart
    attack: str | None
    gradient_error: float | None
    gradient_rounds: tuple[int, int] | None  # that it was measured in; None: the last tenth of them

    @property
    def recovered(self) -> bool | None:
        return None if self.gradient_error is None else self.gradient_error <= RECOVERED

    @property
    def spent(self) -> str:
        """ε as people read it, with a δ_dp that counts."""
        if self.uncovered:
            return f"∞\n({self._formula})"
        return self._formula

    @property
    def _formula(self) -> str:
        if self.log10_epsilon is None:
            return "∞" if self.unbounded else "unknown"
        if self.epsilon is None:
            return f"10^{self.log10_epsilon:.1f}"
        delta = 0.0 if self.log2_delta is None else 2.0**self.log2_delta
        return f"{self.epsilon:.3g}\nδ_dp {delta:.0e}" if 1e-9 < delta < 1 else f"{self.epsilon:.3g}"

    @property
    def method(self) -> str:
        return f"{self.algorithm}\ndamped" if self.damped else self.algorithm

    @property
    def outcome(self) -> str:
        """Of its gradients."""
        if self.gradient_error is None:
            return "no attack\napplies"
        if self.recovered:
            when = f"\nrounds {self.gradient_rounds[0]}–{self.gradient_rounds[1]}" if self.gradient_rounds else ""
            return f"to {self.gradient_error:.0e}{when}"
        return f"no, {100 * self.gradient_error:.0f} % off"

    def cells(self, name: str) -> tuple[str, ...]:
        """What explains a cell is in a second line of it, so that a row fits 80 columns."""
        curator = "–" if self.curator is None else f"{self.curator:.2g}"
        gaps = f"{self.gap_initial:.2g}", f"{self.gap:.2g}"
        return (name, self.method, self.spent, *gaps, curator, self.outcome)


HEAD = ("run", "method", "ε", "gap\nat x⁰", "gap\nat end", "curator", "gradients\nrecovered")


def named(rows: Sequence[Overheard]) -> Iterator[tuple[str, Overheard]]:
    """Every run with as much of the end of its path as tells it from the others."""
    paths = [Path(row.run).resolve().parts for row in rows]
    length = next((n for n in range(1, _longest(paths)) if _differ(paths, n)), 1)
    for path, row in zip(paths, rows, strict=True):
        yield str(Path(*path[-length:])), row


def _longest(paths: Sequence[Sequence[str]]) -> int:
    return max(map(len, paths), default=1)


def _differ(paths: Sequence[Sequence[str]], length: int) -> bool:
    """Whether the last parts tell apart what all parts tell apart."""
    return len({tuple(path[-length:]) for path in paths}) == len(set(paths))


def remarks(rows: Sequence[Overheard]) -> Iterator[str]:
    """What a reader of the table must know to compare its lines."""
    for name, row in named(rows):
        if row.uncovered:
            yield f"{name}: ε = ∞, because {row.uncovered}; in brackets what the formula says"
        elif row.log10_epsilon is None and row.reason:
            yield f"{name}: ε {'= ∞' if row.unbounded else 'is unknown'}, because {row.reason}"
    if len({row.problem for row in rows}) > 1:
        where = ", ".join(f"{name} on {row.problem}" for name, row in named(rows))
        yield f"not the same problem, so gaps of different lines do not compare: {where}"


def overheard(path: Path) -> Overheard:
    """Of a run that `dpp2 audit` has looked at."""
    run = RunDirectory.open(path).path
    audit, experiment = _audit(run), Experiment.load(run / "experiment.toml").resolve()
    gap, (error, attack, rounds) = read_metrics(run / "metrics.csv").gap, _closest(audit)
    return Overheard(
        run=str(run),
        algorithm=experiment.algorithm.name,
        damped=(tiers := experiment.algorithm.two_tiers()) is not None and tiers.damping > 0,
        epsilon=audit["epsilon"],
        log10_epsilon=audit["log10_epsilon"],
        log2_delta=audit["log2_delta"],
        unbounded=_unbounded(audit),
        reason=audit["reason"],
        uncovered=audit["uncovered"],
        problem=_problem(experiment),
        gap_initial=float(gap[0]),
        gap=float(gap[-1]),
        curator=_curator(run, experiment, audit["epsilon"]),
        attack=attack,
        gradient_error=error,
        gradient_rounds=rounds,
    )


def _problem(experiment: Experiment) -> str:
    """Its name, and which labels it has where there is a choice."""
    labels = experiment.problem.table().get("labels")
    return f"{experiment.problem.name} with {labels} labels" if labels else experiment.problem.name


_READ = ("attacks", "epsilon", "log10_epsilon", "log2_delta", "reason", "uncovered", "verdicts")


def _unbounded(audit: Mapping[str, Any]) -> bool:
    """JSON has no ∞: neither ∞ nor an unknown ε is a number there. The verdict tells them apart."""
    judged = {one["claim"]: one["outcome"] for one in audit["verdicts"]}
    return audit["log10_epsilon"] is None and judged.get(PROMISED) == Outcome.BROKEN


def _audit(run: Path) -> Mapping[str, Any]:
    try:
        found = read_json(run / "audit.json")
        return {key: found[key] for key in _READ}
    except (OSError, ValueError, KeyError, TypeError):
        accepted = "a run that `dpp2 audit` has looked at, all attacks and the game: audit.json is missing or damaged"
        raise BadInput("RUN", str(run), accepted) from None


def _closest(audit: Mapping[str, Any]) -> tuple[float | None, str | None, tuple[int, int] | None]:
    """The attack that comes closest to the gradients, among those that listen: at the end, or else in any stretch."""
    names = {attack.name for attack in ATTACKS if attack.listens}
    listening = [one for one in audit["attacks"] if one["name"] in names]
    late = [(one["gradient_error"], one["name"], None) for one in listening if one["gradient_error"] is not None]
    best = {one["name"]: at for one in listening if (at := one.get("closest", {}).get("gradient"))}
    ever = [(at["error"], name, (at["first"], at["last"])) for name, at in best.items() if at["error"] <= RECOVERED]
    at_the_end = min(late, default=(None, None, None))
    if at_the_end[0] is not None and at_the_end[0] <= RECOVERED:
        return at_the_end
    return min(ever, default=at_the_end)


def _curator(run: Path, experiment: Experiment, epsilon: float | None) -> float | None:
    if epsilon is None or experiment.algorithm.gradient_schedule() is None or not (run / "truth.npz").is_file():
        return None
    return curated(experiment, np.array(read_npz(run / "truth.npz").own), epsilon).gap
