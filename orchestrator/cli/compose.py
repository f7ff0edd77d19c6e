"""`dpp2 compose`: a run in containers, of any size and on any graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpp2 import BadInput, Experiment
from dpp2.errors import UnknownName
from orchestrator.cli.app import Json, Overrides, app, examples
from orchestrator.output import errors, print_json
from store.files import write_text

if TYPE_CHECKING:
    from orchestrator.compose import Deployment

_MOST = 1000  # containers that one machine could conceivably run


Files = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where the public files go (default: deploy/TOPOLOGY-N).")
]
Override = Annotated[
    str | None, typer.Option(metavar="KIND", help="Print what goes over it instead: tls, damping or sniffer.")
]


@app.command(
    epilog=examples(
        "dpp2 compose --agents 20 --topology ring > ring-20.yml",
        "dpp2 compose --agents 20 --topology ring --override tls > ring-20-tls.yml",
        "docker-compose -f ring-20.yml -f ring-20-tls.yml up",
    )
)
def compose(
    agents: Annotated[int, typer.Option(metavar="N", help="A container for each of them.")] = 6,
    topology: Annotated[str, typer.Option(help="The graph, as in network.topology.")] = "ring",
    overrides: Overrides = None,
    files: Files = None,
    override: Override = None,
    json: Json = False,
) -> None:
    """Print a Compose file for agents, orchestrator, eavesdropper and audit, and write the files that they share.

    The keys and the data that it names are made by `make keys AGENTS=N`.
    """
    from orchestrator.compose import OVERRIDES

    if not 2 <= agents <= _MOST:
        raise BadInput("--agents", agents, f"a whole number from 2 to {_MOST:,}")
    if override is not None and override not in OVERRIDES:
        raise UnknownName("--override", override, override, list(OVERRIDES))
    folder = files or Path("deploy") / f"{topology}-{agents}"
    deployment = _deployment(agents, topology, overrides or [], files, folder)
    shared = _write(deployment, folder)
    text = deployment.base() if override is None else OVERRIDES[override](deployment)
    _print(text, shared, folder, json)


def _deployment(agents: int, topology: str, overrides: list[str], files: Path | None, folder: Path) -> Deployment:
    from orchestrator.compose import Deployment

    said = [*(f"--set {one}" for one in overrides), *([f"--files {files}"] if files else [])]
    return Deployment(
        experiment=_experiment(agents, topology, overrides),
        damped=_experiment(agents, topology, [*overrides, "algorithm.damping=1"]),
        folder=str(folder) if folder.is_absolute() else f"./{folder}",
        written_by=" ".join(["dpp2 compose", f"--agents {agents}", f"--topology {topology}", *said]),
    )


def _write(deployment: Deployment, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in deployment.files().items():
        write_text(folder / name, content)
    return [folder / name for name in deployment.files()]


def _print(text: str, shared: list[Path], folder: Path, json: bool) -> None:
    if json:
        print_json({"compose": text, "files": shared})
    else:
        typer.echo(text, nl=False)
        errors.print(f"written: {', '.join(path.name for path in shared)} in {folder}")


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
