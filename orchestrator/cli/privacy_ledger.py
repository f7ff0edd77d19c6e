"""`dpp2 privacy ledger` and `publish`: what agents have spent, and what may be released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dpp2 import BadInput
from dpp2.orchestrator.cli.app import Json, examples
from dpp2.orchestrator.cli.privacy import privacy
from dpp2.orchestrator.cli.privacy_documents import spoken
from dpp2.orchestrator.output import console, print_json, print_notes, print_table
from dpp2.orchestrator.publish import publish as publish_run
from dpp2.privacy import Epsilon, Unsupported
from dpp2.store.ledgers import LedgerFile, Total
from dpp2.store.rundir import epsilon_document

_LONG, _FIRST = 20, 10  # a ledger of more agents than this is shown in part: so many


@privacy.command(
    epilog=examples("dpp2 privacy ledger runs", "dpp2 privacy ledger home --join 4f0c… --dataset patients")
)
def ledger(
    folder: Annotated[Path, typer.Argument(help="The folder that holds the runs.")] = Path("runs"),
    join: Annotated[str | None, typer.Option(metavar="DATA", help="Entries that belong to --dataset, too.")] = None,
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="The name that --join brings them under.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All agents, not only those that have spent most.")] = False,
    json: Json = False,
) -> None:
    """What every agent has spent over all its runs, by data set."""
    if (join is None) != (dataset is None):
        raise BadInput("--join", join, "DATA and --dataset NAME together")
    file = folder / "ledger.sqlite"
    if not file.is_file():
        raise BadInput("FOLDER", str(folder), "a folder with runs and their ledger.sqlite in it")
    if join is not None and dataset is not None:
        LedgerFile(file).join(join, dataset)
    totals = LedgerFile(file).totals()
    if json:
        unknown = Unsupported("the paper keeps no ledger")
        print_json([
            {
                "agent": total.agent,
                "data": total.data,
                "datasets": total.names,
                "runs": total.runs,
                **epsilon_document(total.spent, unknown),
            }
            for total in totals
        ])  # fmt: skip
        return
    _print_totals(totals, everything)


def _print_totals(totals: Sequence[Total], everything: bool) -> None:
    """Of a long ledger those that have spent most, in the order of what they have spent."""
    short = len(totals) > _LONG and not everything
    shown = sorted(totals, key=_spent, reverse=True)[:_FIRST] if short else totals
    rows = [(one.agent, ", ".join(one.names) or one.data[:12], str(one.runs), spoken(one.spent)) for one in shown]
    print_table(("agent", "data", "runs", "ε over all of them"), rows)
    if short:
        least = spoken(min(totals, key=_spent).spent)
        console.print(f"these have spent most; {len(totals) - _FIRST} more, down to {least} (--all shows them)")


def _spent(total: Total) -> float:
    """What cannot be counted is more than everything that can."""
    return total.spent.log10 if isinstance(total.spent, Epsilon) else math.inf


@privacy.command(epilog=examples("dpp2 privacy publish runs/paper-1"))
def publish(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    json: Json = False,
) -> None:
    """Release x^K + w^K of a run, and charge every agent's ledger for it; of dpp3 x^K itself, at no charge."""
    done = publish_run(run)
    if json:
        spent = epsilon_document(done.epsilon, Unsupported("the paper does not speak of publishing"))
        before = done.before.value if isinstance(done.before, Epsilon) else None
        released = {"published": done.path, "what": done.what, "rounds": done.rounds, "epsilon_before": before}
        print_json({**released, **spent, "notes": done.notes})
        return
    console.print(f"{done.what} is in {done.path}")
    console.print(f"ε of the worst-off agent: {spoken(done.before)} before, {spoken(done.epsilon)} with the release")
    print_notes(done.notes)
