"""What probes hear. Only `Check` of the whole node is answered, and nothing that is asked is kept.

gRPC's own servicer has `Watch`, too, which keeps a queue for each caller under whatever name the caller thinks of.
"""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

_STATES = health_pb2.HealthCheckResponse


class Health:
    """A node is well unless its run has failed, or could not be prepared."""

    def __init__(self) -> None:
        self.well = True

    def handler(self) -> Any:
        """gRPC itself answers other methods with UNIMPLEMENTED."""
        check = grpc.unary_unary_rpc_method_handler(
            self._check,
            request_deserializer=health_pb2.HealthCheckRequest.FromString,
            response_serializer=_STATES.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(health.SERVICE_NAME, {"Check": check})

    async def _check(self, request: Any, context: Any) -> Any:
        if request.service:
            await context.abort(grpc.StatusCode.NOT_FOUND, 'only the whole node is known here: service ""')
        return _STATES(status=_STATES.SERVING if self.well else _STATES.NOT_SERVING)
