"""Experiments that come with the package, by name: `damped` is experiments/damped.toml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dpp2.errors import UnknownName

_FOLDER = Path(__file__).parent / "experiments"  # in a checkout a link, in an installed package real files


def shipped_experiments() -> Mapping[str, Path]:
    """The files by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}


def experiment_file(name: str | Path, also: Iterable[str] = ()) -> Path:
    """A file that is there, or the shipped experiment of this name. What looks like a path is taken for one.

    `also`: what else the user could have named, for the refusal.
    """
    path = Path(name)
    if path.exists() or path.suffix or len(path.parts) != 1:
        return path
    known = shipped_experiments()
    if path.name not in known:
        raise UnknownName("FILE", str(name), path.name, [*known, *also], "a file, or ")
    return known[path.name]
