"""`dpp2 partition`: who is hosted where, such that little travels."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dpp2 import BadInput
from dpp2.orchestrator.cli.app import Json, OptionalFile, Overrides, app, examples, load_experiment
from dpp2.orchestrator.output import console, print_json

Hosts = Annotated[str, typer.Option(metavar="ADDRESS,…", help="Where the nodes will listen.")]
Out = Annotated[Path, typer.Option(metavar="FILE", help="The cluster file to write; it must not be there.")]
Kind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="metis (extra [partition]) or blocks.")]


@app.command(
    epilog=examples(
        "dpp2 partition large.toml --hosts 10.0.0.1:7000,10.0.0.2:7000",
        "dpp2 node --agents @cluster-0.agents --cluster cluster.toml --experiment large.toml --home home --plaintext",
    )
)
def partition(
    hosts: Hosts,
    file: OptionalFile = None,
    overrides: Overrides = None,
    out: Out = Path("cluster.toml"),
    kind: Kind = None,
    json: Json = False,
) -> None:
    """Assign agents to hosts, so that neighbours stay together.

    Prints what is cut, and what would be if consecutive agents were hosted together. Beside FILE there is a list of its
    agents for each node, for `dpp2 node --agents @LIST`. Results do not depend on who is hosted where.
    """
    from dpp2.orchestrator.groups import check_partition, chosen_partition, cut_sentence
    from dpp2.orchestrator.hosts import write_hosts

    check_partition(kind)
    graph = load_experiment(file, overrides).resolve().network.graph()
    addresses = hosts.split(",")
    if not 1 <= len(set(addresses)) == len(addresses) <= graph.agents:
        raise BadInput("--hosts", hosts, f"addresses, each once, no more than there are agents ({graph.agents})")
    found = chosen_partition(graph, len(addresses), kind)
    written = write_hosts(out, addresses, found.groups)
    if json:
        print_json({"cut": asdict(found.cut), "blocks": asdict(found.blocks), "files": written})
        return
    console.print(cut_sentence(found))
    console.print(f"written: {', '.join(map(str, written))}")
