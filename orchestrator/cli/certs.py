"""`dpp2 certs`: an authority, certificates for everybody, and lists of those that count."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpp2 import BadInput
from orchestrator.cli.app import Json, app
from orchestrator.output import console, print_json


@app.command()
def certs(
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="cluster.toml: one certificate for each of its nodes.")
    ] = None,
    agents: Annotated[
        int | None, typer.Option(metavar="N", help="Instead of a cluster: agents 0 … N−1, a node each.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to; what is there already is kept.")] = Path("certs"),
    days: Annotated[int, typer.Option(metavar="N", help="How long they are valid.")] = 365,
    allow: Annotated[
        bool, typer.Option("--allow", help="Write allowed.txt, the list of those that count, too.")
    ] = False,
    revoke: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make none; take this one, such as node-3, off the lists.")
    ] = None,
    json: Json = False,
) -> None:
    """Make an authority and a certificate for every node, for the orchestrator and for probes.

    Each folder below DIR goes to its participant as it is. Keep ca.key to yourself: whoever has it can be anybody.
    With a list in its folder a participant turns away everybody who is not on it, and reads it again when it changes.

    Examples:

        dpp2 certs --cluster cluster.toml --out certs

        dpp2 certs --agents 6 --allow

        dpp2 certs --revoke node-3
    """
    from node.admission import ALLOWED
    from orchestrator.allowed import fingerprints, write_lists

    made = [] if revoke is not None else _make(cluster, agents, out, days)
    kept = (out / ALLOWED).exists()  # where lists are kept, whoever is new belongs on them
    lists = write_lists(out, revoke) if allow or kept or revoke is not None else []
    known = fingerprints(out)
    if json:
        files = {"made": [str(path) for path in made], "lists": [str(path) for path in lists]}
        print_json({"authority": str(out / "ca.pem"), **files, "fingerprints": known})
        return
    if revoke is None:
        console.print(f"{len(made)} certificates in {out}, valid for {days} days; {out / 'ca.key'} makes more of them")
    for path in made:
        console.print(f"{known[path.name]}  {path.name}")
    if lists:
        gone = f" without {revoke}" if revoke else ""
        console.print(f"{lists[0].name}{gone} in {out} and in the {len(lists) - 1} folders there: hand them out")


def _make(cluster: Path | None, agents: int | None, out: Path, days: int) -> list[Path]:
    from node.cluster import Cluster
    from orchestrator.certs import make

    if (cluster is None) == (agents is None):
        raise BadInput("--cluster", str(cluster), "either a cluster.toml or --agents N")
    if agents is not None and not 0 < agents <= 10_000:
        raise BadInput("--agents", agents, "a whole number from 1 to 10,000")
    if not 0 < days <= 3650:
        raise BadInput("--days", days, "a whole number from 1 to 3650")
    if cluster is None:
        return make(out, [(agent,) for agent in range(agents or 0)], days)
    loaded = Cluster.load(cluster)
    return make(out, [loaded.agents_of_node(node) for node in loaded.nodes()], days)
