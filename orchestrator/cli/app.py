"""The application object and the options that commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import typer

from dpp2 import BadInput, Experiment
from dpp2.orchestrator.commands import application
from dpp2.orchestrator.output import errors
from dpp2.shipped import experiment_file, shipped_experiments

app = application()

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
    Path | None,
    typer.Argument(
        help="Experiment file (TOML), or the name of a shipped one; without any, the paper's experiment.",
        autocompletion=lambda incomplete: [name for name in shipped_experiments() if name.startswith(incomplete)],
    ),
]


def examples(*lines: str) -> str:
    """What `--help` ends with: how a command is called."""
    return "\n\n".join(["Examples:" if len(lines) > 1 else "Example:", *(f"- `{line}`" for line in lines)])


def load_experiment(file: Path | None, overrides: Sequence[str] | None) -> Experiment:
    """The experiment of a command; what an override drops from the file is said."""
    file = None if file is None else experiment_file(file)
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
    """A folder that is there or can be made: looked at before the work, and not after it."""
    if path.exists() and not path.is_dir():
        raise BadInput(option, str(path), "a directory, not a file")
    check_writable(path, option)
    return path


def drawable_later(plot: Path, option: str = "--out") -> Path:
    """A picture whose folder may have to be made first."""
    if plot.is_dir():
        raise BadInput(option, str(plot), "a file, not a directory")
    check_writable(plot.parent, option)
    return plot


def check_writable(folder: Path, option: str) -> None:
    """By a file without a name: permissions alone do not tell of a disk that is full or cannot be written."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise BadInput(option, str(folder), f"a directory that can be made, but {there} is a file")
    try:
        with TemporaryFile(dir=there) as probe:
            probe.write(bytes(1))
    except OSError as error:
        raise BadInput(option, str(folder), f"a directory that can be written ({there}: {error.strerror})") from None
