"""`dpp2 overheard`: audited runs side by side."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dpp2.orchestrator.cli.app import Json, app, examples
from dpp2.orchestrator.output import print_json, print_notes, print_table


@app.command("overheard", epilog=examples("dpp2 overheard runs/demo runs/demo-tier-three"))
def overheard_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories that were audited.")],
    json: Json = False,
) -> None:
    """Audited runs side by side: what each one cost, how far it came, and what an eavesdropper recovered."""
    from dpp2.studies.overheard import HEAD, named, overheard, remarks

    rows = [overheard(run) for run in runs]
    if json:
        print_json({"runs": [{**asdict(row), "recovered": row.recovered} for row in rows]})
    else:
        print_table(HEAD, [row.cells(name) for name, row in named(rows)], narrow=True)
        print_notes(remarks(rows))
