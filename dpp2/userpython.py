"""Python that the user wrote: run from the very bytes that a digest covers, and whatever it raises is one sentence.

It runs with the user's own rights, as any program of theirs does. A sentence names the file and the line, and keeps the
user's exception as its cause, so a traceback shows where it came from.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TypeVar

from dpp2.errors import BadInput, MissingData, one_line

T = TypeVar("T")

_HERE = str(Path(__file__).parent)
_loading: list[str] = []  # files whose code is being loaded right now


@dataclass(frozen=True)
class UserCode:
    """Where the user's code was named, and by which words: a path, or the argument that held live objects."""

    field: str  # such as "problem.path"
    named: str

    def refused(self, accepted: str) -> BadInput:
        return BadInput(self.field, self.named, accepted)

    def read(self) -> bytes:
        try:
            return Path(self.named).read_bytes()
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            reason = getattr(error, "strerror", error)
            raise MissingData(self.field, self.named, f"a readable file ({reason})") from None

    def guarded(self, wanted: str, call: Callable[[], T]) -> T:
        """Run the user's code; whatever it raises becomes one sentence, but for Ctrl-C, which is not its own."""
        try:
            return call()
        except (BadInput, KeyboardInterrupt):
            raise
        except BaseException as error:  # GeneratorExit, SystemExit and classes of the user's own as well
            raise self.refused(f"{wanted} ({one_line(error)}){self._place(error)}") from error

    def module(self, source: bytes) -> ModuleType:
        """Compiled from these very bytes: what runs is what the digest covers, and no cache is left beside it."""
        module = ModuleType(f"dpp2_user_{hashlib.sha256(source).hexdigest()[:16]}")
        module.__file__ = self.named
        sys.modules[module.__name__] = module  # because dataclasses look their module up by name
        try:
            with _being_loaded(self.named):
                wanted = "a Python file that can be loaded"
                self.guarded(wanted, lambda: exec(compile(source, self.named, "exec"), vars(module)))
        except BadInput:
            del sys.modules[module.__name__]
            raise
        return module

    def _place(self, error: BaseException) -> str:
        """File and line of the user's own code, as deep as the exception came from."""
        frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
        own = [place for place in frames if place[0] == self.named]
        others = [place for place in frames if not place[0].startswith(_HERE) and "site-packages" not in place[0]]
        file, line = (own or others or [("", 0)])[-1]
        return f" in {Path(file).name}, line {line}" if file else ""


@contextmanager
def _being_loaded(path: str) -> Iterator[None]:
    _loading.append(path)
    try:
        yield
    finally:
        _loading.pop()


def check_not_loading() -> None:
    """A file that runs something while it is loaded would start itself again, in every process that loads it."""
    if _loading:
        wanted = 'a file that runs nothing while it is loaded: put run() under `if __name__ == "__main__":`'
        raise BadInput("run", _loading[-1], wanted)
