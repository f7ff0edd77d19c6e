"""What somebody may have meant who typed an option that a command does not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import typer
import typer.main
from typer.exceptions import TyperException

from dpp2.section_keys import full_name

_ALSO = {"epsilon": "privacy.budget", "steps": "run.rounds", "iterations": "run.rounds", "nodes": "network.agents"}
_HELP = " (--help shows what is accepted)"
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
