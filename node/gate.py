"""The gate of a node's server: every call passes it, and whoever no longer counts is shown out.

One interceptor rather than a line in every method: a method that somebody adds is guarded from the start.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import grpc

from node.admission import Admission, peer_certificate
from node.errors import PeerFault, Refusals
from node.status import status_of

Behaviour = Callable[[Any, Any], Any]


class Gate(grpc.aio.ServerInterceptor):
    """Admits by certificate. Faults are counted and answered with their status, as everywhere."""

    def __init__(self, admission: Admission, refusals: Refusals) -> None:
        self._admission, self._refusals = admission, refusals

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:  # no such method
            return None
        asked, answered = (
            "stream" if many else "unary" for many in (handler.request_streaming, handler.response_streaming)
        )
        behaviour: Behaviour = getattr(handler, f"{asked}_{answered}")
        lasts = "stream" in (asked, answered)
        wrapped: Any = getattr(grpc, f"{asked}_{answered}_rpc_method_handler")
        return wrapped(self._guarded(behaviour, lasts), handler.request_deserializer, handler.response_serializer)

    def _guarded(self, behaviour: Behaviour, lasts: bool) -> Behaviour:
        async def guarded(request: Any, context: Any) -> Any:
            try:
                pem = peer_certificate(context.auth_context())
                if lasts:
                    return await self._admission.during(pem, _whole(behaviour, request, context))
                self._admission.admit(pem, datetime.now(UTC))
            except PeerFault as fault:
                self._refusals.count(fault)
                await context.abort(status_of(fault), str(fault))
            return await behaviour(request, context)

        return guarded


async def _whole(behaviour: Behaviour, request: Any, context: Any) -> Any:
    """All of a call, whichever of gRPC's ways of answering it takes: a result, writes, or a generator."""
    answer = behaviour(request, context)
    if not inspect.isasyncgen(answer):
        return await answer
    async for reply in answer:
        await context.write(reply)
    return None
