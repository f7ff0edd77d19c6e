"""The gRPC status that a peer gets for what it did wrong: one table, so that nobody improvises."""

from __future__ import annotations

import grpc

from dpp2.node.errors import PeerFault

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
    "not a probe": grpc.StatusCode.PERMISSION_DENIED,
    "bad metadata": grpc.StatusCode.INVALID_ARGUMENT,
    "bad call": grpc.StatusCode.INVALID_ARGUMENT,
    "not a frame": grpc.StatusCode.INVALID_ARGUMENT,
    "bad senders": grpc.StatusCode.INVALID_ARGUMENT,
    "bad phase": grpc.StatusCode.INVALID_ARGUMENT,
    "wrong dimension": grpc.StatusCode.INVALID_ARGUMENT,
    "not finite": grpc.StatusCode.INVALID_ARGUMENT,
    "stale": grpc.StatusCode.OUT_OF_RANGE,
    "future": grpc.StatusCode.OUT_OF_RANGE,
    "other bytes": grpc.StatusCode.ALREADY_EXISTS,
    "bad hello": grpc.StatusCode.INVALID_ARGUMENT,
    "other hello": grpc.StatusCode.ALREADY_EXISTS,
    "too large": grpc.StatusCode.INVALID_ARGUMENT,
    "oversize": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "too many copies": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "too many unread": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "not reading": grpc.StatusCode.DEADLINE_EXCEEDED,
    "replaced": grpc.StatusCode.ABORTED,
}


def status_of(fault: PeerFault) -> grpc.StatusCode:
    return STATUS[fault.kind]
