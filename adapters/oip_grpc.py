"""Servers of the Open Inference Protocol over gRPC: Triton, KServe, MLServer, and our own tensor runtime."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn

from google.protobuf.message import DecodeError

from adapters import oip_refusals
from adapters.base import Answer
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    InferenceError,
    TooLarge,
    Unsupported,
    UpstreamTimeout,
)
from adapters.http2.channel import Channel, encode_fields
from adapters.http2.exchange import Exchange
from adapters.http2.status import Code, GrpcError
from adapters.oip_inference import Reader
from adapters.types import DEVICE_MS, OIP_GRPC, OIP_JSON, Deadline, InferRequest, ModelQuery, ModelRequest, Usage
from adapters.wire import oip_answers, oip_bodies, oip_proto, oip_proto_answers, proto_json
from adapters.wire.protos import METHODS

_PATHS = {name: method.path.encode() for name, method in METHODS.items()}
_QUERIES = {"metadata": "ModelMetadata", "ready": "ModelReady", "config": "ModelConfig", "stats": "ModelStatistics"}
_CALLERS = frozenset({Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE, Code.FAILED_PRECONDITION, Code.ALREADY_EXISTS})
_OF_THE_KEY = frozenset({Code.UNAUTHENTICATED, Code.PERMISSION_DENIED})
_TOO_LARGE = "larger than max"
"""gRPC's own words, in a status that it has for other things too."""


@lru_cache(4096)
def _renamed(model: str, version: str) -> bytes:
    """Behind a request, whatever names it had: of a field that is there twice, the last counts."""
    return oip_proto.encode_names(model, version)


class OipGrpcAdapter:
    """One endpoint. `model` is its name for what clients call otherwise; `key` is ours, never the client's."""

    def __init__(self, channel: Channel, *, model: str | None = None, key: str | None = None) -> None:
        self._channel = channel
        self._model = model
        self._fields = encode_fields((("authorization", f"Bearer {key}"),)) if key else b""
        self._reader = Reader(self._metadata, channel.now)

    async def call(self, request: ModelRequest, deadline: Deadline) -> Answer:
        try:
            if isinstance(request, InferRequest):
                return await (self._stream if request.stream else self._infer)(request, deadline)
            if isinstance(request, ModelQuery):
                return await self._ask(request, deadline)
        except GrpcError as error:
            _refuse(request, error)
        raise oip_refusals.takes_tensors(request)

    async def probe(self, timeout: float) -> None:
        deadline = Deadline(self._channel.now() + timeout, timeout, timeout)
        try:
            told = await self._unary("ServerReady", {}, self._fields, deadline)
        except GrpcError as error:
            raise BackendError(f"The health check was answered with status {error.code}.") from None
        if not told.ready:
            raise BackendError("The server is not ready.")

    async def aclose(self) -> None:
        await self._channel.aclose()

    # ── tensors ───────────────────────────────────────────────────────────────────────────────────────

    async def _infer(self, request: InferRequest, deadline: Deadline) -> Answer:
        message = await self._message(request, deadline)
        answer, trailers = await self._channel.ask(_PATHS["ModelInfer"], message, self._told(request), deadline)
        usage = Usage(rows=request.rows, bytes=len(answer), device_ms=_device_ms(trailers), exact=True)
        return Answer(content_type="application/grpc", body=answer, usage=usage, form=OIP_GRPC)

    async def _stream(self, request: InferRequest, deadline: Deadline) -> Answer:
        message = await self._message(request, deadline)
        exchange = await self._channel.stream(_PATHS["ModelStreamInfer"], self._told(request), deadline)
        try:
            await exchange.write(message)
            exchange.half_close()
            return await MessageStream(exchange, request).begun()
        except BaseException:
            exchange.cancel()
            raise

    async def _message(self, request: InferRequest, deadline: Deadline) -> bytes:
        """The client's own, where it speaks gRPC too."""
        model = self._model or request.model
        if request.wire == "oip-grpc":
            message = request.body
        else:
            message = oip_proto.encode_infer_request(await self._reader.inference(request, model, deadline))
        return message + _renamed(model, request.version)

    def _told(self, request: ModelRequest) -> bytes:
        return self._fields + encode_fields((("x-request-id", request.request_id),))

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, query: ModelQuery, deadline: Deadline) -> Answer:
        about, model = query.about, self._model or query.model
        asked = {"name": model, "version": query.version}
        try:
            told = await self._unary(_QUERIES[about], asked, self._told(query), deadline)
        except GrpcError as error:
            if about == "ready" and error.code not in _OF_THE_KEY:
                raise oip_refusals.not_ready(query) from None
            raise
        if about == "ready":
            if not told.ready:
                raise oip_refusals.not_ready(query)
            body = oip_bodies.encode({"name": query.model, "ready": True})
        else:
            body = oip_bodies.encode(proto_json.plain(told.config if about == "config" else told))
        return Answer(content_type="application/json", body=body, usage=Usage(bytes=len(body)), form=OIP_JSON)

    async def _metadata(self, model: str, version: str, deadline: Deadline) -> oip_bodies.ModelMetadata:
        told = await self._unary("ModelMetadata", {"name": model, "version": version}, self._fields, deadline)
        return oip_bodies.decode_metadata(oip_bodies.encode(proto_json.plain(told)))

    async def _unary(self, name: str, asked: dict[str, str], fields: bytes, deadline: Deadline) -> Any:
        method = METHODS[name]
        message = method.request(**asked).SerializeToString()
        answer, _ = await self._channel.ask(_PATHS[name], message, fields, deadline)
        try:
            return method.response.FromString(answer)
        except DecodeError:
            raise BackendError("The upstream's answer cannot be read.", code="upstream_bad_response") from None


class MessageStream(Answer):
    """A decoupled model's responses, each a `ModelStreamInferResponse`, whatever the server sends them in."""

    __slots__ = ("_begun", "_exchange", "_first", "_request")

    def __init__(self, exchange: Exchange, request: InferRequest) -> None:
        usage = Usage(rows=request.rows, exact=True)
        super().__init__(content_type="application/grpc", body=None, usage=usage, form=OIP_GRPC)
        self._exchange = exchange
        self._request = request
        self._first: bytes | None = None
        self._begun = False

    async def begun(self) -> "MessageStream":
        """Wait for the first response, or for the end where there is none; what fails here may be tried elsewhere."""
        self._first = await self._next()
        return self

    async def __anext__(self) -> bytes:
        message, self._first = self._first, None
        try:
            if message is None and not self.ended:
                message = await self._next()
        except BaseException as error:
            self._exchange.cancel()
            self.end(error)
            raise
        if message is None:
            self.end(None)
            raise StopAsyncIteration
        self.usage.bytes += len(message)
        return message

    async def _next(self) -> bytes | None:
        try:
            message = await self._exchange.read()
        except GrpcError as error:
            _refuse(self._request, error)
        if message is None:
            self.usage.device_ms = _device_ms(self._exchange.trailers)
            return None
        if oip_proto_answers.is_bare(message):
            message = oip_proto_answers.encode_stream_response(message)
        elif oip_proto_answers.is_failure(message):
            words, by_model = oip_proto_answers.decode_stream_error(message)
            if self._begun or by_model:
                raise BackendError("The upstream failed in the middle of its answer.")
            raise oip_refusals.refused_in_stream(self._request, words)
        self._begun = True
        return message

    async def aclose(self) -> None:
        self._exchange.cancel()
        await super().aclose()


# ── what a status tells ───────────────────────────────────────────────────────────────────────────────────


def _refuse(request: ModelRequest, error: GrpcError) -> NoReturn:
    """The typed error behind a status that is not OK."""
    message = (error.message or "The upstream refused the request.")[: oip_answers.MAX_MESSAGE]
    if error.code in _CALLERS:
        raise CallerError(message) from None
    if error.code == Code.UNIMPLEMENTED:
        raise Unsupported(message) from None
    if error.code == Code.NOT_FOUND and request.version:
        raise oip_refusals.no_such_version(request) from None
    if error.code == Code.RESOURCE_EXHAUSTED and _TOO_LARGE in message:
        raise TooLarge(message) from None
    if error.code in (Code.INTERNAL, Code.UNKNOWN):
        oip_refusals.check_readable(request)
    if error.code in (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED):
        raise CapacityError("The upstream is overloaded.", retry_after=_pushback(error)) from None
    raise _upstream_error(error.code) from None


def _pushback(error: GrpcError) -> float | None:
    """The seconds after which gRPC's own clients may try again."""
    told = dict(error.trailers).get("grpc-retry-pushback-ms")
    return int(told) / 1000 if isinstance(told, str) and told.isdigit() and len(told) < 9 else None


def _upstream_error(code: int) -> InferenceError:
    if code in _OF_THE_KEY:
        return BackendError("The upstream refused the gateway's own credential.", code="upstream_credential")
    if code == Code.NOT_FOUND:
        return BackendError("The upstream does not know the model.", code="upstream_model_not_found")
    if code == Code.DEADLINE_EXCEEDED:
        return UpstreamTimeout("The upstream timed out.")
    return BackendError("The upstream failed.")


def _device_ms(trailers: Mapping[str, str]) -> float:
    return oip_refusals.device_ms(trailers.get(DEVICE_MS))
