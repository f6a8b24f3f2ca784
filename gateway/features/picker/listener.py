"""The gRPC server of the endpoint picker."""

from collections.abc import Callable

from adapters.grpc_health import Health
from adapters.http1.budget import Budget
from adapters.http1.host import Limits
from adapters.http1.message import Handler, Refusal
from adapters.http1.relay import RelayedExchange
from adapters.http1.server import Server as HttpServer
from adapters.http2.accepted import Limits as GrpcLimits
from adapters.http2.accepted import Server
from adapters.http2.call import GrpcCall
from adapters.http2.status import Code, GrpcError
from adapters.wire.protos.envoy import PROCESS
from gateway.features.picker.processing import Processing

MOST_IMMEDIATE = 8 * 1024 * 1024
"""Bytes of a response without an endpoint, which Envoy receives in one message."""
BESIDE_BODY = 1024 * 1024
"""Bytes of a message besides a buffered body. Envoy rejects a body above its own buffer limit by itself."""
LIVENESS = "liveness"
SERVICES = ("readiness", "envoy.service.ext_proc.v3.ExternalProcessor")
"""The services of health checks besides `liveness`, by the endpoint picker protocol."""


class PickerServer(Server):
    """Serves Envoy's external processing. `handler` answers the requests as those of the HTTP listener."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        refuse: Refusal,
        ready: Callable[[], bool],
        memory: Budget,
        alternatives: int,
    ) -> None:
        super().__init__(self._process, _limits(limits), memory)
        self._host = HttpServer(handler, limits, refuse, memory)  # has no listener
        self._alternatives = alternatives
        self._expiring: set[RelayedExchange] = set()
        self._probes = Health(SERVICES, ready, always=(LIVENESS,)).calls

    async def _process(self, call: GrpcCall) -> None:
        if call.path == PROCESS.path:
            await Processing(
                call, self._host, self._expiring, most_body=MOST_IMMEDIATE, alternatives=self._alternatives
            ).run()
        elif (probe := self._probes.get(call.path)) is not None:
            await probe(call)
        else:
            raise GrpcError(Code.UNIMPLEMENTED, f"This listener serves {PROCESS.path} and health checks only.")

    async def aclose(self) -> None:
        await super().aclose()
        await self._host.aclose()


def _limits(http: Limits) -> GrpcLimits:
    return GrpcLimits(
        max_head=http.max_head,
        max_message=http.max_body + BESIDE_BODY,
        max_connections=http.max_connections,
        greeting_timeout=http.head_timeout,
        message_timeout=http.body_timeout,
        send_timeout=http.send_timeout,
    )
