"""Waits where the page will be, until somebody asks for it; only then the page itself is loaded, in the same process.

Run as a script by whoever starts a run, and it imports nothing of ours: a page that nobody looks at costs a run a few
milliseconds, where loading it would cost as much as a thousand rounds.
    python -I -S doorstep.py DESCRIPTOR PARENT URL COMMAND …
URL is opened in a browser; where it is empty, somebody has to come unasked.
"""

from __future__ import annotations

import os
import select
import sys

_NICE = 5
_UNASKED_SECONDS = 30.0  # after which it ends, once the run has gone
_LOOK_SECONDS = 1.0


def asked(listening: int, parent: int, patience: float = _UNASKED_SECONDS) -> bool:
    """Whether somebody has come. If not, whoever has started this has gone for so long that nobody will."""
    alone = 0.0
    while alone < patience:
        if select.select([listening], [], [], _LOOK_SECONDS)[0]:
            return True
        alone = 0.0 if os.getppid() == parent else alone + _LOOK_SECONDS
    return False


def give_way(group: str = "/proc/self/autogroup") -> None:
    """The run comes first. Linux may share out its cores between sessions before it looks at nice: this is one."""
    os.nice(_NICE)
    try:
        with open(group, "w") as file:
            file.write(str(_NICE))
    except OSError:  # no such thing here
        return


def main(listening: str, parent: str, url: str, *command: str) -> None:
    if url:
        import webbrowser

        webbrowser.open(url)
    give_way()
    if asked(int(listening), int(parent)):
        os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
