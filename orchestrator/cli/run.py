"""`dpp2 run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dpp2 import BadInput, Result
from dpp2.orchestrator import runner
from dpp2.orchestrator.cli.app import Json, OptionalFile, Overrides, app, check_counts, examples, load_experiment
from dpp2.orchestrator.cli.watch import Watch, page_opener
from dpp2.orchestrator.output import console, errors, print_json, print_notes, progress_bar
from dpp2.orchestrator.runner import ClusterShape, FinishedRun, NoRoundLeft, Progress
from dpp2.privacy import Epsilon, Unsupported
from dpp2.store.rundir import privacy_document
from dpp2.theory import Condition

_LONG_SECONDS = 5.0  # beside the rounds: then it is said what took so long

Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The run directory itself (default: runs/NAME-1, -2, …).")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the run in an existing directory.")]
Resume = Annotated[
    Path | None, typer.Option(metavar="RUN", help="Go on with this run; --set run.rounds=K makes it longer.")
]
Transport = Annotated[str | None, typer.Option(help='"embedded", or "grpc": every agent a service, on this machine.')]
Processes = Annotated[int | None, typer.Option(metavar="P", help="With grpc: node processes (default: one per agent).")]
Partition = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="With grpc: who shares a process: metis (extra [partition]) or blocks."),
]
Strict = Annotated[bool, typer.Option("--strict", help="With grpc: one round at a time.")]
Tls = Annotated[bool, typer.Option("--tls", help="With grpc: a certificate for every node.")]
Tap = Annotated[
    str | None, typer.Option(metavar="KIND", help="With grpc: record the wire by a relay on every link, or sniff.")
]
NoTruth = Annotated[
    bool, typer.Option("--no-truth", help="Do not record x, gradients and noise; no audit can be scored then.")
]


@app.command(
    epilog=examples(
        "dpp2 run",
        "dpp2 run damped --out runs/damped",
        "dpp2 run --set network.topology=ring --set noise.decay=0.95 --json",
        "dpp2 run --transport grpc --processes 5 --tap relay --watch",
        "dpp2 run --resume runs/paper-1 --set run.rounds=1000",
    )
)
def run(
    file: OptionalFile = None,
    overrides: Overrides = None,
    out: Out = None,
    force: Force = False,
    resume: Resume = None,
    transport: Transport = None,
    processes: Processes = None,
    partition: Partition = None,
    strict: Strict = False,
    tls: Tls = False,
    tap: Tap = None,
    json: Json = False,
    no_truth: NoTruth = False,
    watch: Watch = False,
) -> None:
    """Run an experiment and keep its records."""
    changes = _changes(overrides, transport, no_truth)
    check_counts(("--processes", processes))
    cluster = ClusterShape(processes, strict, tls, _tap(tap), partition)
    begun = page_opener() if watch else lambda path: None
    if resume is not None:
        _check_alone(resume, file is not None or out is not None or force or no_truth)
        finished = _watched(lambda shown: runner.resume(resume, changes, shown, cluster, begun))
    else:
        experiment, stem = load_experiment(file, changes), file.stem if file else "run" if changes else "paper"
        finished = _watched(
            lambda shown: runner.start(
                experiment, out, stem=stem, force=force, progress=shown, cluster=cluster, begun=begun
            )
        )
    spent_up = finished.result.privacy.stopped if not finished.went_on else None
    if json:
        print_json(summary(finished))
    elif not spent_up:
        _print_summary(finished)
    if spent_up:
        raise NoRoundLeft(spent_up)
    if finished.result.diverged:
        raise typer.Exit(1)


def _changes(overrides: list[str] | None, transport: str | None, no_truth: bool) -> list[str]:
    """All that is overridden, whichever option says so."""
    untold = ["run.telemetry=none"] if no_truth else []
    return [*(overrides or []), *untold, *([f"run.transport={transport}"] if transport else [])]


def _check_alone(resume: Path, others: bool) -> None:
    if others:
        accepted = "no FILE, --out, --force or --no-truth beside it: the run has them already"
        raise BadInput("--resume", str(resume), accepted)


def _tap(kind: str | None) -> Callable[[Path], Any] | None:
    """Who listens between the nodes; whoever may not is told before anything runs."""
    if kind is None:
        return None
    from dpp2.adversary.tap.local import TAPS

    if kind not in TAPS:
        raise BadInput("--tap", kind, " or ".join(TAPS))
    TAPS[kind](Path())
    return TAPS[kind]


def _watched(work: Callable[[Progress], FinishedRun]) -> FinishedRun:
    with progress_bar("rounds") as show:
        return work(show)


@dataclass(frozen=True)
class ConditionDocument:
    name: str
    left: float
    right: float
    holds: bool


@dataclass(frozen=True)
class RunEnd:
    """Where a run ended, and where its records are."""

    run: Path
    run_id: str
    rounds: int
    gap_initial: float
    gap: float
    consensus: float
    stationarity: float
    objective: float
    bytes: int


@dataclass(frozen=True)
class RunDocument(RunEnd):
    """What `--json` prints of a run."""

    diverged: bool
    cause: str | None
    explanation: str | None
    seconds: float
    rounds_per_second: float
    report: Mapping[str, float]
    privacy: Mapping[str, object]
    conditions: list[ConditionDocument]


def summary(finished: FinishedRun) -> RunDocument:
    result, metrics = finished.result, finished.result.metrics
    divergence = result.divergence
    return RunDocument(
        run=finished.directory.path,
        run_id=result.run_id,
        rounds=result.rounds,
        gap_initial=float(metrics.gap[0]),
        gap=float(metrics.gap[-1]),
        consensus=float(metrics.consensus[-1]),
        stationarity=float(metrics.stationarity[-1]),
        objective=float(metrics.objective[-1]),
        bytes=int(metrics.bytes.sum()),
        diverged=result.diverged,
        cause=divergence.cause if divergence else None,
        explanation=divergence.explanation if divergence else None,
        seconds=result.seconds,
        rounds_per_second=result.rounds_per_second,
        report=result.report,
        privacy=privacy_document(result),
        conditions=listed_conditions(result.conditions),
    )


def listed_conditions(conditions: Iterable[Condition]) -> list[ConditionDocument]:
    return [ConditionDocument(one.name, one.left, one.right, one.holds) for one in conditions]


def _print_summary(finished: FinishedRun) -> None:
    result, metrics, path = finished.result, finished.result.metrics, finished.directory.path
    if not finished.went_on:
        longer = "--set run.rounds=K makes the run longer"
        console.print(f"no round was left to run, so this is the run as it was: {longer}")
    console.print(
        f"{result.rounds} rounds in {result.seconds:.2f} s ({result.rounds_per_second:,.0f} a second), "
        f"{metrics.bytes.sum() / 1e6:,.1f} MB sent"
    )
    if (beside := sum(finished.steps.values())) >= _LONG_SECONDS:
        each = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in finished.steps.items())
        console.print(f"outside the rounds {beside:.1f} s: {each}")
    console.print(
        f"gap {metrics.gap[0]:.3e} → {metrics.gap[-1]:.3e}  "
        f"(consensus {metrics.consensus[-1]:.3e}, stationarity {metrics.stationarity[-1]:.3e})"
    )
    console.print(f"ε spent by the worst-off agent: {_spent(result)}{_claimed(result)}")
    for name, value in result.report.items():
        console.print(f"{name.replace('_', ' ')} {value:.4f}")
    _warn(result)
    console.print(f"records in {path}, plot in {path / 'convergence.png'}")


def _spent(result: Result) -> str:
    spent = result.privacy.epsilon
    if not (isinstance(spent, Epsilon) and spent.tail):
        return str(spent)
    return f"{spent}, with δ_dp = {spent.tail}{': no promise' if spent.log2_delta >= 0 else ''}"


def _claimed(result: Result) -> str:
    """What the paper says of the same run; nothing for methods that are not its own."""
    spent, paper = result.privacy.epsilon, result.privacy.paper_epsilon
    if not result.experiment.algorithm.papers_own:
        return ""
    if not isinstance(paper, Unsupported):
        return f" (the paper's Theorem 3 says {paper})"
    return f" (the paper's Theorem 3 does not apply{' either' if paper == spent else f': {paper.reason}'})"


def _warn(result: Result) -> None:
    """What is worth knowing, and last of all what makes the run worthless."""
    print_notes(_of_conditions(result))
    print_notes(result.privacy.notes)
    print_notes([*_of_epsilon(result), *_of_the_gap(result)])
    if result.privacy.stopped:
        errors.print(f"stopped by privacy.budget after {result.rounds} rounds: {result.privacy.stopped}")
    if result.divergence:
        peak = np.nanmax(result.metrics.gap)
        errors.print(
            f"DIVERGED, seen in round {result.divergence.round} (peak gap {peak:.3g}): {result.divergence.explanation}"
        )


def _of_epsilon(result: Result) -> Iterator[str]:
    """Why ε is infinite, if it is."""
    spent = result.privacy.epsilon
    if isinstance(spent, Epsilon) and spent.log10 == np.inf and spent.reason:
        yield f"ε = ∞: {spent.reason}"


def _of_the_gap(result: Result) -> Iterator[str]:
    if not result.diverged and result.rounds and result.metrics.gap[-1] > result.metrics.gap[0]:
        remedies = ["more rounds", "less noise", result.experiment.algorithm.remedy]
        may_help = " or ".join(remedy for remedy in remedies if remedy)
        yield f"the gap is larger at the end than at the start; {may_help} may help"


def _of_conditions(result: Result) -> Iterator[str]:
    if result.experiment.algorithm.papers_own and not result.conditions:
        yield (
            "the paper's sufficient conditions were not checked: M̄ is not known, or λ_2(P) of so large a network "
            "takes too long to find"
        )
    failing = [c for c in result.conditions if not c.holds]
    if failing:
        tightest = next((c for c in reversed(failing) if c.right > 0), failing[-1])
        yield (
            f"{len(failing)} of the paper's {len(result.conditions)} sufficient conditions "
            f"{'does' if len(failing) == 1 else 'do'} not hold "
            f"(such as {tightest.name}: {tightest.left:.3g} against {tightest.right:.3g}); "
            "convergence is then observed, not proved"
        )
