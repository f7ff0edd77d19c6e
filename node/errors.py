"""What a peer can do wrong, and what can go wrong here.

A fault is the peer's: it is counted, logged once per kind, answered with its status (`node/status.py`), and leaves the
state untouched.
`NodeFailed` is ours: the node cannot go on and says why.
"""

from __future__ import annotations

import logging
from collections import Counter

log = logging.getLogger("dpp2.node")


class PeerFault(Exception):
    """The peer did wrong."""

    def __init__(self, kind: str, detail: str) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {detail}")


class Refusals:
    """What was turned away, by kind; each kind is logged once, so that a flood of them does not flood the log."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def count(self, fault: PeerFault) -> None:
        self.counts[fault.kind] += 1
        if self.counts[fault.kind] == 1:
            log.warning("refused (further ones are only counted): %s", fault)


class NodeFailed(Exception):
    """This node cannot go on."""


class Diverged(NodeFailed):
    """Numbers have left the range of floating point; nothing that is not finite is ever sent."""
