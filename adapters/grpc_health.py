"""The gRPC health service of a server, `grpc.health.v1.Health`: `Check` and `Watch`."""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from google.protobuf.message import DecodeError

from adapters.http2.call import GrpcCall
from adapters.http2.status import Code, GrpcError
from adapters.wire.protos import HEALTH_METHODS, health

PERIOD = 0.5
"""Seconds between two checks of a watched state: the state depends on many parts and has no event."""
MOST_WATCHES = 256
"""Limit on the watches that are open at once: health requests need no key."""

CHECK = HEALTH_METHODS["Check"].path
WATCH = CHECK.replace("/Check", "/Watch")
"""`Watch` uses the messages of `Check`; Triton's definition of the service lacks it."""
_STATES: list[bytes] = [health.HealthCheckResponse(status=status).SerializeToString() for status in (1, 2, 3)]
_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = _STATES


class Health:
    """The health service. All `services` have the same state; the empty name is the whole server. The services in
    `always` are healthy while the process runs."""

    def __init__(self, services: Collection[str], ready: Callable[[], bool], always: Collection[str] = ()) -> None:
        self._services = frozenset(services) | {"", *always}
        self._ready = ready
        self._always = frozenset(always)
        self._watches = 0
        self.calls: dict[str, Callable[[GrpcCall], Awaitable[None]]] = {CHECK: self.check, WATCH: self.watch}

    async def check(self, call: GrpcCall) -> None:
        """Reply with the state. Raises `GrpcError` for an unknown service."""
        service = _service(await call.unary())
        if service not in self._services:
            raise GrpcError(Code.NOT_FOUND, f"unknown service {service[:128]}")
        call.reply(self._state(service))

    async def watch(self, call: GrpcCall) -> None:
        """Send the state at once and after each change, until the client disconnects or the server drains."""
        service = _service(await call.unary())
        if self._watches >= MOST_WATCHES:
            raise GrpcError(Code.RESOURCE_EXHAUSTED, f"{MOST_WATCHES} watches are open already; use Check.")
        self._watches += 1
        try:
            sent = b""
            while True:
                if (state := self._state(service)) != sent:
                    await call.write(state)
                    sent = state
                if call.connection.server.draining:
                    raise GrpcError(Code.UNAVAILABLE, "The server is shutting down.")
                await asyncio.sleep(PERIOD)
        finally:
            self._watches -= 1

    def _state(self, service: str) -> bytes:
        if service not in self._services:
            return _SERVICE_UNKNOWN
        return _SERVING if service in self._always or self._ready() else _NOT_SERVING


def _service(message: bytes) -> str:
    try:
        service: str = health.HealthCheckRequest.FromString(message).service
    except DecodeError:
        raise GrpcError(Code.INVALID_ARGUMENT, "The message is not a HealthCheckRequest.") from None
    return service
