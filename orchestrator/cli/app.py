"""The application object and the options that commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import dpp2
from dpp2 import BadInput, Experiment
from orchestrator.output import console, errors

app = typer.Typer(
    name="dpp2",
    help="Decentralised optimisation with double privacy protection: run it, attack it, account for it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key; the value is TOML or a bare word."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Executor = Annotated[
    str | None,
    typer.Option(metavar="KIND:WHERE", help="processes:N (default: one per core) or dask:ADDRESS (extra [dask])."),
]

Plot = Annotated[Path | None, typer.Option(metavar="PNG", help="Draw the curve ε(K) here.")]
OptionalFile = Annotated[
    Path | None, typer.Argument(help="Experiment file (TOML); without one, the paper's experiment.")
]


def examples(*lines: str) -> str:
    """What `--help` ends with: how a command is called."""
    return "\n\n".join(["Examples:" if len(lines) > 1 else "Example:", *(f"- `{line}`" for line in lines)])


def load_experiment(file: Path | None, overrides: Sequence[str] | None) -> Experiment:
    """The experiment of a command; what an override drops from the file is said."""
    return Experiment.load(file, overrides or [], note=lambda text: errors.print(f"note: {text}"))


def drawable(plot: Path) -> Path:
    """A picture that can be written."""
    if plot.is_dir() or not plot.parent.is_dir():
        raise BadInput("--plot", str(plot), "a file in a directory that exists")
    return plot


def check_counts(*options: tuple[str, int | None]) -> None:
    """Options that count something."""
    for name, value in options:
        if value is not None and value < 1:
            raise BadInput(name, value, "a whole number ≥ 1")


def new_folder(path: Path, option: str = "--out") -> Path:
    """A folder that is there or can be made."""
    if path.exists() and not path.is_dir():
        raise BadInput(option, str(path), "a directory, not a file")
    return path


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"dpp2 {dpp2.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
