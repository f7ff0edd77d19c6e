"""`dpp2 compose`: a run in containers, of any size and on any graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dpp2 import BadInput
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
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="Print a Kubernetes manifest instead.")] = False,
    json: Json = False,
) -> None:
    """Print a Compose file for agents, orchestrator, eavesdropper and audit, and write the files that they share.

    The keys and the data that it names are made by `make keys AGENTS=N`. The experiment has a budget for four runs;
    `--set privacy.budget=…` names another.

    Examples:

        dpp2 compose --agents 20 --topology ring > ring-20.yml

        dpp2 compose --agents 20 --topology ring --override tls > ring-20-tls.yml

        docker-compose -f ring-20.yml -f ring-20-tls.yml up

        dpp2 compose --agents 20 --topology ring --kubernetes > ring-20-kubernetes.yml
    """
    from orchestrator.compose import OVERRIDES

    if not 2 <= agents <= _MOST:
        raise BadInput("--agents", agents, f"a whole number from 2 to {_MOST:,}")
    if override is not None and override not in OVERRIDES:
        raise UnknownName("--override", override, override, list(OVERRIDES))
    if kubernetes and (override is not None or files is not None):
        raise BadInput("--kubernetes", True, "neither --override nor --files beside it: a manifest is whole")
    network = _Network(agents, topology, overrides or [])
    written: list[Path] = []
    if kubernetes:
        text = network.manifest()
    else:
        text, written = network.compose(files or Path("deploy") / f"{topology}-{agents}", override, named=bool(files))
    if json:
        print_json({"kubernetes" if kubernetes else "compose": text, "files": [str(path) for path in written]})
        return
    typer.echo(text, nl=False)
    if written:
        errors.print(f"written: {', '.join(path.name for path in written)} in {written[0].parent}")


@dataclass(frozen=True)
class _Network:
    """What was asked for."""

    agents: int
    topology: str
    overrides: list[str]

    def manifest(self) -> str:
        from orchestrator.demonstration import Demonstration
        from orchestrator.kubernetes import SECRETS, Manifest

        overrides = [f"problem.path={SECRETS}", "run.telemetry=none", *self.overrides]
        return Manifest(Demonstration.of(self.agents, self.topology, overrides), self._said("--kubernetes")).text()

    def compose(self, folder: Path, override: str | None, *, named: bool) -> tuple[str, list[Path]]:
        """The text, and the files that were written into `folder`; `named`: somebody chose that folder."""
        from orchestrator.compose import OVERRIDES, Deployment
        from orchestrator.demonstration import Demonstration

        deployment = Deployment(
            shown=Demonstration.of(self.agents, self.topology, self.overrides),
            damped=Demonstration.of(self.agents, self.topology, [*self.overrides, "algorithm.damping=1"]),
            folder=str(folder) if folder.is_absolute() else f"./{folder}",
            written_by=self._said(*([f"--files {folder}"] if named else [])),
        )
        for name, content in deployment.files().items():
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / name, content)
        text = deployment.base() if override is None else OVERRIDES[override](deployment)
        return text, [folder / name for name in deployment.files()]

    def _said(self, *more: str) -> str:
        """The command line, for the first line of what is written."""
        sets = [f"--set {one}" for one in self.overrides]
        return " ".join(["dpp2 compose", f"--agents {self.agents}", f"--topology {self.topology}", *sets, *more])
