"""The `dpp2` command. A node starts without the rest of the command line, which takes longer to load than it does."""

from __future__ import annotations

import os
import signal
import sys

_SETTINGS = {
    # Read by BLAS when it is loaded. Our matrices are small: threads would spend more on waiting for each other than
    # they save, many times more on a busy machine. What runs on all cores here does so by itself.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "GRPC_VERBOSITY": "NONE",  # what fails, we say in our own words
}
_INTERRUPTED = 130


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["node"]:
        from dpp2.node.__main__ import main as node

        sys.exit(node(words[1:]))
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    handler = _quiet_while_loading()
    from dpp2.orchestrator.commands import is_overview, load, print_overview

    if is_overview(words) and "_DPP2_COMPLETE" not in os.environ:
        print_overview()
        sys.exit(0 if words else 2)
    from dpp2.orchestrator.cli import main as commands

    load(words)
    signal.signal(signal.SIGINT, handler)
    commands()


def _quiet_while_loading() -> signal._HANDLER:
    """Ctrl-C before a command has begun ends the process; it is no error in the module that was being loaded."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    return before


if __name__ == "__main__":
    main()
