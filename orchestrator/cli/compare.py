"""`dpp2 compare`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from dpp2 import BadInput, Experiment
from orchestrator.cli.app import Json, Overrides, app, load_experiment
from orchestrator.output import console, print_json, progress_bar

if TYPE_CHECKING:
    from studies.compare import Comparison, Method

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE", help="None or one: whose problem. Several: whose own settings are compared."),
]
Algorithms = Annotated[
    str | None, typer.Option(metavar="A,B,…", help="Who is compared (default: everybody), damped DPP² included.")
]
Budget = Annotated[float, typer.Option(metavar="E", help="The ε that every agent may spend, in every method.")]
Seeds = Annotated[int, typer.Option(metavar="S", help="Fresh seeds that the tuned methods are measured on.")]
Rounds = Annotated[int, typer.Option(metavar="K", help="The most rounds; each method may choose fewer.")]
Executor = Annotated[
    str | None,
    typer.Option(metavar="KIND:WHERE", help="processes:N (default: one per core) or dask:ADDRESS (extra [dask])."),
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Where compare.csv, .json, .png and .html go.")]


@app.command()
def compare(
    files: Files = None,
    overrides: Overrides = None,
    algorithms: Algorithms = None,
    epsilon: Budget = 10.0,
    seeds: Seeds = 3,
    rounds: Rounds = 500,
    executor: Executor = None,
    out: Out = Path("compared"),
    json: Json = False,
) -> None:
    """Compare methods on one problem at the same ε, each tuned on the same grid: gap against rounds, bytes and ε.

    Examples:

        dpp2 compare --algorithms dpp2,dpp2-damped-1,dmsp --epsilon 10

        dpp2 compare mine.toml --epsilon 100 --executor dask:127.0.0.1:8786

        dpp2 compare one.toml two.toml --seeds 5 --out runs/compared
    """
    from studies import compare as comparing
    from studies.compare import page, tables

    _check(epsilon, seeds, rounds, out)
    problem, methods = _contenders(files or [], overrides or [], algorithms)
    grid = comparing.Grid.up_to(rounds)
    with progress_bar("compare") as show:
        made = comparing.compare(problem, methods, epsilon, grid=grid, seeds=seeds, executor=executor, progress=show)
    paths = page.write(made, out)
    if json:
        print_json(tables.document(made) | {"files": paths})
    else:
        _print(made, paths)


def _print(made: Comparison, paths: Mapping[str, str]) -> None:
    from studies.compare import tables

    table = Table(*tables.HEAD[: tables.NARROW], box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for entry in made.entries:
        table.add_row(*tables.cells(entry)[: tables.NARROW])
    console.print(table)
    for one in made.left_out:
        console.print(f"{one.label} was left out: {one.reason}")
    for sentence in (*tables.sentences(made), tables.effort(made)):
        console.print(f"• {sentence}")
    console.print(f"curves in {paths['csv']}, picture in {paths['png']}, page in {paths['html']}")


def _check(epsilon: float, seeds: int, rounds: int, out: Path) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadInput("--epsilon", epsilon, "a finite number > 0")
    for name, value in (("--seeds", seeds), ("--rounds", rounds)):
        if value < 1:
            raise BadInput(name, value, "a whole number ≥ 1")
    if out.exists() and not out.is_dir():
        raise BadInput("--out", str(out), "a directory, not a file")


def _contenders(files: list[Path], overrides: list[str], algorithms: str | None) -> tuple[Experiment, list[Method]]:
    """The common problem, and who is compared on it."""
    from studies.compare import named, of_files

    names = [name.strip() for name in algorithms.split(",")] if algorithms is not None else None
    if len(files) > 1:
        if names:
            raise BadInput(
                "--algorithms", algorithms, "one FILE at most beside it: several bring settings of their own"
            )
        loaded = [(path.stem, load_experiment(path, overrides).resolve()) for path in files]
        return loaded[0][1], of_files(loaded)
    problem = load_experiment(files[0] if files else None, overrides).resolve()
    return problem, named(names, problem)
