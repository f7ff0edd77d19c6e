"""`dpp2 node`, `dpp2 orchestrate` and `dpp2 collect`: the pieces of a run over several machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpp2 import BadInput, Experiment
from dpp2.errors import NOTHING
from dpp2.orchestrator.cli.app import Json, Overrides, app, check_counts, examples, load_experiment
from dpp2.orchestrator.cli.watch import Watch, page_opener
from dpp2.orchestrator.output import console, errors, print_json, progress_bar, waiting
from dpp2.orchestrator.runner import RunFailed

if TYPE_CHECKING:
    from dpp2.node.tls import Identity
    from dpp2.orchestrator.logged import LoggedDrive
    from dpp2.orchestrator.orchestrate import Orchestration, RunSummary

ClusterFile = Annotated[
    Path, typer.Option("--cluster", metavar="FILE", help="cluster.toml: where every agent listens.")
]
ExperimentFile = Annotated[Path, typer.Option("--experiment", metavar="FILE", help="The experiment (TOML).")]
Tls = Annotated[Path | None, typer.Option(metavar="DIR", help="Certificates: certs/orchestrator of dpp2 certs.")]
Plaintext = Annotated[bool, typer.Option("--plaintext", help="No TLS: nobody is authenticated.")]
Strict = Annotated[bool, typer.Option("--strict", help="One round at a time.")]
Window = Annotated[int, typer.Option(metavar="B", help="Rounds of credit, if not strict.")]
State = Annotated[Path, typer.Option(metavar="FILE", help="Where an unseeded run's id is kept, to go on with it.")]
Patience = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Give up when nothing has moved for so long (default: wait for everybody)."),
]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the nodes running at the end.")]


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def node(context: typer.Context) -> None:
    """Host agents behind a gRPC service (`dpp2 node --help` shows the options)."""
    from dpp2.node.__main__ import main

    raise typer.Exit(main(context.args))


@app.command(
    epilog=examples(
        "dpp2 orchestrate --cluster cluster.toml --experiment experiment.toml --tls certs/orchestrator",
    )
)
def orchestrate(
    cluster: ClusterFile,
    experiment: ExperimentFile,
    overrides: Overrides = None,
    tls: Tls = None,
    plaintext: Plaintext = False,
    strict: Strict = False,
    window: Window = 512,
    state: State = Path("orchestrator.json"),
    patience: Patience = None,
    keep: Keep = False,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """Drive nodes that are running somewhere through one run.

    Nodes that are not there yet, or go away, are waited for and named. A node that says why it cannot go on ends the
    run, and the other nodes with it. The same command line goes on after this process has died. Neither data, nor
    keys, nor vectors ever come here.
    """
    from dpp2.node.cluster import Cluster
    from dpp2.node.process import check_descriptors
    from dpp2.orchestrator.orchestrate import Orchestration, described, run_id_of, watched_folder
    from dpp2.prepared import PreparedRun

    check_counts(("--window", window))
    if patience is not None and not patience > 0:
        raise BadInput("--patience", patience, "a number > 0")
    identity = _identity(tls, plaintext)
    prepared = PreparedRun.of(load_experiment(experiment, overrides))
    nodes, run_id = Cluster.load(cluster), run_id_of(prepared.experiment, state)
    check_descriptors("--cluster", len(nodes.nodes()))
    credit = 1 if strict else window
    asked = Orchestration(prepared, run_id, nodes, identity, window=credit, keep=keep, patience=patience)
    if watch:
        page_opener()(watched_folder(state))
    with described(asked, state) as logged:
        done = _driven(asked, logged)
        logged.end(*_how(done))
    print_json(done) if json else _print_summary(done)
    _warn(done)


def _identity(tls: Path | None, plaintext: bool) -> Identity | None:
    from dpp2.node.tls import ORCHESTRATOR, Identity

    if (tls is None) != plaintext:
        raise BadInput(
            "--tls", NOTHING if tls is None else str(tls), "a folder of certificates, or --plaintext instead"
        )
    return Identity.load(tls, [ORCHESTRATOR]) if tls else None


def _how(done: RunSummary) -> tuple[str, str]:
    """How a run has ended, in a word, and why."""
    if done.diverged:
        return "diverged", done.ended
    return ("stopped", f"by a node's budget: {done.stopped}") if done.stopped else ("finished", "")


def _driven(asked: Orchestration, logged: LoggedDrive) -> RunSummary:
    from dpp2.orchestrator.drive import Drive, DriveFailed
    from dpp2.orchestrator.herald import Herald
    from dpp2.orchestrator.orchestrate import orchestrate as drive_nodes

    rounds, herald = asked.prepared.experiment.run.rounds, Herald(errors.print)
    try:
        with progress_bar("rounds") as show:

            def heard(drive: Drive) -> None:
                show(drive.round, rounds, waiting(drive.late()))
                herald.look(drive)
                logged.look(drive)

            return drive_nodes(asked, heard)
    except DriveFailed as failure:
        raise RunFailed(str(failure)) from None


def _print_summary(done: RunSummary) -> None:
    console.print(f"run {done.run_id}: {done.rounds} rounds, {done.frames:,} messages, {done.bytes / 1e3:,.0f} kB")


def _warn(done: RunSummary) -> None:
    if done.stopped and not done.rounds:
        raise RunFailed(f"a node's budget leaves no round to run: {done.stopped}")
    if done.stopped:
        errors.print(f"stopped by a node's budget after {done.rounds} rounds: {done.stopped}")
    if done.refused:
        errors.print(f"note: nodes turned away {done.refused} bad frames or calls; their logs say which")
    if done.diverged and "diverged" not in done.ended:
        raise RunFailed(done.ended)  # the budget of a node ends with what float64 carries
    if done.diverged:
        raise RunFailed(f"the run diverged: after {done.rounds} rounds numbers passed run.largest_value")


@app.command(epilog=examples("dpp2 collect machine-1.zip machine-2.zip --experiment experiment.toml --out runs/both"))
def collect(
    given: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="The exports of all nodes (dpp2 export), or their homes.")
    ],
    experiment: ExperimentFile,
    out: Annotated[Path, typer.Option(metavar="RUN", help="The run directory to make.")],
    run_id: Annotated[str | None, typer.Option(metavar="ID", help="Which run, if the nodes have had several.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in an existing directory.")] = False,
    json: Json = False,
) -> None:
    """Merge what nodes on several machines have written down into one run directory.

    Without telemetry there is no truth.npz, and of exports no solution.npz; without the agents' data there is no gap at
    the last x.
    """
    from dpp2.orchestrator.collect import collect as merge
    from dpp2.orchestrator.given import with_state

    done = merge(given, Experiment.load(experiment), out, run_id, force=force)
    for home in with_state(given):
        errors.print(f"warning: {home} holds checkpoints, the agents' state as it is: copy exports, not homes")
    if json:
        print_json(done)
        return
    console.print(f"{done.rounds} rounds of {done.agents} agents in {done.path}")
    if not done.telemetry:
        errors.print(
            "note: no truth.npz, so an audit cannot be scored: nodes write down x, gradients and noise only with "
            "--telemetry full"
        )
    if done.missing:
        errors.print(f"note: left out: {done.missing}")
