"""What a peer can do wrong, and what can go wrong here.

A fault is the peer's: it is counted, logged once per kind, answered with its status (`node/status.py`), and leaves the
state untouched.
`NodeFailed` is ours: the node cannot go on and says why.

What went wrong here may hold numbers from private data, names of files, or whatever an owner's own code raised. All of
it goes into the node's own log. A peer hears `told`, which holds none of it. What a peer has said is not trusted
either: it is printed and logged as `plain` text.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence

from dpp2.errors import BadInput
from dpp2.node.limits import CALM_REFUSALS, PAUSE_SECONDS

log = logging.getLogger("dpp2.node")

_LONGEST = 300  # characters of a peer's text
_FOLDERS = re.compile(
    r"/(?:(?:[^/:;]|:(?! ))*/)*"
)  # of absolute paths; a colon within a name is not followed by a space


def plain(text: str) -> str:
    """What somebody else has said, fit for a terminal and a log: one line, bounded, nothing that steers a terminal.

    >>> plain("fine\\x1b]0;title\\x07 \\n not so")
    'fine ]0;title not so'
    """
    shown = " ".join("".join(one if one.isprintable() else " " for one in text[: 4 * _LONGEST]).split())
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def told(error: Exception) -> str:
    """What a peer hears of an error here: its kind, without values, names of files and words of an owner's code."""
    match error:
        case PeerFault():
            return str(error)  # it is about what the peer itself has said
        case NodeFailed():
            return _FOLDERS.sub("", str(error))
        case BadInput():
            return f"{error.field} is not accepted at this node; its log says why"
        case OSError() if error.strerror:
            return f"[Errno {error.errno}] {error.strerror}"
        case _:
            return f"{type(error).__name__} at this node; its log says more"


class PeerFault(Exception):
    """The peer did wrong."""

    def __init__(self, kind: str, detail: str, contradicted: Sequence[int] = ()) -> None:
        """`contradicted`: agents in whose name something else had come before."""
        self.kind, self.detail, self.contradicted = kind, detail, contradicted
        super().__init__(f"{kind}: {detail}")


class Refusals:
    """What was turned away, by kind; each kind is logged once, so that a flood of them does not flood the log."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.contradicted: Counter[int] = Counter()  # by agent
        self._calm, self._since = float(CALM_REFUSALS), 0.0  # how many more are answered at once, as of when

    def count(self, fault: PeerFault) -> None:
        if fault.kind == "replaced":  # by the peer's own next stream: it may have noticed earlier that this one is dead
            return
        self.counts[fault.kind] += 1
        self.contradicted.update(fault.contradicted)
        if self.counts[fault.kind] == 1:
            log.warning("refused (further ones are only counted): %s", plain(str(fault)))

    def pause(self, now: float) -> float:
        """Seconds before this refusal should be told: a flood of calls waits for its answers, a few do not."""
        calm = min(CALM_REFUSALS, self._calm + (now - self._since) * CALM_REFUSALS) - 1
        self._calm, self._since = max(calm, -PAUSE_SECONDS * CALM_REFUSALS), now
        return 0.0 if calm >= 0 else min(PAUSE_SECONDS, 1.0 - calm / CALM_REFUSALS)


class NodeFailed(Exception):
    """This node cannot go on."""


class Diverged(NodeFailed):
    """Numbers have passed the bound on what may be sent; nothing beyond it, or not finite, ever is."""


class Uncovered(Diverged):
    """Float64 no longer carries the noise of a run with a budget: it ends here, like one that diverged."""
