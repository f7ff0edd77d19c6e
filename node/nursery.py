"""A warm process that nodes are forked from, where many of them share a machine: `python -m dpp2.node.nursery`.

Python, NumPy, gRPC and pydantic take 0.4 s of CPU and 40 MB to load. Here they are loaded once, and the experiment is
read once. Then every request makes a node by a fork, and memory that nobody writes to is shared. Nothing that has
threads is begun before a fork: gRPC is loaded here, and begins in the node. Nobody's data or keys are read here.

A request is one message on a Unix socket, from whoever started this process:
    {"start": [words of a node's command line]}     and the descriptor that the node announces itself on
    {"signal": 15, "pid": 1234}                     to a node that has not ended
and so is an answer: {"started": pid}, in the order of the requests, and {"ended": pid, "code": its exit code}. The
nursery is the parent of its nodes, and nodes die with it; it dies with whoever started it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from dpp2.node.__main__ import Known, die_with
from dpp2.node.__main__ import main as node
from dpp2.node.process import set_up

LONGEST = 64 << 10  # bytes of one message
_LOADED = ("numpy.random", "dpp2.node.server", "uvloop")
_ARGUMENTS = slice(45, 47)  # of /proc/PID/stat after the name: where the words of the command line begin and end


def main() -> int:
    options = _options()
    die_with(options.die_with_parent)
    set_up()
    known = _loaded(options.experiment)
    gc.freeze()  # a collection would write to every object, and nothing would be shared
    with socket.socket(fileno=options.socket) as asked:
        words = _Nursery(asked).next_node()
    return 0 if words is None else node(words, known)


def _loaded(experiment: Path | None) -> Known | None:
    """All modules that a node needs. What is wrong with the experiment, each node says itself."""
    for module in _LOADED:
        with contextlib.suppress(ImportError):  # what a node cannot do without, it says itself
            import_module(module)
    from dpp2.errors import BadInput
    from dpp2.experiment import Experiment
    from dpp2.prepared import PreparedRun

    if experiment is None:
        return None
    with contextlib.suppress(BadInput):
        return Known(experiment, PreparedRun.of(Experiment.load(experiment)))
    return None


class _Nursery:
    """Answers requests, and tells which nodes have ended."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._living: set[int] = set()
        self._news, self._wakes = os.pipe()  # Python writes to it when a node has ended
        for descriptor in (self._news, self._wakes):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wakes)

    def next_node(self) -> list[str] | None:
        """Returns in every node, with its command line; and here when nobody can ask any more."""
        while True:
            ready, _, _ = select.select([self._asked.fileno(), self._news], [], [])
            if self._news in ready:
                os.read(self._news, 4096)
                self._bury()
            if self._asked.fileno() in ready:
                content, descriptors, _, _ = socket.recv_fds(self._asked, LONGEST, 1)
                if not content:
                    return None
                request = json.loads(content)
                if "start" not in request:
                    self._pass_on(request)
                elif (words := self._fork(request["start"], *descriptors)) is not None:
                    return words

    def _fork(self, words: list[str], announce: int) -> list[str] | None:
        """Words in the node, None here."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            os.close(announce)
            self._living.add(pid)
            self._tell(started=pid)
            return None
        self._leave()
        _show_in_process_list(words)
        return [*words, "--announce", str(announce), "--die-with-parent", str(parent)]

    def _leave(self) -> None:
        """In the node: nothing of the nursery stays."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._news, self._wakes):
            os.close(descriptor)
        self._asked.close()
        os.setsid()  # Ctrl-C is the orchestrator's to hear
        _own_randomness()

    def _pass_on(self, request: dict[str, Any]) -> None:
        """To a node that is ours: its number is no other process's before it is buried."""
        if request["pid"] in self._living:
            os.kill(request["pid"], request["signal"])

    def _bury(self) -> None:
        for pid in [*self._living]:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._living.discard(pid)
                self._tell(ended=pid, code=os.waitstatus_to_exitcode(status))

    def _tell(self, **news: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # then nobody asks any more, either
            self._asked.send(json.dumps(news).encode())


def _own_randomness() -> None:
    """Keys, nonces and certificates come from the operating system at every draw. NumPy's shared generator does not."""
    import numpy as np

    np.random.seed()  # noqa: NPY002  # for an objective that draws from it


def _show_in_process_list(words: list[str]) -> None:
    """Let `ps` tell nodes apart: Linux reads a command line from where it lies in the memory of the process."""
    shown = b"\0".join(os.fsencode(word) for word in (sys.executable, "-m", "dpp2.node", *words))
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        begin, end = map(int, fields[_ARGUMENTS])
        if begin:
            ctypes.memmove(begin, shown[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dpp2 nursery", description=__doc__.splitlines()[0])
    parser.add_argument("--socket", type=int, required=True, help="descriptor of the socket that requests come on")
    parser.add_argument("--die-with-parent", type=int, required=True, help="process id of whoever starts this")
    parser.add_argument("--experiment", type=Path, help="is read here, once; without it every node reads its own")
    parser.add_argument("--room", help="as long as the longest command line of a node, which takes its place")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
