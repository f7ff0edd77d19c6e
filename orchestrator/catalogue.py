"""What there is to choose from, in words: shipped experiments, kinds, runs, and the keys of an experiment file.

Kinds and keys describe themselves (`dpp2.schema`); here is only what a key MEANS, where that is not plain from what it
accepts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from dpp2 import Experiment
from dpp2.algorithms import ALGORITHMS
from dpp2.changed_kinds import KINDS
from dpp2.errors import BadInput, UnknownName
from dpp2.orchestrator.meanings import MEANINGS
from dpp2.schema import Registry, Section, keys_of
from dpp2.section_keys import SECTIONS, full_name, section_kinds
from dpp2.shipped import shipped_experiments
from dpp2.store.files import read_json


@dataclass(frozen=True)
class Entry:
    """A line of a list."""

    name: str
    summary: str


@dataclass(frozen=True)
class Accepted:
    """What one key accepts in some kinds of its section, and its default there."""

    kinds: tuple[str, ...]
    accepts: str
    default: str | None


@dataclass(frozen=True)
class Explanation:
    """A section or a key."""

    name: str
    meaning: str | None
    accepted: tuple[Accepted, ...] = ()
    choices: tuple[Entry, ...] = ()


def _experiments() -> Iterator[Entry]:
    for name, path in shipped_experiments().items():
        first = [line.removeprefix("#").strip() for line in path.read_text(encoding="utf-8").splitlines()]
        yield Entry(name, _sentence(" ".join(first[: next(n for n, line in enumerate(first) if line[:1] == "[")])))


def _kinds(registry: Registry[Any]) -> Iterator[Entry]:
    for name in registry.known:
        cls = registry[name]
        own = cls.__doc__ if cls.__module__ == "dpp2.topology" else import_module(cls.__module__).__doc__
        yield Entry(name, _sentence(" ".join((own or "").split())))


def _runs() -> Iterator[Entry]:
    """Run directories below runs/, newest last."""
    found = [path.parent for path in Path("runs").glob("*/experiment.toml")]
    for run in sorted(found, key=lambda path: path.stat().st_mtime):
        yield Entry(str(run), _run_in_words(run))


def _run_in_words(run: Path) -> str:
    try:
        experiment = Experiment.load(run / "experiment.toml")
        words = [experiment.algorithm.name, f"{experiment.network.agents} agents"]
        spent = read_json(run / "privacy.json")
        words.append(f"{spent['rounds']} rounds")
    except (BadInput, OSError, ValueError, KeyError, TypeError):
        return "not finished"
    return ", ".join([*words, *(["audited"] if (run / "audit.json").is_file() else [])])


LISTS: Mapping[str, Callable[[], Iterator[Entry]]] = {
    "experiments": _experiments,
    "algorithms": lambda: _kinds(ALGORITHMS),
    "problems": lambda: _kinds(KINDS["problem"][1]),
    "topologies": lambda: _kinds(KINDS["network"][1]),
    "runs": _runs,
}


def explained(name: str) -> Explanation:
    """A section ("network"), a key ("network.agents") or a kind's key."""
    section, _, key = name.partition(".")
    if not key and section not in SECTIONS and (meant := full_name(section)):
        return explained(meant)
    if section not in SECTIONS:
        raise UnknownName("KEY", name, section, list(SECTIONS), "a section or section.key: ")
    classes = dict(section_kinds(section))
    if not key:
        keys = dict.fromkeys(one for cls in classes.values() for one in keys_of(cls))
        choices = tuple(Entry(f"{section}.{one}", MEANINGS.get(f"{section}.{one}", "")) for one in keys)
        return Explanation(section, MEANINGS.get(section), choices=choices)
    found = {kind: cls for kind, cls in classes.items() if key in keys_of(cls)}
    if not found:
        known = sorted({one for cls in classes.values() for one in keys_of(cls)})
        raise UnknownName("KEY", name, key, known, f"a key of [{section}]: ")
    tag, registry = KINDS.get(section, (None, None))
    if registry is not None and key == tag:
        return Explanation(name, MEANINGS.get(name), choices=tuple(_kinds(registry)))
    return Explanation(name, MEANINGS.get(name), _grouped(found, key))


def field_of(cls: type[Section], key: str) -> tuple[str, str | None]:
    """What a key accepts and its default as TOML; None where there is none."""
    field = next(field for name, field in cls.model_fields.items() if key == (field.alias or name))
    missing = field.default is None or field.default is PydanticUndefined
    return field.description or "", None if missing else json.dumps(field.default, ensure_ascii=False)


def _grouped(classes: Mapping[str, type[Section]], key: str) -> tuple[Accepted, ...]:
    """Kinds that accept the same are named together."""
    same: dict[tuple[str, str | None], list[str]] = {}
    for kind, cls in classes.items():
        same.setdefault(field_of(cls, key), []).append(kind)
    return tuple(Accepted(tuple(kinds), accepts, default) for (accepts, default), kinds in same.items())


def commented(experiment: Experiment) -> str:
    """The experiment as TOML with a comment at every key; keys that are left out stand there, too, behind a #."""
    parts = ["# An experiment. `dpp2 explain SECTION.KEY` says more, `dpp2 list algorithms` what there is to choose.\n"]
    for section, table in experiment.tables().items():
        cls = type(getattr(experiment, section))
        parts += [f"\n# {MEANINGS[section].capitalize()}.\n", f"[{section}]\n"]
        parts += [_assignment(f"{section}.{key}", key, table, field_of(cls, key)[0]) for key in keys_of(cls)]
    return "".join(parts)


def _assignment(name: str, key: str, table: Mapping[str, Any], accepts: str) -> str:
    meaning = f"# {MEANINGS[name]}\n" if name in MEANINGS else ""
    comment = meaning + (f"# Accepts {accepts}.\n" if accepts else "")
    if key not in table:
        return f"{comment}# {key} =\n"
    return f"{comment}{key} = {json.dumps(table[key], ensure_ascii=False)}\n"


def _sentence(text: str) -> str:
    """Up to the first full stop that ends one; "et al." does not."""
    return re.split(r"(?<=\.)(?<!et al\.) ", text, maxsplit=1)[0]
