"""`audit`: one run, one attacker, every attack that applies, the account and the game, in one report.

Everything an attack gets passes through a view. The truth is opened by the scorer alone; the objectives are built again
for the account (M_i), never for an attack.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpp2 import BadInput, Experiment
from dpp2.adversary.attacker import Attacker
from dpp2.adversary.attacks import ATTACKS, Attack
from dpp2.adversary.findings import Finding, Skipped, attempt, untried
from dpp2.adversary.game_result import GameResult, game_result
from dpp2.adversary.knowledge import Knowledge
from dpp2.adversary.observation import Observation
from dpp2.adversary.scoring import Truth
from dpp2.adversary.verdicts import Evidence, Verdict, judge
from dpp2.adversary.views import View
from dpp2.arrays import Array
from dpp2.prepared import PreparedRun
from dpp2.privacy import Curve, Epsilon, PaperEpsilon, Unsupported
from dpp2.privacy.account import Account
from dpp2.privacy.grid import uncovered_round
from dpp2.stability import Divergence
from dpp2.store.files import read_json
from dpp2.store.kept import OBSERVATION, TRUTH, check_window, has_records, records_path
from dpp2.store.results import check_records, read_divergence
from dpp2.store.rundir import read_metrics

Note = Callable[[str], None]

_PAPER_POINTS = 200
_COPIES = 7.0  # so many times the size of the records an audit needs (measured): attacks make arrays of their own


@dataclass(frozen=True, eq=False)
class Interception:
    """What a run directory offers to an eavesdropper, and where it comes from."""

    observation: Observation | None  # None: ciphertext
    source: str
    leaks: tuple[str, ...] = ()  # what ciphertext still gives away


@dataclass(frozen=True, eq=False)
class PrivacyCost:
    """ε as the exact account and the paper have it, over the rounds that were run."""

    rounds: int
    epsilon: Epsilon | Unsupported
    paper_epsilon: PaperEpsilon | Unsupported
    curve: Curve | Unsupported
    paper_rounds: Array
    paper_log10: Array
    notes: tuple[str, ...]
    uncovered: str | None = None  # why the run itself found ε = ∞, whatever the formula says

    @property
    def first_uncovered(self) -> int | None:
        """The round from which on float64 did not carry the noise."""
        return uncovered_round(self.uncovered)


@dataclass(frozen=True, eq=False)
class AuditReport:
    """Everything that audit.json, the table and report.html are made of."""

    run: str
    asked: str  # the attacker, and what was left out
    experiment: Experiment
    attacker: Attacker
    interception: Interception
    view: View | None  # None: nothing to work on
    truth: Truth | None
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    cost: PrivacyCost
    game: GameResult | Unsupported | None  # None: not asked for
    noise: Mapping[str, Array]  # the median agent's scale u·r^k per round, by the name of the noise
    verdicts: tuple[Verdict, ...]
    made: str = ""  # by which version the run was resolved, and when
    gaps: Array | None = None  # at x^0 … x^K, if the run kept its metrics
    divergence: Divergence | None = None  # if the run was stopped for it

    @property
    def unscored(self) -> str | None:
        """Why there are no errors, if there are none."""
        if self.view is None:
            return "nothing to work on: the channels carried ciphertext"
        return _no_truth(self.experiment) if self.truth is None else None

    @property
    def noise_left(self) -> float | None:
        """The largest share of its first scale that any noise has in the last round; None where there never was any."""
        firsts = _scales(self.experiment, np.zeros(1, dtype=np.int_))
        shares = [float(self.noise[name][-1] / first[0]) for name, first in firsts.items() if first[0] > 0]
        return max(shares, default=None)

    @property
    def last(self) -> tuple[int, int]:
        """The last tenth of the rounds that were overheard, which medians are taken over."""
        if self.view is None:
            return 0, 0
        first, rounds = self.view.observation.first, self.view.observation.shape[0]
        return first + rounds - max(rounds // 10, 1), first + rounds - 1


def audit(
    run: Path,
    attacks: Sequence[Attack] = ATTACKS,
    attacker: Attacker | None = None,
    *,
    game: bool = True,
    last: int | None = None,
    note: Note = lambda _: None,
) -> AuditReport:
    """Attack a finished run and judge the paper's claims by it. `note` hears what is being done.

    With `last` the attacker has heard the last rounds only, so many of them; no more is read of large records.
    """
    attacker = attacker or Attacker()
    experiment = Experiment.load(run / "experiment.toml").resolve()
    attacker.check(experiment.network.agents)
    check_records(run, last)
    check_window(run, last, _COPIES, " (dpp2 audit --last ROUNDS reads no more than these)")
    heard = intercepted(run, attacker, last)
    truth = Truth.load(run, last) if has_records(run, TRUTH) else None
    _check_truth(run, truth, heard.observation)
    view, (rounds, why_infinite) = None, _told(run, heard.observation)
    if heard.observation is not None:
        view = attacker.view(heard.observation, public_knowledge(experiment, heard.observation), truth)
    done = _attempts(attacks, view, truth, note)
    note("account")
    account = _account(experiment)
    report = AuditReport(
        run=str(run),
        asked=attacker.asked(attacks, game=game, last=last),
        experiment=experiment,
        attacker=attacker,
        interception=heard,
        view=view,
        truth=truth,
        findings=tuple(one for one in done if isinstance(one, Finding)),
        skipped=tuple(one for one in done if isinstance(one, Skipped)),
        cost=_cost(account, rounds, why_infinite),
        game=_game(account, experiment, rounds, note) if game else None,
        noise=_noise(experiment, view.observation if view else None, rounds),
        verdicts=(),
        made=_made(run),
        gaps=_gaps(run),
        divergence=read_divergence(run),
    )
    return replace(report, verdicts=judge(_evidence(report)))


def _no_truth(experiment: Experiment) -> str:
    settings = experiment.run
    off = [f"run.{name} = none" for name in ("telemetry", "records") if getattr(settings, name) == "none"]
    why = (
        f"the run kept no truth.npz ({off[0]})"
        if off
        else "the truth that the run kept is not in its directory any more"
    )
    return f"errors cannot be measured: {why}"


def _made(run: Path) -> str:
    """From the first line of experiment.toml, and its date."""
    file = run / "experiment.toml"
    with file.open(encoding="utf-8") as lines:
        first = lines.readline().removeprefix("#").strip()
    day = datetime.fromtimestamp(file.stat().st_mtime, tz=UTC).strftime("%Y-%m-%d, %H:%M UTC")
    return f"{first.rstrip('.')}, on {day}" if first.startswith("Resolved by") else f"Run on {day}"


def _gaps(run: Path) -> Array | None:
    try:
        return read_metrics(run / "metrics.csv").gap
    except (OSError, ValueError, AttributeError):  # an audit does not rest on it
        return None


def _attempts(attacks: Sequence[Attack], view: View | None, truth: Truth | None, note: Note) -> list[Finding | Skipped]:
    done: list[Finding | Skipped] = []
    if view is not None:
        for attack in attacks:
            note(attack.name)
            done.append(attempt(attack, view, truth))
    return done


def _game(account: Account | Unsupported, experiment: Experiment, rounds: int, note: Note) -> GameResult | Unsupported:
    note("distinguishing game")
    return account if isinstance(account, Unsupported) else game_result(account, experiment, rounds)


def public_knowledge(experiment: Experiment, observation: Observation) -> Knowledge:
    """What anybody knows of an experiment. That tier one is off is no secret, and η = 1 with it."""
    knowledge = Knowledge.of(experiment)
    if experiment.algorithm.tier_one is not False:
        return knowledge
    return replace(knowledge, eta=np.ones(observation.first + observation.shape[0]))


def _how_to_finish(run: Path) -> str:
    """For a run that was interrupted."""
    begun = (run / "experiment.toml").is_file()
    return f"; `dpp2 run --resume {shlex.quote(str(run))}` finishes one that was interrupted" if begun else ""


def intercepted(run: Path, attacker: Attacker, last: int | None = None) -> Interception:
    """A tap's record before the run's own: what was decoded from real bytes is what an eavesdropper has.

    A participant needs no tap: it receives its messages whatever the wire shows of them.
    """
    tapped, ciphertext = run / "tap" / "observation.npz", run / "tap" / "ciphertext.json"
    if attacker.kind != "neighbour" and tapped.is_file():
        return Interception(
            Observation.load(tapped).last(last), "tap/observation.npz, decoded from the bytes on the wire"
        )
    if attacker.kind != "neighbour" and ciphertext.is_file():
        return Interception(None, "tap/ciphertext.json: the wire carried ciphertext", _leaks(ciphertext))
    if not has_records(run, OBSERVATION):
        raise BadInput("RUN", str(run), f"a finished run with {OBSERVATION}.npz in it{_how_to_finish(run)}")
    own = records_path(run, OBSERVATION).name
    return Interception(Observation.of_run(run, last), f"{own}, as the run recorded what it sent")


def _check_truth(run: Path, truth: Truth | None, observation: Observation | None) -> None:
    """Refuse the truth of another run. A tap may have missed rounds, the truth has them all."""
    if truth is None or observation is None:
        return
    rounds, *shape = observation.shape
    if list(truth.x.shape[1:]) != shape or truth.first + len(truth.x) < observation.first + rounds:
        seen, true = ("×".join(map(str, size)) for size in (observation.shape, truth.x.shape))
        accepted = f"one run's files: the observation has rounds×agents×dimension {seen}, truth.npz {true}"
        raise BadInput("RUN", str(run), accepted)


def _leaks(path: Path) -> tuple[str, ...]:
    """What ciphertext gives away, with the numbers that the tap measured."""
    try:
        seen: Any = read_json(path)
        leaks, directions, rounds = seen["still_leaks"], seen["directions"], seen["rounds_estimate"]
        sent = sum(int(direction["bytes"]) for direction in directions)
        measured = f"measured: {len(directions)} directions, {sent:,} bytes of records, about {rounds} rounds"
        return (*map(str, leaks), measured)
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput("RUN", str(path), "a ciphertext.json as `dpp2 tap decode` writes it") from None


def _told(run: Path, observation: Observation | None) -> tuple[int, str | None]:
    """Rounds that were run (a tap may have missed some, and ε counts them all), and why the run has no finite ε."""
    path = run / "privacy.json"
    if path.is_file():
        try:
            said = read_json(path)
            return int(said["rounds"]), said.get("reason")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise BadInput("RUN", str(path), "an intact privacy.json") from None
    if observation is None:
        raise BadInput("RUN", str(run), "a finished run with privacy.json in it")
    return observation.first + observation.shape[0], None


def _account(experiment: Experiment) -> Account | Unsupported:
    """The account needs every M_i, and so the objectives; data that have gone since leave no ε."""
    try:
        return PreparedRun.of(experiment).account()
    except BadInput as refused:
        return Unsupported(f"the objectives cannot be built again ({refused})")


def _cost(account: Account | Unsupported, rounds: int, why_infinite: str | None) -> PrivacyCost:
    if isinstance(account, Unsupported):
        return PrivacyCost(rounds, account, account, account, np.empty(0), np.empty(0), ())
    counts = np.unique(np.geomspace(1, max(rounds, 1), _PAPER_POINTS).astype(int))
    claims = [account.paper_epsilon(int(count)) for count in counts]
    paper = [claim.log10 if isinstance(claim, PaperEpsilon) else np.nan for claim in claims]
    spent, claimed, curve = account.epsilon(rounds), account.paper_epsilon(rounds), account.curve(max(rounds, 1))
    uncovered = why_infinite if isinstance(spent, Epsilon) and np.isfinite(spent.log10) else None
    return PrivacyCost(rounds, spent, claimed, curve, counts.astype(float), np.array(paper), account.notes, uncovered)


def _noise(experiment: Experiment, observation: Observation | None, rounds: int) -> dict[str, Array]:
    """Scales u·r^k over the rounds that were overheard, of the median agent."""
    first, count = (observation.first, observation.shape[0]) if observation else (0, rounds)
    return _scales(experiment, np.arange(first, first + count))


def _scales(experiment: Experiment, k: NDArray[np.int_]) -> dict[str, Array]:
    scales = experiment.noise.scales_in(k, experiment.network.agents)
    return {name: np.median(scale, axis=1) for name, scale in scales.items()}


def _evidence(report: AuditReport) -> Evidence:
    return Evidence(
        findings=report.findings,
        untried=untried(report.findings, report.view) if report.view else (),
        attacker=report.attacker.words,
        last=report.last,
        unscored=report.unscored,
        tier_one=report.experiment.algorithm.tier_one,
        knows_eta=report.attacker.kind == "neighbour",
        noise_left=report.noise_left,
        epsilon=report.cost.epsilon,
        account=report.experiment.algorithm.account_in_words,
        paper_epsilon=report.cost.paper_epsilon,
        game=report.game,
        uncovered=report.cost.uncovered,
        void=[*_void(report.experiment), *([report.cost.uncovered] if report.cost.uncovered else [])],
    )


def _void(experiment: Experiment) -> list[str]:
    """What makes every ε void, as the account's notes say too."""
    reasons = {
        "its seed is public": isinstance(experiment.run.seed, int),
        "its x, gradients and noise were recorded": experiment.run.telemetry == "full",
        "its noise is in doubles, whose bits betray the sum": not experiment.noise.grid,
    }
    return [reason for reason, applies in reasons.items() if applies]
