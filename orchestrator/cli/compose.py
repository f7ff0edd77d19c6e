"""`dpp2 compose`: a run in containers, of any size and on any graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpp2 import BadInput
from dpp2.errors import UnknownName
from dpp2.orchestrator.cli.app import Json, Overrides, app, examples
from dpp2.orchestrator.output import errors, print_json
from dpp2.store.files import write_text

if TYPE_CHECKING:
    from dpp2.orchestrator.compose import Deployment

_MOST = 1000  # containers that one machine could conceivably run


Files = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where the public files go (default: deploy/TOPOLOGY-N).")
]
Override = Annotated[
    str | None, typer.Option(metavar="KIND", help="Print what goes over it instead: tls, damping or sniffer.")
]
Kubernetes = Annotated[bool, typer.Option("--kubernetes", help="Print a Kubernetes manifest instead.")]


@app.command(
    epilog=examples(
        "dpp2 compose --agents 20 --topology ring > ring-20.yml",
        "dpp2 compose --agents 20 --topology ring --override tls > ring-20-tls.yml",
        "docker-compose -f ring-20.yml -f ring-20-tls.yml up",
        "dpp2 compose --agents 20 --topology ring --kubernetes > ring-20-kubernetes.yml",
    )
)
def compose(
    agents: Annotated[int, typer.Option(metavar="N", help="A container for each of them.")] = 6,
    topology: Annotated[str, typer.Option(help="The graph, as in network.topology.")] = "ring",
    overrides: Overrides = None,
    files: Files = None,
    override: Override = None,
    kubernetes: Kubernetes = False,
    json: Json = False,
) -> None:
    """Print a Compose file for agents, orchestrator, eavesdropper and audit, and write the files that they share.

    The keys and the data that it names are made by `make keys AGENTS=N`. The experiment has a budget for four runs;
    `--set privacy.budget=…` names another.
    """
    if not 2 <= agents <= _MOST:
        raise BadInput("--agents", agents, f"a whole number from 2 to {_MOST:,}")
    if kubernetes and (override is not None or files is not None):
        raise BadInput("--kubernetes", True, "no --override or --files with it: a manifest is complete")
    network = _Network(agents, topology, overrides or [])
    if kubernetes:
        _print("kubernetes", network.manifest(), [], json)
    else:
        deployment, folder = network.deployment(files), network.folder(files)
        text = _text(deployment, override)
        _print("compose", text, _write(deployment, folder), json)


def _text(deployment: Deployment, override: str | None) -> str:
    from dpp2.orchestrator.compose import OVERRIDES

    if override is None:
        return deployment.base()
    if override not in OVERRIDES:
        raise UnknownName("--override", override, override, list(OVERRIDES))
    return OVERRIDES[override](deployment)


def _write(deployment: Deployment, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in deployment.files().items():
        write_text(folder / name, content)
    return [folder / name for name in deployment.files()]


def _print(kind: str, text: str, shared: list[Path], json: bool) -> None:
    if json:
        print_json({kind: text, "files": shared})
        return
    typer.echo(text, nl=False)
    if shared:
        errors.print(f"written: {', '.join(path.name for path in shared)} in {shared[0].parent}")


@dataclass(frozen=True)
class _Network:
    """What was asked for."""

    agents: int
    topology: str
    overrides: list[str]

    def folder(self, files: Path | None) -> Path:
        return files or Path("deploy") / f"{self.topology}-{self.agents}"

    def manifest(self) -> str:
        from dpp2.orchestrator.demonstration import Demonstration
        from dpp2.orchestrator.kubernetes import SECRETS, Manifest

        overrides = [f"problem.path={SECRETS}", "run.telemetry=none", *self.overrides]
        return Manifest(Demonstration.of(self.agents, self.topology, overrides), self._said("--kubernetes")).text()

    def deployment(self, files: Path | None) -> Deployment:
        from dpp2.orchestrator.compose import Deployment
        from dpp2.orchestrator.demonstration import Demonstration

        folder = self.folder(files)
        return Deployment(
            shown=Demonstration.of(self.agents, self.topology, self.overrides),
            damped=Demonstration.of(self.agents, self.topology, [*self.overrides, "algorithm.damping=1"]),
            folder=str(folder) if folder.is_absolute() else f"./{folder}",
            written_by=self._said(*([f"--files {files}"] if files else [])),
        )

    def _said(self, *more: str) -> str:
        """The command line, for the first line of what is written."""
        sets = [f"--set {one}" for one in self.overrides]
        return " ".join(["dpp2 compose", f"--agents {self.agents}", f"--topology {self.topology}", *sets, *more])
