"""`dpp2 reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpp2.orchestrator.cli.app import Executor, Json, app, check_counts, examples, new_folder
from dpp2.orchestrator.output import console, print_json, print_table, progress_bar
from dpp2.studies.reproduce import STUDIES

if TYPE_CHECKING:
    from dpp2.studies.reproduce.study import Claim, Files, Study


@app.command(
    epilog=examples(
        "dpp2 reproduce fig1", "dpp2 reproduce fig3 --seeds 5 --out figures", "dpp2 reproduce overview --out docs"
    )
)
def reproduce(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=f"{', '.join(STUDIES)} (a page of everything).")],
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds; each decides data, starting points and noise [3; tier3: 10].")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few seeds: a look, no measurement.")] = False,
    rounds: Annotated[int | None, typer.Option(help="Rounds (default: as many as the study needs).")] = None,
    executor: Executor = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path("reproductions"),
    json: Json = False,
) -> None:
    """Measure a figure or the table of the paper from runs made here, and judge what the paper says of it."""
    from dpp2.studies.reproduce.study import Order

    check_counts(("--seeds", seeds), ("--rounds", rounds))
    study: Study[Any] = STUDIES[what].of(rounds)
    usual = study.quick_seeds if quick else study.seeds
    folder = new_folder(out)
    with progress_bar(what) as show:
        made = study.run(Order(seeds or usual, rounds or study.rounds, executor, show))
    folder.mkdir(parents=True, exist_ok=True)
    files = study.write(made, folder)
    print_json(study.document(made, files)) if json else _print(study, made, files)


def _print(study: Study[Any], made: Any, files: Files) -> None:
    table = study.table(made)
    if table is not None:
        print_table(table.head, table.rows, narrow=True)
    _print_claims(study.claims(made))
    console.print(", ".join(f"{what} in {path}" for what, path in files.items()))


def _print_claims(claims: Sequence[Claim]) -> None:
    for claim in claims:
        console.print(f"{claim.word}: {claim.claim} — {claim.evidence}")
