"""The gate of a node's server: every call passes it, and whoever no longer counts is shown out.

One interceptor rather than a line in every method: a method that somebody adds is guarded from the start.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import grpc

from dpp2.node.admission import Admission, peer_certificate
from dpp2.node.errors import PeerFault, Refusals, told
from dpp2.node.limits import LITTER, REFUSE_SECONDS
from dpp2.node.status import status_of

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
                await refuse(fault, context, self._refusals)
            return await behaviour(request, context)

        return guarded


class _Litter:
    """Calls that end early are left in cycles of frames and exceptions, with all of gRPC's memory for them.

    Python's own collector looks far too rarely (`node/process.py`): so it is told to after so many of them.
    """

    def __init__(self) -> None:
        self._calls = 0

    def add(self) -> None:
        self._calls += 1
        if self._calls % LITTER == 0:
            gc.collect()


LITTER_BIN = _Litter()  # one: the collector is the process's


async def refuse(fault: PeerFault, context: Any, refusals: Refusals) -> None:
    """End a call with the status of a fault, after a while. A peer that does not read hears it when it reads again."""
    refusals.count(fault)
    LITTER_BIN.add()
    await asyncio.sleep(refusals.pause(asyncio.get_running_loop().time()))
    try:
        async with asyncio.timeout(REFUSE_SECONDS):
            await context.abort(status_of(fault), told(fault))
    except TimeoutError:  # the status waits for the peer; nobody here does
        raise asyncio.CancelledError from None


async def _whole(behaviour: Behaviour, request: Any, context: Any) -> Any:
    """All of a call, whichever of gRPC's ways of answering it takes: a result, writes, or a generator."""
    answer = behaviour(request, context)
    if not inspect.isasyncgen(answer):
        return await answer
    async for reply in answer:
        await context.write(reply)
    return None
