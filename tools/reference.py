"""The reference pages of the documentation site, made from what the code says of itself.

Keys come from the sections' fields (`dpp2.schema`), commands from typer, the Python API from docstrings. So a page
cannot name a key that does not exist, and a new kind, command or function is on its page without a further line.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import typer.main
from pydantic.fields import FieldInfo

import dpp2
from dpp2.changed_kinds import KINDS
from dpp2.experiment import RunSection
from dpp2.orchestrator import cli
from dpp2.orchestrator.meanings import MEANINGS
from dpp2.privacy.section import PrivacySection
from dpp2.schema import Section

Rows = list[tuple[str, ...]]


def keys_page() -> str:
    """Every key of an experiment file."""
    parts = [
        "# Keys of an experiment file\n",
        "Made from the code. `--set section.key=value` sets any of them. A default of – means that the key is unset, "
        "or that the experiment settles it when it is run.\n",
        *_section("run", {"": RunSection}),
    ]
    for name, (tag, kinds) in KINDS.items():
        parts += _section(name, {kind: kinds[kind] for kind in kinds.names}, tag)
        if name == "algorithm":
            parts += _section("noise", {kind: kinds[kind].noise_section for kind in kinds.names}, tag)
    return "\n".join([*parts, *_section("privacy", {"": PrivacySection})])


def _section(name: str, kinds: Mapping[str, type[Section]], tag: str = "") -> Iterator[str]:
    """A table of the keys that all kinds share with the same default, then one for every kind that has more."""
    yield f"## `[{name}]` {{ #{name} }}\n"
    fields = {
        kind: {field.alias or key: field for key, field in cls.model_fields.items()} for kind, cls in kinds.items()
    }
    first, *others = (_described(name, known) for known in fields.values())
    shared = [row for row in first if all(row in other for other in others)]
    if name in KINDS:
        named = ", ".join(f"[{kind}](#{name}-{kind})" for kind in kinds)
        shared.insert(0, (f"`{tag}`", f'`"{next(iter(kinds))}"`', named, MEANINGS.get(f"{name}.{tag}", "")))
    yield _table(("key", "default", "accepted", "meaning"), shared) if shared else ""
    for kind, known in fields.items():
        own = [row for row in _described(name, known) if row not in shared and row[0] != f"`{tag}`"]
        if kind:
            yield f"### {name} `{kind}` {{ #{name}-{kind} }}\n"
            yield _summary(name, kind)
        if own:
            yield _table(("key", "default", "accepted", "meaning"), own)
        elif kind:
            yield "It has no keys of its own.\n"


def _described(section: str, fields: Mapping[str, FieldInfo]) -> Rows:
    return [
        (f"`{key}`", _default(field), field.description or "", MEANINGS.get(f"{section}.{key}", ""))
        for key, field in fields.items()
    ]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True, validated_data={})
    return "–" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def _summary(section: str, kind: str) -> str:
    """The first sentence that the code says of a kind."""
    if section == "noise":
        return ""
    cls: Any = KINDS[section][1][kind]
    module = import_module(cls.__module__)
    alone = cls.__doc__ if cls.__module__ == "dpp2.topology" else module.__doc__
    return f"{_first_sentence(alone)}\n" if alone else ""


def _first_sentence(text: str) -> str:
    head, stop, _ = " ".join(text.split()).partition(". ")
    return _escaped(head + stop.strip())


def commands_page() -> str:
    """Every command with its arguments and options."""
    parts = [
        "# Commands\n",
        "Made from the code; `--help` after a command shows the same. Exit codes: 0 done, 1 failed, 2 bad input, "
        "130 interrupted.\n",
    ]
    return "\n".join([*parts, *_commands(command_tree(), "dpp2")])


def command_tree() -> Any:
    """`dpp2` with all its commands loaded."""
    for module in iter_modules(cli.__path__):
        import_module(f"dpp2.orchestrator.cli.{module.name}")
    return typer.main.get_command(cli.app)


def _commands(command: Any, name: str) -> Iterator[str]:
    below = getattr(command, "commands", {})
    if below:
        if name != "dpp2":
            yield f"## {name}\n\n{command.help or ''}\n"
        for word, one in below.items():
            yield from _commands(one, f"{name} {word}")
        return
    yield f"{'##' if name.count(' ') == 1 else '###'} {name}\n\n{_escaped(command.help or '')}\n"
    if name == "dpp2 node":
        yield f"```text\n{_node_options()}```\n"
    elif command.params:
        yield _table(("option", "default", "meaning"), [_option(one) for one in command.params if one.name != "help"])
    yield f"{command.epilog or ''}\n"


def _node_options() -> str:
    """A node starts without typer, so its help is text."""
    environment = {**os.environ, "COLUMNS": "100"}
    asked = [sys.executable, "-m", "dpp2.node", "--help"]
    return subprocess.run(asked, capture_output=True, text=True, check=True, env=environment).stdout


def _option(option: Any) -> tuple[str, ...]:
    argument = option.param_type_name == "argument"
    called = option.metavar or option.name.upper() if argument else ", ".join([*option.opts, *option.secondary_opts])
    kind = getattr(option.type_descriptor.annotation, "__name__", "value")
    takes = "" if argument or option.is_flag else f" {option.metavar or kind.upper()}"
    shown = option.default
    plain = isinstance(shown, str | int | float) and not isinstance(shown, bool) and not str(shown).startswith("/")
    needed = "must be given" if option.required else "–"
    return f"`{called}{takes}`", f"`{shown}`" if plain else needed, getattr(option, "help", "") or ""


def python_page() -> str:
    """What `from dpp2 import …` offers."""
    parts = ["# Python API\n", "Made from the code. How it is used is said in the pages before this one.\n"]
    for name in sorted(dpp2.__all__):
        thing = getattr(dpp2, name)
        if not name.startswith("_") and not isinstance(thing, ModuleType):
            parts += _documented(name, thing)
    return "\n".join(parts)


def _documented(name: str, thing: Any) -> Iterator[str]:
    yield f"## {name}\n"
    yield _signature(name, thing)
    yield f"{_prose(thing)}\n"
    if not inspect.isclass(thing):
        return
    for word, member in vars(thing).items():
        target = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if word.startswith("_") or not (inspect.isfunction(target) or isinstance(target, property)):
            continue
        yield f"### {name}.{word}\n"
        if inspect.isfunction(target):
            yield _signature(word, target)
        yield f"{_prose(target)}\n"


def _signature(name: str, thing: Any) -> str:
    try:
        said = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""
    said = said.replace("'", "").replace("<built-in function warn>", "warnings.warn")
    return f"```python\n{name}{said}\n```\n"


def _prose(thing: Any) -> str:
    """A docstring as Markdown; its doctest lines become code."""
    lines = (inspect.getdoc(thing) or "").splitlines()
    out: list[str] = []
    inside = False
    for line in lines:
        if line.startswith(">>>") and not inside:
            out += ["", "```python"]
            inside = True
        out.append(line if inside else _escaped(line))
    return "\n".join([*out, "```"] if inside else out)


def _escaped(text: str) -> str:
    return text.replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;") if "`" not in text else text


def _table(head: tuple[str, ...], rows: Rows) -> str:
    """A Markdown table without the columns that nobody fills."""
    used = [n for n in range(len(head)) if n == 0 or any(row[n] for row in rows)]
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(_cell(line[n]) for n in used)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


PAGES = {"reference/keys.md": keys_page, "reference/commands.md": commands_page, "reference/python.md": python_page}
