"""What a peer can do wrong, and the gRPC status it gets for it: one table, so that nobody improvises.

A fault is the peer's: it is counted, logged once per kind, answered with its status, and leaves the state untouched.
`NodeFailed` is ours: the node cannot go on and says why.
"""

from __future__ import annotations

import logging
from collections import Counter

import grpc

log = logging.getLogger("dpp2.node")

STATUS = {
    "wrong run": grpc.StatusCode.FAILED_PRECONDITION,
    "wrong digest": grpc.StatusCode.FAILED_PRECONDITION,
    "bad run id": grpc.StatusCode.INVALID_ARGUMENT,
    "run id used": grpc.StatusCode.FAILED_PRECONDITION,
    "not prepared": grpc.StatusCode.FAILED_PRECONDITION,
    "unknown sender": grpc.StatusCode.NOT_FOUND,
    "not a neighbour": grpc.StatusCode.PERMISSION_DENIED,
    "impostor": grpc.StatusCode.UNAUTHENTICATED,
    "expired": grpc.StatusCode.UNAUTHENTICATED,
    "revoked": grpc.StatusCode.UNAUTHENTICATED,
    "not the orchestrator": grpc.StatusCode.PERMISSION_DENIED,
    "bad metadata": grpc.StatusCode.INVALID_ARGUMENT,
    "not a frame": grpc.StatusCode.INVALID_ARGUMENT,
    "bad senders": grpc.StatusCode.INVALID_ARGUMENT,
    "bad phase": grpc.StatusCode.INVALID_ARGUMENT,
    "wrong dimension": grpc.StatusCode.INVALID_ARGUMENT,
    "not finite": grpc.StatusCode.INVALID_ARGUMENT,
    "stale": grpc.StatusCode.OUT_OF_RANGE,
    "future": grpc.StatusCode.OUT_OF_RANGE,
    "other bytes": grpc.StatusCode.ALREADY_EXISTS,
    "oversize": grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class PeerFault(Exception):
    """The peer did wrong."""

    def __init__(self, kind: str, detail: str) -> None:
        self.kind = kind
        self.status = STATUS[kind]
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
