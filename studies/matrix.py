"""Who learns what under which protection: every attacker against every combination of tiers, on one experiment.

The same data, starts and η are run once for each protection. TLS is judged by what it leaves: an eavesdropper has
ciphertext and nothing to work on, a curious neighbour decrypts what it receives like everybody who takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np

from dpp2 import BadInput, Experiment, run
from dpp2.adversary.attacker import Attacker
from dpp2.adversary.attacks import ATTACKS, Attack
from dpp2.adversary.audit import public_knowledge
from dpp2.adversary.findings import Finding, attempt
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth
from dpp2.adversary.verdicts import RECOVERED
from dpp2.adversary.views import ATTACKERS
from dpp2.algorithms.declared import BOTH_DAMPED, BOTH_TIERS, NO_PROTECTION, TIER_ONE, TIER_TWO
from dpp2.privacy import Unsupported
from dpp2.studies.parallel import fan_out

Note = Callable[[int, int, str], None]

TLS = "both tiers with TLS"
PROTECTIONS = (NO_PROTECTION, TIER_ONE, TIER_TWO, BOTH_TIERS, BOTH_DAMPED, TLS)
CIPHERTEXT = "ciphertext"
EARLY, LATE = WHEN = ("first tenth", "last tenth")  # of the rounds: while the noise is there, and when it may have gone
QUANTITIES_COMPARED = ("x", "gradient")


DIGITS = 1e-6  # a relative error that leaves six right digits

Key = tuple[str, str]  # what, when


class Known(IntEnum):
    """How much an attack has of a quantity."""

    NOT, RECOVERED, DIGITS = range(3)


@dataclass(frozen=True)
class Cell:
    """The least error of any attack on each quantity in each stretch of rounds, and the attack that reached it."""

    errors: Mapping[Key, float]
    attacks: Mapping[Key, str]
    ciphertext: bool = False  # nothing to work on
    ruled_out: float | None = None  # the share of adjacent objectives that the bits of one message rule out

    def number(self, key: Key) -> str:
        """The error alone."""
        if self.ciphertext:
            return CIPHERTEXT
        error = self.errors.get(key)
        if error is None or not error:
            return "–" if error is None else "0"
        return f"{error:.2g}" if error >= 1e-3 else f"{error:.0e}"  # near 10 % a second digit tells the class

    def known(self, key: Key) -> Known:
        error = self.errors.get(key, np.inf)
        return Known.DIGITS if error <= DIGITS else Known.RECOVERED if error <= RECOVERED else Known.NOT


@dataclass(frozen=True)
class Matrix:
    """All cells, by attacker and protection."""

    experiment: Experiment
    cells: Mapping[tuple[str, str], Cell]
    agent: int
    notes: tuple[str, ...]
    attackers: tuple[str, ...] = ATTACKERS
    protections: tuple[str, ...] = PROTECTIONS

    def cell(self, attacker: str, protection: str) -> Cell:
        return self.cells[attacker, protection]


@dataclass(frozen=True)
class Job:
    """One protection: a run, and every attacker on it."""

    protection: str
    setting: Experiment
    attacks: tuple[Attack, ...]
    agent: int


def compare(
    experiment: Experiment,
    attacks: Sequence[Attack] = ATTACKS,
    agent: int = 0,
    note: Note = lambda *_: None,
    executor: str | None = "processes:1",
) -> Matrix:
    """Run the experiment under every protection and let every attacker loose on it (`executor`: `studies.parallel`)."""
    jobs = [Job(protection, setting, tuple(attacks), agent) for protection, setting in protected(experiment).items()]
    note(0, len(jobs), "protections")
    done = fan_out(attacked, jobs, executor=executor, finished=lambda done, total: note(done, total, "protections"))
    cells = {
        (kind, job.protection): cell for job, (found, _) in zip(jobs, done, strict=True) for kind, cell in found.items()
    }
    for kind in ATTACKERS:
        cells[kind, TLS] = cells[kind, BOTH_TIERS] if kind == "neighbour" else Cell({}, {}, ciphertext=True)
    notes = [text for _, said in done for text in said]
    return Matrix(experiment, cells, agent, (*notes, *_bits(cells)))


def attacked(job: Job) -> tuple[dict[str, Cell], list[str]]:
    """The cells of one protection by attacker, and what is to be noted of its run."""
    result = run(job.setting)
    notes = (
        [f"{job.protection}: the run diverged ({result.divergence.explanation})"] if result.divergence else list[str]()
    )
    assert result.observation is not None  # both are recorded, since `protected` asks for it
    assert result.truth is not None
    observation, truth = Observation.of(result.observation), Truth.of(result.truth, result.experiment)
    knowledge = public_knowledge(result.experiment, observation)
    cells: dict[str, Cell] = {}
    for kind in ATTACKERS:
        view = Attacker(kind, job.agent).view(observation, knowledge, truth)
        found = [attempt(attack, view, truth) for attack in job.attacks if attack.compared or attack.excludes]
        cells[kind] = _cell([one for one in found if isinstance(one, Finding)])
    return cells, notes


def protected(experiment: Experiment) -> dict[str, Experiment]:
    """The experiment under every protection that changes what is sent; TLS changes only who can read it."""
    sections = experiment.algorithm.protections(experiment.noise)
    if isinstance(sections, Unsupported):
        raise BadInput(
            "algorithm.name", experiment.algorithm.name, f"one whose tiers can be compared ({sections.reason})"
        )
    recorded = replace(experiment, run=experiment.run.updated(telemetry="full", transport="embedded"))
    return {name: replace(recorded, algorithm=section, noise=noise) for name, (section, noise) in sections.items()}


def differences(experiment: Experiment) -> tuple[tuple[str, ...], dict[str, tuple[Any, ...]]]:
    """The keys in which the protections differ, and by protection what each of these keys is."""
    tables = {name: one.tables() for name, one in protected(experiment).items()}
    tables[TLS] = tables[BOTH_TIERS]  # TLS changes nothing of what is sent
    at = [(section, key) for section in ("algorithm", "noise") for key in tables[BOTH_TIERS][section]]
    found = {name: [table[section].get(key) for section, key in at] for name, table in tables.items()}
    differ = [n for n in range(len(at)) if any(values[n] != found[BOTH_TIERS][n] for values in found.values())]
    keys = tuple(".".join(at[n]) for n in differ)
    return keys, {name: tuple(found[name][n] for n in differ) for name in PROTECTIONS}


def _cell(findings: Sequence[Finding]) -> Cell:
    errors: dict[Key, float] = {}
    attacks: dict[Key, str] = {}
    for finding in findings:
        for what in QUANTITIES_COMPARED:
            for when, error in _medians(finding, what).items():
                if error < errors.get((what, when), np.inf):
                    errors[what, when], attacks[what, when] = error, finding.name
    shares = [finding.ruled_out["adjacent_ruled_out"] for finding in findings if finding.ruled_out]
    return Cell(errors, attacks, ruled_out=max(shares, default=None))


def _bits(cells: Mapping[tuple[str, str], Cell]) -> Iterator[str]:
    """What the last bits of a message tell the worst attacker; those where it is the same are named together."""
    worst: dict[str, float] = {}
    for (_, protection), cell in cells.items():
        if cell.ruled_out is not None:
            worst[protection] = max(cell.ruled_out, worst.get(protection, 0.0))
    for share in sorted(set(worst.values())):
        where = [protection for protection, one in worst.items() if one == share]
        tells = f"rule out an adjacent objective for {100 * share:.0f} % of the agents" if share else "rule out nothing"
        yield f"{', '.join(where)}: the bits of one message {tells}"


def _medians(finding: Finding, what: str) -> dict[str, float]:
    """Over the first and the last tenth of the rounds, where the attack claims anything there."""
    if what not in finding.errors:
        return {}
    rounds = finding.errors[what].rounds
    tenth = max(len(rounds) // 10, 1)
    claimed = {EARLY: rounds[:tenth], LATE: rounds[-tenth:]}
    return {when: float(np.nanmedian(part)) for when, part in claimed.items() if np.isfinite(part).any()}
