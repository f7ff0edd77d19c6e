"""`dpp2 reproduce`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dpp2 import BadInput
from orchestrator import reproduce as figures
from orchestrator.cli.app import Json, app
from orchestrator.output import console, print_json, progress_bar


@app.command()
def reproduce(
    figure: Annotated[str, typer.Argument(help="fig1 or fig2.")],
    seeds: Annotated[int, typer.Option(help="How many seeds; each decides data, starting points and noise.")] = 3,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every curve (default: 2000, fig2 2500).")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the CSV and the PNG go.")] = Path("reproductions"),
    processes: Annotated[int | None, typer.Option(help="Processes to use (default: one per core).")] = None,
    json: Json = False,
) -> None:
    """Draw a figure of the paper from runs made here, and judge what the paper says of it.

    Examples:

        dpp2 reproduce fig1

        dpp2 reproduce fig2 --seeds 5 --rounds 500 --out figures
    """
    if figure not in figures.FIGURES:
        raise BadInput("FIGURE", figure, f"one of {', '.join(figures.FIGURES)}")
    wanted = figures.FIGURES[figure]
    for name, value in (("--seeds", seeds), ("--rounds", rounds), ("--processes", processes)):
        if value is not None and value < 1:
            raise BadInput(name, value, "a whole number ≥ 1")
    with progress_bar(figure) as show:
        made = figures.reproduce(
            wanted,
            seeds=seeds,
            rounds=rounds or wanted.rounds,
            processes=processes,
            finished=lambda done, total: show(done, total, "runs"),
        )
    csv, png = figures.write(made, out)
    if json:
        claims = [asdict(claim) for claim in made.claims]
        final = dict(zip(map(str, made.figure.values), made.middle[:, -1].tolist(), strict=True))
        print_json({"figure": figure, "csv": str(csv), "png": str(png), "gap": final, "claims": claims})
        return
    for claim in made.claims:
        console.print(f"{'held' if claim.held else 'DID NOT HOLD'}: {claim.claim} — {claim.evidence}", markup=False)
    console.print(f"curves in {csv}, picture in {png}", markup=False)
