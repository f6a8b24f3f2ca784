"""The connection to an OpenTelemetry collector: OTLP over HTTP or gRPC."""

from typing import Protocol
from urllib.parse import urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from adapters.errors import InferenceError
from adapters.http1 import client as http1
from adapters.http1.message import encode_fields
from adapters.http2 import channel as http2
from adapters.http2.status import Code, GrpcError
from adapters.types import Deadline
from adapters.wire.decoding import whole_number
from config.schema.telemetry import TracesConfig

PATH = "/v1/traces"
METHOD = b"/opentelemetry.proto.collector.trace.v1.TraceService/Export"
MAX_ANSWER = 64 * 1024

# https://opentelemetry.io/docs/specs/otlp: the failures after which a client may send again.
_STATUSES = frozenset({429, 502, 503, 504})
_CODES = frozenset(
    {
        Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED, Code.ABORTED, Code.OUT_OF_RANGE,
        Code.UNAVAILABLE, Code.DATA_LOSS,
    }
)  # fmt: skip


class ExportError(Exception):
    """An export that the collector has not accepted. `again`: it may be sent again, after `retry_after` seconds."""

    def __init__(self, message: str, *, again: bool, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.again = again
        self.retry_after = retry_after


class Collector(Protocol):
    """A connection."""

    async def export(self, message: bytes) -> int:
        """Send an export. Returns the number of spans that the collector rejected. Raises `ExportError`."""
        ...

    async def aclose(self) -> None:
        """Close it."""
        ...


def collector_of(config: TracesConfig) -> Collector:
    """The connection that a configuration describes. Connects with the first export."""
    fields = [(name.lower(), secret.get_secret_value()) for name, secret in config.headers.items()]
    fields += [(name.lower(), value) for name, value in config.plain_headers.items()]
    if config.to.startswith("grpc"):
        return GrpcCollector(config.to.replace("grpc", "http", 1), fields, config.timeout)
    return HttpCollector(config.to, fields, config.timeout)


class HttpCollector:
    """OTLP over HTTP with protobuf."""

    def __init__(self, url: str, fields: list[tuple[str, str]], timeout: float) -> None:
        self._client = http1.Client(url, connect_timeout=timeout, max_connections=1)
        self._target = (urlsplit(url).path.rstrip("/") or PATH).encode()
        self._fields = encode_fields([("content-type", "application/x-protobuf"), *fields])
        self._timeout = timeout

    async def export(self, message: bytes) -> int:
        deadline = Deadline(self._client.now() + self._timeout, self._timeout, self._timeout)
        try:
            response = await self._client.request(b"POST", self._target, self._fields, message, deadline)
            body = await response.read(MAX_ANSWER)
        except InferenceError as error:
            raise ExportError(error.message, again=True) from None
        if response.status // 100 != 2:
            after = whole_number(response.headers.get("retry-after") or "")
            raise ExportError(
                f"HTTP status {response.status}",
                again=response.status in _STATUSES,
                retry_after=None if after is None else float(after),
            )
        return _rejected(body)

    async def aclose(self) -> None:
        await self._client.aclose()


class GrpcCollector:
    """OTLP over gRPC."""

    def __init__(self, url: str, fields: list[tuple[str, str]], timeout: float) -> None:
        self._channel = http2.Channel(
            url, connect_timeout=timeout, max_connections=1, max_message=MAX_ANSWER, fields=http2.encode_fields(fields)
        )
        self._timeout = timeout

    async def export(self, message: bytes) -> int:
        deadline = Deadline(self._channel.now() + self._timeout, self._timeout, self._timeout)
        try:
            return _rejected(await self._channel.unary(METHOD, message, deadline=deadline))
        except GrpcError as error:
            raise ExportError(str(error), again=error.code in _CODES) from None
        except InferenceError as error:
            raise ExportError(error.message, again=True) from None

    async def aclose(self) -> None:
        await self._channel.aclose()


def _rejected(body: bytes) -> int:
    """The rejected spans of a response, which is empty or a message with the partial success."""
    try:
        return int(ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans)
    except Exception:
        return 0
