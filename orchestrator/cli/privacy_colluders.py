"""`dpp2 privacy colluders`: ε against the number of agents who hand over all they know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dpp2 import BadInput
from dpp2.orchestrator.cli.app import Json, Overrides, examples, load_experiment
from dpp2.orchestrator.cli.privacy import privacy
from dpp2.orchestrator.cli.privacy_documents import spoken
from dpp2.orchestrator.output import console, print_json, print_notes, print_table
from dpp2.prepared import PreparedRun
from dpp2.privacy import Epsilon, Unsupported
from dpp2.privacy.account import Account
from dpp2.privacy.cancelling_releases import CancellingReleases, worst_exposures
from dpp2.privacy.colluders import Cut, WorstCase, cuts, with_remedy
from dpp2.privacy.correlated import NoiseNetwork

_WEAKEST = 5  # agents that are named
_CUTS = 3


@dataclass(frozen=True)
class Row:
    """So many colluders: what they leave of ε, whom they hurt most, and whom they cut off."""

    colluders: int
    epsilon: Epsilon | Unsupported
    weakest: tuple[tuple[int, tuple[int, ...]], ...]  # agent, and who colludes against it
    cuts: tuple[Cut, ...]


@privacy.command(
    epilog=examples(
        "dpp2 privacy colluders experiments/private-records.toml",
        "dpp2 privacy colluders experiments/paper.toml --set algorithm.name=dpp3 --most 1",
    )
)
def colluders(
    file: Annotated[Path | None, typer.Argument(help="Experiment file (default: the paper's experiment).")] = None,
    overrides: Overrides = None,
    most: Annotated[int, typer.Option(help="Up to so many colluders.", min=0)] = 3,
    json: Json = False,
) -> None:
    """What ε is left when agents collude, who is weakest, and whom colluders cut off; for dpp3."""
    prepared = PreparedRun.of(load_experiment(file, overrides))
    network = prepared.experiment.algorithm.noise_network(prepared.experiment)
    if isinstance(network, Unsupported):
        raise BadInput("algorithm.name", prepared.experiment.algorithm.name, f"dpp3 ({network.reason})")
    rows = [_row(prepared, network, count) for count in range(min(most, network.agents - 1) + 1)]
    print_json([_document(row) for row in rows]) if json else _print(rows)


def _row(prepared: PreparedRun, network: NoiseNetwork, count: int) -> Row:
    experiment = prepared.experiment.with_setting("privacy.colluders", count)
    account = PreparedRun.resolved(experiment, prepared.secrets).account()
    weakest = _weakest(worst_exposures(network, count), account)
    return Row(count, account.epsilon(experiment.run.rounds), weakest, _cuts(network, count))


def _weakest(worst: WorstCase | Unsupported, account: Account) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Those who pay most: who has few records may be hidden well and still be the weakest."""
    if isinstance(worst, Unsupported):
        return ()
    moved = np.array([one.adjacency for one in account.mechanisms if isinstance(one, CancellingReleases)])
    paying = replace(worst, exposure=worst.exposure * moved)
    return tuple((agent, worst.colluders[agent]) for agent in paying.weakest(_WEAKEST))


def _cuts(network: NoiseNetwork, count: int) -> tuple[Cut, ...]:
    found = cuts(network, count)
    return () if isinstance(found, Unsupported) else tuple(with_remedy(network, cut) for cut in found[:_CUTS])


def _document(row: Row) -> dict[str, object]:
    known = isinstance(row.epsilon, Epsilon)
    return {
        "colluders": row.colluders,
        "epsilon": row.epsilon.value if isinstance(row.epsilon, Epsilon) else None,
        "delta": 2.0**row.epsilon.log2_delta if isinstance(row.epsilon, Epsilon) else None,
        "reason": row.epsilon.reason if known else str(row.epsilon),
        "weakest": [{"agent": agent, "colluders": against} for agent, against in row.weakest],
        "cuts": [{"colluders": cut.colluders, "agents": cut.agents, "edge": cut.edge} for cut in row.cuts],
    }


def _print(rows: list[Row]) -> None:
    table = [(str(row.colluders), spoken(row.epsilon), _named(row)) for row in rows]
    print_table(("colluders", "ε of the worst-off agent", "weakest agents (against whom)"), table)
    print_notes([str(cut) for row in rows for cut in row.cuts])
    if not any(row.cuts for row in rows):
        console.print("no such set of colluders cuts anybody off")


def _named(row: Row) -> str:
    return ", ".join(f"{agent} ({', '.join(map(str, against)) or 'nobody'})" for agent, against in row.weakest)
