"""The command line: thin layers that parse, call and print. Exit codes: 0 done, 1 failed, 2 bad input.

Each command group has its module; importing it registers its commands on `app`.
"""

from __future__ import annotations

import io
import sys

from typer.exceptions import TyperException

from dpp2 import BadInput
from orchestrator.cli import bench, plan, privacy, reproduce, run
from orchestrator.cli.app import app
from orchestrator.output import errors
from orchestrator.runner import Interrupted, RunFailed

__all__ = ["app", "bench", "main", "plan", "privacy", "reproduce", "run"]


def main() -> None:
    """Entry point: what goes wrong becomes one sentence and an exit code, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show "ε" is no reason to fail
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.exit(app(standalone_mode=False))
    except TyperException as misuse:
        if said := misuse.format_message():  # none when a bare `dpp2` has printed its help
            errors.print(f"dpp2: {said} (--help shows what is accepted)")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except RunFailed as failure:
        errors.print(f"dpp2: {failure}")
        sys.exit(1)
    except BadInput as refusal:
        errors.print(f"dpp2: {refusal}", markup=False)
        sys.exit(2)
    except Interrupted as stopped:
        errors.print(f"dpp2: {stopped}", markup=False)
        sys.exit(130)
    except BrokenPipeError:  # `dpp2 … | head`: the reader has seen enough
        sys.stderr.close()
        sys.exit(1)
    except OSError as failure:
        errors.print(f"dpp2: {failure.filename or 'input/output'}: {failure.strerror or failure}", markup=False)
        sys.exit(1)
