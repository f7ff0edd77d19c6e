"""Sentences for words that a command cannot take: what somebody may have meant, what is missing, what is too much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import typer
import typer.main
from pydantic import ValidationError
from typer.exceptions import TyperException

from dpp2 import BadInput
from dpp2.section_keys import full_name

_ALSO = {"epsilon": "privacy.budget", "steps": "run.rounds", "iterations": "run.rounds", "nodes": "network.agents"}
_HELP = " (--help shows what is accepted)"
_TYPES = {"int": "a whole number", "list[int]": "a whole number", "float": "a number"}
_EXTRA = "Got unexpected extra argument"  # as Typer says it
_NEAR = 0.7  # how alike two names must be; "--rounds" is not a slip of the finger for "--out"


def unknown_option(error: TyperException, app: typer.Typer, words: Sequence[str]) -> str | None:
    """The sentence for an option that does not exist; None for any other mistake.

    >>> unknown_option(TyperException("other"), typer.Typer(), []) is None
    True
    """
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if option is None or context is None or not hasattr(error, "possibilities"):
        return None
    command = context.command_path.removeprefix("dpp2 ")
    return f"{command} has no option {option}{next(_meant(option, context, app, words), _HELP)}"


def wrong_value(error: TyperException) -> str | None:
    """The sentence for a parameter that is missing, cannot be read or is too much; None for any other mistake."""
    param, context = getattr(error, "param", None), getattr(error, "ctx", None)
    if context is None:
        return None
    command = context.command_path.removeprefix("dpp2 ")
    if param is not None and hasattr(error, "param_type"):
        return f"{command} needs {_called(param)}: {_beginning_small(getattr(param, 'help', ''))}"
    if param is not None and isinstance(error.__context__, ValidationError) and param.bare_type() in _TYPES:
        typed = error.__context__.errors()[0]["input"]
        return str(BadInput(_name(param), typed, _TYPES[param.bare_type()]))
    if param is None and error.message.startswith(_EXTRA):
        taken = [_name(each) for each in context.command.params if each.param_type_name == "argument"]
        extra = error.message.removeprefix(_EXTRA).partition("(")[2].rpartition("(")[2].rstrip(")")
        return f"{extra!r} is too much: {command} takes {' '.join(taken) or 'options only'}{_HELP}"
    return None


def _called(param: Any) -> str:
    name = _name(param)
    return f"{name} {param.metavar}" if name.startswith("-") else name


def _name(param: Any) -> str:
    return str(param.metavar if param.param_type_name == "argument" else max(param.opts, key=len))


def _beginning_small(text: str) -> str:
    """A help text as the end of a sentence.

    >>> _beginning_small("The experiment (TOML).")
    'the experiment (TOML)'
    """
    return f"{text[:1].lower()}{text[1:].rstrip('.')}"


def _meant(option: str, context: Any, app: typer.Typer, words: Sequence[str]) -> Iterator[str]:
    """The likeliest first: a key of the experiment, a slip of the finger, an option of another command."""
    own, key = _options(context.command), _key(option)
    if key and "--set" in own:
        yield f"; did you mean --set {key}={_value(option, words)}?"
    if near := get_close_matches(option, own, n=1, cutoff=_NEAR):
        yield f"; did you mean {near[0]}?"
    others = [name for name, inner in _commands(typer.main.get_command(app), "dpp2") if option in _options(inner)]
    if others:
        yield f"; {' and '.join(others[:3])} {'have' if others[1:] else 'has'} it"


def _key(option: str) -> str | None:
    name = option.lstrip("-").replace("-", "_")
    return _ALSO.get(name) or full_name(name)


def _value(option: str, words: Sequence[str]) -> str:
    """What was typed after the option."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and after and not after.startswith("--"):
            return after
    return "VALUE"


def _options(command: Any) -> list[str]:
    return [name for param in command.params for name in param.opts if name.startswith("--")]


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in getattr(group, "commands", {}).items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command
