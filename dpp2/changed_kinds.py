"""An override that picks another kind: what the file says of the old kind alone has no meaning for the new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from dpp2.algorithms import ALGORITHMS
from dpp2.problems import PROBLEMS
from dpp2.schema import Registry, Section, Table
from dpp2.topology import TOPOLOGIES

# Sections that come in kinds, with the key that picks one. An algorithm decides what [noise] holds, too.
KINDS: Mapping[str, tuple[str, Registry[Any]]] = {
    "network": ("topology", TOPOLOGIES),
    "problem": ("name", PROBLEMS),
    "algorithm": ("name", ALGORITHMS),
}


def fitted(read: Mapping[str, Any], given: Mapping[str, Table]) -> tuple[dict[str, Any], list[str]]:
    """The tables of a file without the old kind's keys that the new one does not take, and their names.

    A key that neither kind has stays, and is refused as ever; so is what an override says.
    """
    tags = [f"{section}.{tag}" for section, (tag, _) in KINDS.items()]
    leaving = [name for section in KINDS for name in _leaving(section, read, given) if name not in tags]
    kept = {
        section: {key: value for key, value in table.items() if f"{section}.{key}" not in leaving}
        if isinstance(table, Mapping)
        else table
        for section, table in read.items()
    }
    return kept, leaving


def chosen_kinds(given: Mapping[str, Table]) -> str:
    """In words: which kinds the overrides pick."""
    picked = [(section, tag) for section, (tag, _) in KINDS.items() if tag in given.get(section, {})]
    return " and ".join(f"{section}.{tag} is now {given[section][tag]}" for section, tag in picked)


def _leaving(section: str, read: Mapping[str, Any], given: Mapping[str, Table]) -> Iterator[str]:
    tag, kinds = KINDS[section]
    below = read.get(section, {})
    if not isinstance(below, Mapping):
        return
    old, new = below.get(tag, kinds.names[0]), given.get(section, {}).get(tag)
    if old == new or old not in kinds or new is None or new not in kinds:
        return
    chosen = kinds[new].chosen(given[section])
    yield from _only_old(section, read, kinds[old], chosen)
    if section == "algorithm":
        yield from _only_old("noise", read, kinds[old].noise_section, chosen.noise_section)


def _only_old(section: str, read: Mapping[str, Any], old: type[Section], new: type[Section]) -> Iterator[str]:
    table = read.get(section, {})
    return (f"{section}.{key}" for key in table if old.owns(key) and not _takes(new, key, table[key]))


def _takes(cls: type[Section], key: str, value: Any) -> bool:
    """Whether a kind has such a key and accepts such a value: `eta` is a word for dpp2 and a number for yi."""
    try:
        cls.model_validate({key: value})
    except ValidationError as error:
        return all(key not in one["loc"][:1] for one in error.errors())  # others are missing: no fault of this one
    return True
