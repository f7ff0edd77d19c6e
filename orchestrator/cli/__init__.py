"""The command line: thin layers that parse, call and print. Exit codes: 0 done, 1 failed, 2 bad input, 130
interrupted.

Each command group has its module; importing it registers its commands on `app`.
"""

from __future__ import annotations

import io
import sys

from typer.exceptions import TyperException

from dpp2 import BadInput
from orchestrator.cli import audit, bench, certs, cluster, compare, compose, plan, privacy, reproduce, run, tap
from orchestrator.cli.app import app
from orchestrator.output import errors
from orchestrator.runner import Interrupted, RunFailed

__all__ = [
    "app",
    "audit",
    "bench",
    "certs",
    "cluster",
    "compare",
    "compose",
    "main",
    "plan",
    "privacy",
    "reproduce",
    "run",
    "tap",
]


def main() -> None:
    """Entry point: what goes wrong becomes one sentence and an exit code, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show "ε" is no reason to fail
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.exit(app(standalone_mode=False))
    except BrokenPipeError:  # `dpp2 … | head`: the reader has seen enough
        sys.stderr.close()
        sys.exit(1)
    except (TyperException, BadInput, Interrupted, KeyboardInterrupt, RunFailed, MemoryError, OSError) as ending:
        code, sentence = _ending(ending)
        if sentence:
            errors.print(f"dpp2: {sentence}")
        sys.exit(code)


def _ending(ending: BaseException) -> tuple[int, str]:
    """Exit code and sentence for what ended a command early."""
    match ending:
        case TyperException():
            said = ending.format_message()  # none when a bare `dpp2` has printed its help
            return 2, f"{said} (--help shows what is accepted)" if said else ""
        case BadInput():
            return 2, str(ending)
        case Interrupted() | KeyboardInterrupt():
            return 130, str(ending)
        case OSError():
            return 1, f"{ending.filename or 'input/output'}: {ending.strerror or ending}"
        case MemoryError():
            return 1, f"not enough memory ({ending}): fewer agents, rounds or dimensions need less"
        case _:
            return 1, str(ending)
