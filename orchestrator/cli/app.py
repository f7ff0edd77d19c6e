"""The application object and the options that commands share."""

from __future__ import annotations

from typing import Annotated

import typer

import dpp2
from orchestrator.output import console

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
