"""`dpp2 certs`: an authority, certificates for everybody, and lists of those that count."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpp2 import BadInput
from dpp2.errors import NOTHING
from dpp2.orchestrator.cli.app import Json, app, examples
from dpp2.orchestrator.output import console, print_json

Cluster = Annotated[
    Path | None, typer.Option("--cluster", metavar="FILE", help="cluster.toml: one certificate for each of its nodes.")
]
Agents = Annotated[
    int | None, typer.Option("--agents", metavar="N", help="Instead of a cluster: agents 0 … N−1, a node each.")
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Where they go; files that are already there are kept.")]
Days = Annotated[int, typer.Option(metavar="N", help="How long they are valid.")]
Allow = Annotated[bool, typer.Option("--allow", help="Also write allowed.txt, the list of valid certificates.")]
Revoke = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Make no certificates; remove this one, such as node-3, from the lists."),
]


@app.command(
    epilog=examples(
        "dpp2 certs --cluster cluster.toml --out certs", "dpp2 certs --agents 6 --allow", "dpp2 certs --revoke node-3"
    )
)
def certs(
    cluster: Cluster = None,
    agents: Agents = None,
    out: Out = Path("certs"),
    days: Days = 365,
    allow: Allow = False,
    revoke: Revoke = None,
    json: Json = False,
) -> None:
    """Make an authority and a certificate for every node, for the orchestrator and for probes.

    Each folder below DIR goes to its participant as it is. Keep ca.key to yourself: whoever has it can be anybody.
    With a list in its folder a participant turns away everybody who is not on it, and reads it again when it changes.
    """
    made = _make(cluster, agents, out, days) if revoke is None else []
    lists = _lists(out, allow, revoke)
    if json:
        _print_json(out, made, lists)
        return
    if revoke is None:
        _print_made(out, made, days)
    if lists:
        gone = f" without {revoke}" if revoke else ""
        console.print(f"{lists[0].name}{gone} in {out} and in the {len(lists) - 1} folders there: hand them out")


def _make(cluster: Path | None, agents: int | None, out: Path, days: int) -> list[Path]:
    from dpp2.orchestrator.certs import make

    if not 0 < days <= 3650:
        raise BadInput("--days", days, "a whole number from 1 to 3650")
    return make(out, _nodes(cluster, agents), days)


def _nodes(cluster: Path | None, agents: int | None) -> list[tuple[int, ...]]:
    """Which agents each node hosts."""
    from dpp2.node.cluster import Cluster

    if (cluster is None) == (agents is None):
        given = NOTHING if cluster is None else str(cluster)
        raise BadInput("--cluster", given, "either a cluster.toml or --agents N")
    if cluster is not None:
        loaded = Cluster.load(cluster)
        return [tuple(loaded.agents_of_node(node)) for node in loaded.nodes()]
    if not 0 < (agents or 0) <= 10_000:
        raise BadInput("--agents", agents, "a whole number from 1 to 10,000")
    return [(agent,) for agent in range(agents or 0)]


def _lists(out: Path, allow: bool, revoke: str | None) -> list[Path]:
    """Written where somebody asks for them. Where lists are kept already, whoever is new belongs on them."""
    from dpp2.node.admission import ALLOWED
    from dpp2.orchestrator.allowed import write_lists

    wanted = allow or revoke is not None or (out / ALLOWED).exists()
    return write_lists(out, revoke) if wanted else []


def _print_json(out: Path, made: list[Path], lists: list[Path]) -> None:
    from dpp2.orchestrator.allowed import fingerprints

    print_json({"authority": out / "ca.pem", "made": made, "lists": lists, "fingerprints": fingerprints(out)})


def _print_made(out: Path, made: list[Path], days: int) -> None:
    from dpp2.orchestrator.allowed import fingerprints

    known = fingerprints(out)
    if not made:
        console.print(f"nothing to make: {out} has a certificate for everybody already, and those are kept")
        return
    console.print(f"{len(made)} certificates in {out}, valid for {days} days; {out / 'ca.key'} makes more of them")
    for path in made:
        console.print(f"{known[path.name]}  {path.name}")
