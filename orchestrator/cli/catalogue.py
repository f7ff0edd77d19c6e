"""`dpp2 list`, `dpp2 init` and `dpp2 explain`: what there is to choose from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from dpp2 import BadInput
from dpp2.errors import UnknownName
from dpp2.orchestrator.catalogue import LISTS, Entry, Explanation, commented, explained
from dpp2.orchestrator.cli.app import Json, OptionalFile, Overrides, app, check_writable, examples, load_experiment
from dpp2.orchestrator.output import console, errors, print_json, print_table
from dpp2.store.files import write_text


def _attacks() -> Iterator[Entry]:
    from dpp2.adversary.attacks import ATTACKS

    return (Entry(attack.name, attack.summary) for attack in ATTACKS)


_LISTS = {**LISTS, "attacks": _attacks}


def _completed(incomplete: str) -> list[str]:
    return [name for name in _LISTS if name.startswith(incomplete)]


What = Annotated[
    str, typer.Argument(metavar="WHAT", help=f"{', '.join(_LISTS)} [experiments].", autocompletion=_completed)
]
New = Annotated[Path, typer.Argument(metavar="NEW", help="The file to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there.")]


@app.command("list", epilog=examples("dpp2 list", "dpp2 list algorithms", "dpp2 list runs --json"))
def list_(what: What = "experiments", json: Json = False) -> None:
    """List experiments, algorithms, problems, topologies, attacks or runs."""
    if what not in _LISTS:
        raise UnknownName("WHAT", what, what, list(_LISTS))
    found = list(_LISTS[what]())
    if json:
        print_json({what: found})
    elif found:
        print_table((what, ""), [(one.name, one.summary) for one in found], narrow=True)
    else:
        errors.print(f"there are no {what} here")


@app.command(
    epilog=examples("dpp2 init mine.toml", "dpp2 init ring.toml damped --set network.topology=ring"),
)
def init(
    new: New = Path("experiment.toml"), file: OptionalFile = None, overrides: Overrides = None, force: Force = False
) -> None:
    """Write a commented experiment file to start from: every key, what it means and what it accepts."""
    if new.exists() and not force:
        raise BadInput("NEW", str(new), "a file that does not exist yet (--force replaces it)")
    if not new.parent.is_dir():
        raise BadInput("NEW", str(new), "a file in a directory that exists")
    check_writable(new.parent, "NEW")
    write_text(new, commented(load_experiment(file, overrides)))
    console.print(f"written: {new}; `dpp2 run {new}` runs it")


@app.command(epilog=examples("dpp2 explain network.topology", "dpp2 explain noise", "dpp2 explain algorithm.alpha"))
def explain(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A section, or section.key.")], json: Json = False
) -> None:
    """Say what a key of an experiment file means and accepts, and what its default is."""
    found = explained(key)
    print_json(found) if json else _print(found)


def _print(found: Explanation) -> None:
    console.print(f"{found.name}: {found.meaning}" if found.meaning else found.name)
    several = len(found.accepted) > 1
    for one in found.accepted:
        default = "no default" if one.default is None else f"default {one.default}"
        where = f" ({', '.join(one.kinds)})" if several else ""
        console.print(f"accepts {one.accepts}; {default}{where}")
    if found.choices:
        print_table(("", ""), [(one.name, one.summary) for one in found.choices], narrow=True)
