"""`dpp2 node`, `dpp2 orchestrate` and `dpp2 collect`: the pieces of a run over several machines."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dpp2 import BadInput, Experiment
from orchestrator.cli.app import Json, Overrides, app
from orchestrator.output import console, errors, print_json, progress_bar

ClusterFile = Annotated[
    Path, typer.Option("--cluster", metavar="FILE", help="cluster.toml: where every agent listens.")
]
ExperimentFile = Annotated[Path, typer.Option("--experiment", metavar="FILE", help="The experiment (TOML).")]


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def node(context: typer.Context) -> None:
    """Host agents behind a gRPC service (`dpp2 node --help` shows the options)."""
    from node.__main__ import main

    raise typer.Exit(main(context.args))


@app.command()
def orchestrate(
    cluster: ClusterFile,
    experiment: ExperimentFile,
    overrides: Overrides = None,
    tls: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Certificates: certs/orchestrator of dpp2 certs.")
    ] = None,
    plaintext: Annotated[bool, typer.Option("--plaintext", help="No TLS: nobody is authenticated.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="One round at a time.")] = False,
    window: Annotated[int, typer.Option(metavar="B", help="Rounds of credit, if not strict.")] = 512,
    state: Annotated[
        Path, typer.Option(metavar="FILE", help="Where an unseeded run's id is kept, to go on with it.")
    ] = Path("orchestrator.json"),
    keep: Annotated[bool, typer.Option("--keep", help="Leave the nodes running at the end.")] = False,
    json: Json = False,
) -> None:
    """Drive nodes that are running somewhere through one run.

    Nodes that are not there yet, or go away, are waited for and named. The same command line goes on after this
    process has died. Neither data, nor keys, nor vectors ever come here.

    Example:

        dpp2 orchestrate --cluster cluster.toml --experiment experiment.toml --tls certs/orchestrator
    """
    from node.cluster import Cluster
    from node.tls import ORCHESTRATOR, Identity
    from orchestrator.drive import DriveFailed
    from orchestrator.orchestrate import orchestrate as drive_nodes
    from orchestrator.orchestrate import run_id_of
    from orchestrator.runner import RunFailed

    if (tls is None) != plaintext:
        raise BadInput("--tls", str(tls), "a folder of certificates, or --plaintext instead")
    if window < 1:
        raise BadInput("--window", window, "a whole number ≥ 1")
    identity = Identity.load(tls, [ORCHESTRATOR]) if tls else None
    resolved = Experiment.load(experiment, overrides or []).resolve()
    nodes, run_id = Cluster.load(cluster), run_id_of(resolved, state)
    try:
        with progress_bar("rounds") as show:
            done = drive_nodes(
                resolved,
                nodes,
                run_id,
                identity,
                window=1 if strict else window,
                keep=keep,
                progress=lambda drive: show(drive.round, resolved.run.rounds, waiting(drive.late())),
            )
    except DriveFailed as failure:
        raise RunFailed(str(failure)) from None
    if json:
        print_json(asdict(done))
    else:
        console.print(f"run {run_id}: {done.rounds} rounds, {done.frames:,} frames, {done.bytes / 1e6:,.1f} MB")
    if done.stopped:
        errors.print(f"stopped by a node's budget after {done.rounds} rounds: {done.stopped}")
    if done.refused:
        errors.print(f"note: nodes turned away {done.refused} bad frames or calls; their logs say which")
    if done.diverged:
        raise RunFailed(f"the run diverged: after {done.rounds} rounds numbers left the range of floating point")


@app.command()
def collect(
    homes: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Homes of all nodes, copied here.")],
    experiment: ExperimentFile,
    out: Annotated[Path, typer.Option(metavar="RUN", help="The run directory to make.")],
    run_id: Annotated[str | None, typer.Option(metavar="ID", help="Which run, if the nodes have had several.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in an existing directory.")] = False,
    json: Json = False,
) -> None:
    """Merge what nodes on several machines have written down into one run directory.

    Without telemetry there is no truth.npz; without the agents' data there is no gap at the last x.

    Example:

        dpp2 collect home-0 home-1 home-2 --experiment experiment.toml --out runs/three-machines
    """
    from orchestrator.collect import collect as merge

    done = merge(homes, Experiment.load(experiment), out, run_id, force=force)
    if json:
        print_json({**asdict(done), "path": str(done.path)})
        return
    console.print(f"{done.rounds} rounds of {done.agents} agents in {done.path}")
    if not done.telemetry:
        errors.print("note: without telemetry there is no truth.npz, and an audit cannot be scored")
    if done.missing:
        errors.print(f"note: left out: {done.missing}")


def waiting(agents: list[int]) -> str:
    """Whom everybody waits for, in a few words."""
    return f"waiting for {', '.join(map(str, agents[:8]))}{' …' if len(agents) > 8 else ''}" if agents else ""
