"""KEDA's external scaler over gRPC: reports the replicas that pools need, and pushes when a pool starts from zero."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import DecodeError

from adapters.http2.accepted import Server
from adapters.http2.call import GrpcCall, Limits
from adapters.http2.status import Code, GrpcError
from adapters.wire.protos.keda import SCALER, externalscaler
from gateway.features.scaling.autoscaler import SAMPLE_SECONDS, Autoscaler
from gateway.features.scaling.pool_scale import PoolScale

METRIC = "headrace-replicas"
MOST_STREAMS = 256
MAX_MESSAGE = 64 * 1024


class KedaScaler:
    """The handler of the listener. The `pool` in a trigger's metadata selects the pool."""

    def __init__(self, autoscaler: Autoscaler) -> None:
        self._autoscaler = autoscaler
        self._streams = 0
        calls: dict[str, Callable[[GrpcCall], Awaitable[None]]] = {
            "IsActive": self._is_active,
            "StreamIsActive": self._stream,
            "GetMetricSpec": self._spec,
            "GetMetrics": self._metrics,
        }
        self._calls = {SCALER[name].path: handler for name, handler in calls.items()}

    async def __call__(self, call: GrpcCall) -> None:
        """Answer one call."""
        handler = self._calls.get(call.path)
        if handler is None:
            raise GrpcError(Code.UNIMPLEMENTED, "This listener serves externalscaler.ExternalScaler alone.")
        await handler(call)

    async def _is_active(self, call: GrpcCall) -> None:
        pool = await self._pool(call)
        call.reply(externalscaler.IsActiveResponse(result=pool.is_active).SerializeToString())

    async def _stream(self, call: GrpcCall) -> None:
        """Send whether the pool is active, now and after each change, until the client leaves."""
        pool = await self._pool(call)
        if self._streams >= MOST_STREAMS:
            raise GrpcError(Code.RESOURCE_EXHAUSTED, f"{MOST_STREAMS} streams are open.")
        self._streams += 1
        sent: bool | None = None
        try:
            while not call.closed:
                if pool.is_active != sent:
                    sent = pool.is_active
                    await call.write(externalscaler.IsActiveResponse(result=sent).SerializeToString())
                await asyncio.sleep(SAMPLE_SECONDS)
        finally:
            self._streams -= 1

    async def _spec(self, call: GrpcCall) -> None:
        await self._pool(call)
        spec = externalscaler.MetricSpec(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)
        call.reply(externalscaler.GetMetricSpecResponse(metricSpecs=[spec]).SerializeToString())

    async def _metrics(self, call: GrpcCall) -> None:
        request = _read(externalscaler.GetMetricsRequest, await call.unary())
        count = self._named(request.scaledObjectRef).decision.replicas
        value = externalscaler.MetricValue(metricName=METRIC, metricValue=count, metricValueFloat=float(count))
        call.reply(externalscaler.GetMetricsResponse(metricValues=[value]).SerializeToString())

    async def _pool(self, call: GrpcCall) -> PoolScale:
        return self._named(_read(externalscaler.ScaledObjectRef, await call.unary()))

    def _named(self, reference: Any) -> PoolScale:
        """The pool of a trigger. Raises `GrpcError`."""
        name = reference.scalerMetadata.get("pool", "")
        pool = self._autoscaler.pools.get(name)
        if pool is None:
            names = ", ".join(sorted(self._autoscaler.pools)) or "none"
            message = f"The trigger's metadata must have `pool`, a pool with `scale`: {names}. It has {name[:128]!r}."
            raise GrpcError(Code.INVALID_ARGUMENT, message)
        return pool


def keda_server(autoscaler: Autoscaler) -> Server:
    """The gRPC server for KEDA."""
    return Server(KedaScaler(autoscaler), Limits(max_message=MAX_MESSAGE, max_connections=MOST_STREAMS))


def _read(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError:
        raise GrpcError(Code.INVALID_ARGUMENT, f"The message is not a {kind.DESCRIPTOR.name}.") from None
