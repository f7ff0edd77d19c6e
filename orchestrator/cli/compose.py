"""`dpp2 compose`: a run in containers, of any size and on any graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpp2 import BadInput, Experiment
from dpp2.errors import UnknownName
from orchestrator.cli.app import Json, Overrides, app
from orchestrator.output import errors, print_json
from store.files import write_text

_MOST = 1000  # containers that one machine could conceivably run


@app.command()
def compose(
    agents: Annotated[int, typer.Option(metavar="N", help="A container for each of them.")] = 6,
    topology: Annotated[str, typer.Option(help="The graph, as in network.topology.")] = "ring",
    overrides: Overrides = None,
    files: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the public files go (default: deploy/TOPOLOGY-N)."),
    ] = None,
    override: Annotated[
        str | None, typer.Option(metavar="KIND", help="Print what goes over it instead: tls, damping or sniffer.")
    ] = None,
    json: Json = False,
) -> None:
    """Print a Compose file for agents, orchestrator, eavesdropper and audit, and write the files that they share.

    The keys and the data that it names are made by `make keys AGENTS=N`.

    Examples:

        dpp2 compose --agents 20 --topology ring > ring-20.yml

        dpp2 compose --agents 20 --topology ring --override tls > ring-20-tls.yml

        docker-compose -f ring-20.yml -f ring-20-tls.yml up
    """
    from orchestrator.compose import OVERRIDES, Deployment

    if not 2 <= agents <= _MOST:
        raise BadInput("--agents", agents, f"a whole number from 2 to {_MOST:,}")
    if override is not None and override not in OVERRIDES:
        raise UnknownName("--override", override, override, list(OVERRIDES))
    folder = files or Path("deploy") / f"{topology}-{agents}"
    deployment = Deployment(
        experiment=_experiment(agents, topology, overrides or []),
        damped=_experiment(agents, topology, [*(overrides or []), "algorithm.damping=1"]),
        folder=str(folder) if folder.is_absolute() else f"./{folder}",
        written_by=" ".join(["dpp2 compose", f"--agents {agents}", f"--topology {topology}", *_said(overrides, files)]),
    )
    for name, content in deployment.files().items():
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / name, content)
    text = deployment.base() if override is None else OVERRIDES[override](deployment)
    if json:
        print_json({"compose": text, "files": [str(folder / name) for name in deployment.files()]})
    else:
        typer.echo(text, nl=False)
        errors.print(f"written: {', '.join(deployment.files())} in {folder}")


def _experiment(agents: int, topology: str, overrides: list[str]) -> Experiment:
    """The paper's algorithm on data that each agent brings along, with secrets from the operating system."""
    ours = {
        "run.seed": "os",
        "run.transport": "grpc",
        "network.topology": topology,
        "network.agents": agents,
        "problem.name": "file",
        "problem.path": "/run/secrets",
    }
    return Experiment.load(None, [*(f"{name}={value}" for name, value in ours.items()), *overrides]).resolve()


def _said(overrides: list[str] | None, files: Path | None) -> list[str]:
    return [*(f"--set {one}" for one in overrides or []), *([f"--files {files}"] if files else [])]
