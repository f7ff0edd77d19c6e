"""`dpp2 export`: what a machine hands to whoever collects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpp2 import Experiment
from dpp2.orchestrator.cli.app import Json, app, examples
from dpp2.orchestrator.cli.cluster import ExperimentFile
from dpp2.orchestrator.output import console, errors, print_json


@app.command(epilog=examples("dpp2 export home --experiment experiment.toml --out machine-1.zip"))
def export(
    homes: Annotated[list[Path], typer.Argument(metavar="HOME…", help="Homes of nodes on this machine.")],
    experiment: ExperimentFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to make.")],
    run_id: Annotated[str | None, typer.Option(metavar="ID", help="Which run, if the nodes have had several.")] = None,
    json: Json = False,
) -> None:
    """Pack the records of nodes for `dpp2 collect`: no keys, no checkpoints, no journal, no ledger.

    Without telemetry an export holds what the nodes have sent, which an eavesdropper has, too.
    """
    from dpp2.orchestrator.collect import export as pack

    nodes = pack(homes, Experiment.load(experiment), out, run_id)
    agents = sorted(agent for node in nodes for agent in node.agents)
    telemetry = any(node.has("x") for node in nodes)
    if json:
        print_json({"path": out, "run_id": nodes[0].run_id, "agents": agents, "telemetry": telemetry})
        return
    console.print(f"records of {len(agents)} agents in {out}")
    if telemetry:
        errors.print("warning: with telemetry this holds x, gradients and noise: nothing of it is private")
