"""OpenTelemetry collectors that record their exports: one over HTTP, one over gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from gateway.telemetry.traces.collector import ExportError

METHOD = "opentelemetry.proto.collector.trace.v1.TraceService"


class ReceivedSpan(NamedTuple):
    """A span as the collector has it."""

    trace: str
    id: str
    parent: str
    name: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    error: str
    service: str = ""


class Received:
    """All spans, and the headers of the last export."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[ReceivedSpan] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        self.refusals: list[Response] = []
        """Responses to the next exports, which are not recorded."""

    def take(self, message: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(message)
        for resource in request.resource_spans:
            self.resources.append(_attributes(resource.resource.attributes))
            service = self.resources[-1].get("service.name", "")
            for scope in resource.scope_spans:
                self.spans += [_span(span)._replace(service=service) for span in scope.spans]

    async def until(self, enough: Callable[[list[ReceivedSpan]], object], seconds: float = 300.0) -> list[ReceivedSpan]:
        """Wait until the spans are enough."""
        async with asyncio.timeout(seconds):
            while not enough(self.spans):
                await asyncio.sleep(0.02)
        return self.spans

    def roots(self) -> list[ReceivedSpan]:
        """The spans of requests, without those of lists of models, which tests request while they start."""
        return [s for s in self.spans if s.kind == 2 and s.name != "models" and "headrace.request_id" in s.attributes]

    def trace(self, root: ReceivedSpan) -> list[ReceivedSpan]:
        """The other spans of a request, in the order of their start."""
        return sorted((s for s in self.spans if s.trace == root.trace and s.id != root.id), key=lambda s: s.start)


def _span(span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
        [(event.name, _attributes(event.attributes)) for event in span.events],
        span.status.message if span.status.code == 2 else "",
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@asynccontextmanager
async def http_collector(path: str = "/v1/traces") -> AsyncIterator[Received]:
    """OTLP over HTTP on a free port."""
    received = Received()

    async def handle(http: Request) -> Response:
        body = await http.read()
        assert http.path == path, http.path
        received.headers = dict(http.headers)
        if received.refusals:
            return received.refusals.pop(0)
        received.take(body)
        return Response(200, [("content-type", "application/x-protobuf")], b"")

    server = Server(handle)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    received.url = f"http://{host}:{port}"
    try:
        yield received
    finally:
        await server.aclose()


@asynccontextmanager
async def grpc_collector() -> AsyncIterator[Received]:
    """OTLP over gRPC on a free port, by grpcio."""
    received = Received()

    async def export(message: bytes, context: Any) -> bytes:
        received.headers = {str(key): str(value) for key, value in context.invocation_metadata()}
        received.take(message)
        return bytes(ExportTraceServiceResponse().SerializeToString())

    server = grpc.aio.server()
    handlers = {"Export": grpc.unary_unary_rpc_method_handler(export)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(METHOD, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    received.url = f"grpc://127.0.0.1:{port}"
    try:
        yield received
    finally:
        await server.stop(None)


def keys_of(spans: list[ReceivedSpan]) -> Iterator[str]:
    """The names of all attributes."""
    for span in spans:
        yield from span.attributes


class Scripted:
    """A collector that fails as scripted, then accepts."""

    def __init__(self, *ends: ExportError | float) -> None:
        self.ends = list(ends)
        self.received = Received()
        self.calls: list[float] = []
        self.closed = False

    async def export(self, message: bytes) -> int:
        self.calls.append(asyncio.get_running_loop().time())
        end = self.ends.pop(0) if self.ends else 0.0
        if isinstance(end, ExportError):
            raise end
        await asyncio.sleep(end)
        self.received.take(message)
        return 0

    async def aclose(self) -> None:
        self.closed = True
