"""What probes hear. Only `Check` of the whole node is answered, and nothing that is asked is kept.

gRPC's own servicer has `Watch`, too, which keeps a queue for each caller under whatever name the caller thinks of.
Under TLS probes and the orchestrator may ask: a request can be as long as a frame, and neighbours have no need to.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2

from dpp2.node.control import Authorise, answering, requested
from dpp2.node.errors import PeerFault, Refusals

_STATES = health_pb2.HealthCheckResponse


class Health:
    """A node is well unless its run has failed, or could not be prepared."""

    def __init__(self) -> None:
        self.well = True

    def handler(self, authorise: Authorise, refusals: Refusals) -> Any:
        """gRPC itself answers other methods with UNIMPLEMENTED."""

        async def check(_: Any, context: Any) -> Any:
            async with answering(context, refusals):
                authorise(context)
                return await self._check(await requested(context), context)

        answers: Any = grpc.stream_unary_rpc_method_handler(check, response_serializer=_STATES.SerializeToString)
        return grpc.method_handlers_generic_handler(health.SERVICE_NAME, {"Check": answers})

    async def _check(self, content: bytes, context: Any) -> Any:
        try:
            service = health_pb2.HealthCheckRequest.FromString(content).service
        except DecodeError:
            raise PeerFault("bad call", f"{len(content)} bytes that are not a HealthCheckRequest") from None
        if service:
            await context.abort(grpc.StatusCode.NOT_FOUND, 'only the whole node is known here: service ""')
        return _STATES(status=_STATES.SERVING if self.well else _STATES.NOT_SERVING)
