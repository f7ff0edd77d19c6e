"""The commands in the order in which people need them, each with the modules of `orchestrator.cli` that it needs.

`dpp2 --help` shows this table and loads no command. A module that is not in the table is found as well: its commands
come last, and help takes as long as loading them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main

_FIRST, _PRIVACY, _STUDIES, _NETWORK = "Start here", "Privacy", "Studies", "Several machines"
_HELP = ("-h", "--help")
_VALUES = {"int": "N", "float": "X", "str": "NAME"}  # what an option takes, where it does not say so itself
_PACKAGE = "dpp2.orchestrator.cli"
_SHARED = ("__init__", "app", "privacy_documents")  # modules of it that have no commands


@dataclass(frozen=True)
class Command:
    """`summary` is the first sentence of the command's own help."""

    name: str
    modules: tuple[str, ...]
    panel: str
    summary: str


COMMANDS = (
    Command("run", ("run",), _FIRST, "Run an experiment and keep its records."),
    Command("audit", ("audit",), _FIRST, "Attack a run with what was overheard, and judge the paper's claims."),
    Command(
        "watch",
        ("watch",),
        _FIRST,
        "Show a run on a page: one under way as it goes, one that is over as it ended, or replayed.",
    ),
    Command(
        "playground",
        ("playground",),
        _FIRST,
        "A page with controls: every change is run at once, attacked and accounted for.",
    ),
    Command("list", ("catalogue",), _FIRST, "List experiments, algorithms, problems, topologies, attacks or runs."),
    Command("init", ("catalogue",), _FIRST, "Write a commented experiment file to start from."),
    Command("explain", ("catalogue",), _FIRST, "Say what a key of an experiment file means and accepts."),
    Command(
        "privacy",
        ("privacy", "privacy_check", "plan", "privacy_ledger", "privacy_colluders"),
        _PRIVACY,
        "What a run costs, how much noise a budget needs, and what is left of it.",
    ),
    Command("matrix", ("audit",), _STUDIES, "Try every attacker against every protection, on one experiment."),
    Command("overheard", ("overheard",), _STUDIES, "Print audited runs side by side."),
    Command("compare", ("compare",), _STUDIES, "Compare methods on one problem at the same ε."),
    Command("reproduce", ("reproduce",), _STUDIES, "Measure a figure or the table of the paper, and judge it."),
    Command("bench", ("bench",), _STUDIES, "Measure this machine: ratios taken in one run."),
    Command("node", ("cluster",), _NETWORK, "Host agents behind a gRPC service."),
    Command("orchestrate", ("cluster",), _NETWORK, "Drive nodes that are running somewhere through one run."),
    Command(
        "partition",
        ("partition",),
        _NETWORK,
        "Assign agents to hosts, so that neighbours stay together.",
    ),
    Command("certs", ("certs",), _NETWORK, "Make certificates for nodes and for whoever orchestrates them."),
    Command("export", ("export",), _NETWORK, "Pack the records of nodes that ran here."),
    Command("collect", ("cluster",), _NETWORK, "Merge the records of nodes into one run directory."),
    Command("tap", ("tap",), _NETWORK, "Listen between nodes."),
    Command("compose", ("compose",), _NETWORK, "Print a Compose file or a Kubernetes manifest for a whole network."),
)
_BY_NAME = {command.name: command for command in COMMANDS}


def application() -> typer.Typer:
    """`dpp2` without its commands."""
    made = typer.Typer(
        name="dpp2",
        help="Decentralised optimisation with double privacy protection: run it, attack it, account for it.",
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": list(_HELP)},
    )
    made.callback()(_options)
    return made


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"dpp2 {version('dpp2')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of whatever goes wrong.")] = False,
) -> None:
    pass


def is_overview(words: Sequence[str]) -> bool:
    """Whether somebody asks what there is, and not for one command."""
    return not words or words[0] in _HELP


def print_overview() -> None:
    """`dpp2 --help`."""
    made = application()
    for command in COMMANDS:
        made.command(command.name, help=command.summary, rich_help_panel=command.panel)(_not_loaded)
    unlisted = _unlisted()
    if unlisted:
        load()
        app: typer.Typer = import_module(f"{_PACKAGE}.app").app
        places = [f"{_PACKAGE}.{module}" for module in unlisted]
        made.registered_commands += [
            info for info in app.registered_commands if getattr(info.callback, "__module__", None) in places
        ]
    call(made, ["--help"])


def call(app: typer.Typer, words: Sequence[str]) -> Any:
    """Call `dpp2` with these words; what options take is worded alike in every command."""
    group: Any = typer.main.get_command(app)
    _name_values(group)
    return group(list(words), prog_name="dpp2", standalone_mode=False)


def _name_values(command: Any) -> None:
    context = typer.Context(command, help_option_names=list(_HELP))
    for param in [*command.params, *filter(None, [command.get_help_option(context)])]:
        if param.metavar is None and param.param_type_name == "argument":
            param.metavar = param.name.upper()
        elif param.metavar is None:
            param.metavar = "" if param.is_flag else _VALUES.get(param.bare_type(), "FILE")
    for inner in getattr(command, "commands", {}).values():
        _name_values(inner)


def load(words: Sequence[str] = ()) -> None:
    """Load the modules of the command that these words call; all modules where it is not known which."""
    named = next((word for word in words if not word.startswith("-")), "")
    command = _BY_NAME.get(named)
    for module in command.modules if command else [*_listed(), *_unlisted()]:
        import_module(f"{_PACKAGE}.{module}")


def _not_loaded() -> None:
    """Stands for a command."""


def _listed() -> list[str]:
    return list(dict.fromkeys(module for command in COMMANDS for module in command.modules))


def _unlisted() -> list[str]:
    """Modules that the table does not know."""
    found = sorted(path.stem for path in (Path(__file__).parent / "cli").glob("*.py"))
    return [name for name in found if name not in (*_listed(), *_SHARED)]
