"""The command line: thin layers that parse, call and print. Exit codes: 0 done, 1 failed, 2 bad input, 130
interrupted.

A module registers its commands on `app`, or on a group of it; `orchestrator.commands` says which module a command
needs, and a new command is a new file. What takes long to load is imported where it is used.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from typing import Any

from typer.exceptions import TyperException

from dpp2 import BadInput
from dpp2.errors import one_line
from dpp2.orchestrator.cli.app import app
from dpp2.orchestrator.commands import call, is_overview, load, print_overview
from dpp2.orchestrator.output import errors
from dpp2.orchestrator.runner import Interrupted, RunFailed

__all__ = ["app", "main"]

_DEBUG = "--debug"


def main() -> None:
    """Entry point: what goes wrong becomes one sentence and an exit code, and with --debug a traceback before it."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show "ε" is no reason to fail
        sys.stdout.reconfigure(errors="backslashreplace")
    words = [word for word in sys.argv[1:] if word != _DEBUG]
    debug = len(words) < len(sys.argv) - 1
    try:
        sys.exit(_called(words))
    except BrokenPipeError:  # `dpp2 … | head`: the reader has seen enough
        sys.stderr.close()
        sys.exit(1)
    except (Exception, KeyboardInterrupt) as ending:
        if debug:
            traceback.print_exc()
        code, sentence = _ending(ending, words)
        if sentence:
            errors.print(f"dpp2: {sentence}")
        sys.exit(code)


def _called(words: list[str]) -> Any:
    completing = "_DPP2_COMPLETE" in os.environ  # a shell asks what may come next; its words are not ours
    if is_overview(words) and not completing:
        print_overview()
        return 0 if words else 2
    load(() if completing else words)
    return call(app, words)


def _usage(mistake: TyperException, words: list[str]) -> str:
    """What was typed wrongly. To say which other command has an option, all of them are loaded."""
    from dpp2.orchestrator.hints import unknown_option, wrong_value

    if hasattr(mistake, "option_name"):
        load()
        if hint := unknown_option(mistake, app, words):
            return hint
    if sentence := wrong_value(mistake):
        return sentence
    said = mistake.format_message()
    return f"{said} (--help shows what is accepted)" if said else ""


def _ending(ending: BaseException, words: list[str]) -> tuple[int, str]:
    """Exit code and sentence for what ended a command early."""
    match ending:
        case TyperException():
            said = _usage(ending, words)  # none when a bare `dpp2` has printed its help
            return 2, said
        case BadInput():
            return 2, str(ending)
        case Interrupted() | KeyboardInterrupt():
            return 130, str(ending)
        case OSError():
            return 1, f"{ending.filename or 'input/output'}: {ending.strerror or ending}"
        case MemoryError():
            return 1, f"not enough memory ({ending}): fewer agents, rounds or dimensions need less"
        case RunFailed():
            return 1, str(ending)
        case _:
            return 1, f"unexpected {one_line(ending)}; this is an error in dpp2, and --debug shows where"
