"""What can go wrong, split by whose fault it is.

`BadInput` is the caller's: it carries the field, its value and what would have been accepted, and reads as one
sentence. The command line prints that sentence and exits with 2; nothing else is ever raised for bad input.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

_LONGEST_VALUE = 60


class _Nothing:
    """Stands for a value that was not given, in sentences."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


class BadInput(ValueError):
    """An input was refused before any work was done.

    >>> str(BadInput("noise.u_w", -1, "a number ≥ 0"))
    'noise.u_w = -1: expected a number ≥ 0'
    """

    def __init__(self, field: str, value: Any, accepted: str) -> None:
        self.field = field
        self.value = value
        self.accepted = accepted
        super().__init__(f"{field} = {_shown(value)}: expected {accepted}")

    def __reduce__(self) -> tuple[Callable[..., BadInput], tuple[type[BadInput], str, Any, str]]:
        """Between processes an exception travels as what it was made of, not as its sentence."""
        return _made_again, (type(self), self.field, self.value, self.accepted)


class MissingData(BadInput):
    """An agent's data are not on this machine. Whoever can do without them may go on."""


class Inadmissible(BadInput):
    """A well-formed experiment under which its algorithm is not defined: its graph, its weights or its step."""


class UnknownName(BadInput):
    """A key or a kind that does not exist; the nearest one that does is suggested."""

    def __init__(self, field: str, value: Any, name: Any, known: list[str], kind: str = "") -> None:
        near = get_close_matches(str(name), known, n=1)
        suggestion = f" (did you mean {near[0]!r}?)" if near else ""
        super().__init__(field, value, f"{kind}one of {', '.join(sorted(set(known)))}{suggestion}")


def _made_again(cls: type[BadInput], field: str, value: Any, accepted: str) -> BadInput:
    made = cls.__new__(cls)
    BadInput.__init__(made, field, value, accepted)
    return made


def _shown(value: Any) -> str:
    text, half = repr(value), _LONGEST_VALUE // 2  # of a long path the end matters as much as the beginning
    return text if len(text) <= _LONGEST_VALUE else f"{text[:half]}…{text[-half:]}"


def one_line(error: BaseException) -> str:
    """An exception as part of a sentence."""
    try:
        text = " ".join(str(error).split()).rstrip(".")
    except Exception:  # a class of the user's own may say what it likes, or nothing
        text = ""
    kind = type(error).__name__
    return f"{kind}: {text[:160]}" if text else kind
