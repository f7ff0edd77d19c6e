"""Calls to a node as gRPC sees them: who may call, bytes in, and a status for whatever goes wrong.

gRPC by itself would parse requests before anybody could count what is no message, and would send the text of an
unexpected error to the peer. It would also read a request, as long as a frame may be, before anybody has asked who
calls: so to gRPC every method here takes a stream, of which one message is read once the caller may call.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import InvalidStateError
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from dpp2.errors import BadInput
from dpp2.node.errors import NodeFailed, PeerFault, Refusals, told
from dpp2.node.gate import refuse
from dpp2.node.limits import REQUEST_SECONDS
from dpp2.node.v1 import wire_pb2

log = logging.getLogger("dpp2.node")

Authorise = Callable[[Any], None]  # raises a fault for whoever may not call
_SERVICE = wire_pb2.DESCRIPTOR.services_by_name["Control"]
# Answers that are under way, and streams whose peer has gone: gRPC deals with them.
_GRPCS_OWN = (grpc.aio.BaseError, grpc.aio.AioRpcError, InvalidStateError)


@asynccontextmanager
async def answering(context: Any, refusals: Refusals) -> AsyncIterator[None]:
    """Whatever goes wrong within becomes a status: faults of the peer are counted, errors of ours are logged."""
    try:
        yield
    except _GRPCS_OWN:
        raise
    except PeerFault as fault:
        await refuse(fault, context, refusals)
    except (BadInput, NodeFailed, OSError) as refusal:  # something in this node's own files, or its disk
        log.error("a call is refused: %s", refusal)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, told(refusal))
    except Exception as error:
        log.exception("a call has failed")
        await context.abort(grpc.StatusCode.INTERNAL, told(error))


def control_handler(node: Any, authorise: Authorise, refusals: Refusals) -> Any:
    """The methods of Control, each by its name in `node`: an answer, or a generator of answers."""

    def handler(method: Any) -> Any:
        read, behaviour = _reader(method.input_type.name), getattr(node, method.name)

        async def once(_: Any, context: Any) -> Any:
            async with answering(context, refusals):
                authorise(context)
                return await behaviour(read(await requested(context)))

        async def again_and_again(_: Any, context: Any) -> AsyncIterator[Any]:
            async with answering(context, refusals):
                authorise(context)
                async for reply in behaviour(read(await requested(context))):
                    yield reply

        if method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(again_and_again, response_serializer=_bytes)
        return grpc.stream_unary_rpc_method_handler(once, response_serializer=_bytes)

    handlers = {method.name: handler(method) for method in _SERVICE.methods}
    return grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers)


async def requested(context: Any) -> bytes:
    """The one message of a call."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            content = await context.read()
    except TimeoutError:
        raise PeerFault("bad call", f"no request came within {REQUEST_SECONDS:g} s") from None
    if content is grpc.aio.EOF:
        raise PeerFault("bad call", "it has no request")
    return bytes(content)


def _reader(name: str) -> Callable[[bytes], Any]:
    kind = getattr(wire_pb2, name)

    def read(content: bytes) -> Any:
        try:
            return kind.FromString(content)
        except DecodeError:
            raise PeerFault("bad call", f"{len(content)} bytes that are not a {name}") from None

    return read


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())
