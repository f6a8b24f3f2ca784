"""The Open Inference Protocol's front over HTTP: the paths of Triton and of KServe."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import NamedTuple, cast, get_args
from urllib.parse import unquote

from adapters import offload
from adapters.base import Answer
from adapters.errors import BackendError, CallerError, Forbidden, InferenceError
from adapters.http1.message import Request, Response
from adapters.offload import codecs
from adapters.requests import InferRequest, ModelQuery
from adapters.types import InferKind, ModelPart, Order
from adapters.upstreams.inferred import decode
from adapters.wire import compression, sse
from adapters.wire.oip import (
    bodies as oip_bodies,
)
from adapters.wire.oip import (
    generate as oip_generate,
)
from adapters.wire.oip import (
    request_view as oip_view,
)
from adapters.wire.oip import (
    requests as oip,
)
from adapters.wire.oip import (
    responses as oip_responses,
)
from gateway.auth.keys import Principal
from gateway.fronts import errors, states, tensors
from gateway.fronts.decoding import decode_inference
from gateway.fronts.door import STREAMED, Door, DoorPath, Fields
from gateway.fronts.statistics import statistics
from gateway.telemetry import Record

_STATISTICS = "/v2/models/stats"
_MODEL = re.compile(
    r"/v2/models/([^/]+)(?:/versions/([^/]+))?"
    r"(?:/(infer|infer_stream|generate|generate_stream|explain|ready|config|stats|trace/setting))?"
)
_ORDER = re.compile(r"/v2/repository(?:/[^/]+)?/models/([^/]+)/(load|unload)")
_INDEX = re.compile(r"/v2/repository(?:/[^/]+)?/index")
_OF_A_SERVER = re.compile(
    r"/v2/(?:(?:system|cuda)sharedmemory(?:/region/[^/]+)?/(?:status|register|unregister)|trace/setting|logging)"
)
_WHOLE = frozenset({"/v2", "/v2/models", _STATISTICS})
_NOT_FOUND = "Unknown path. The Open Inference Protocol has /v2, /v2/health, /v2/models/NAME and the paths below them."
_KINDS: frozenset[str] = frozenset(get_args(InferKind))
_LENGTH = "Inference-Header-Content-Length"
LONGEST_PATH = 1024
IN_A_THREAD = 256 * 1024
"""Bytes from which compression would delay other requests, so that it runs in a thread."""
_JSON, _BINARY, _EVENTS = "application/json", "application/octet-stream", "text/event-stream"


class OipTarget(NamedTuple):
    """A decoded path. The verb is the last word of the path, or `metadata` for a path that ends with the model."""

    verb: str
    model: str = ""
    version: str = ""


def target_of(path: bytes) -> OipTarget | None:
    """Decode a path; None for an unknown or overlong path. The result is cached, as few paths are in use."""
    return _target_of(path) if len(path) <= LONGEST_PATH else None


@lru_cache(4096)
def _target_of(path: bytes) -> OipTarget | None:
    text = unquote(path.decode("latin-1"), errors="replace").rstrip("/")
    if (match := _MODEL.fullmatch(text)) and text not in _WHOLE:
        return OipTarget(match[3] or "metadata", match[1], match[2] or "")
    if text in _WHOLE:
        return OipTarget(text)
    if _INDEX.fullmatch(text):
        return OipTarget("index")
    if match := _ORDER.fullmatch(text):
        return OipTarget(match[2], match[1])
    return OipTarget("of_a_server") if _OF_A_SERVER.fullmatch(text) else None


class OipFront:
    """The handler of `/v2`. `ready` reports whether this gateway is ready, for `/v2/health/ready`."""

    def __init__(self, door: Door, ready: Callable[[], bool]) -> None:
        self._door = door
        self._core = door.core
        self._ready = ready
        infer, query = DoorPath("/v2/models/{model}/{kind}", self._infer), DoorPath("/v2/models/{model}", self._query)
        elsewhere = DoorPath("/v2/{part}", _elsewhere)
        self._routes = {
            "/v2": DoorPath("/v2", self._server),
            "/v2/models": DoorPath("/v2/models", self._names),
            _STATISTICS: DoorPath(_STATISTICS, self._statistics),
            "index": DoorPath("/v2/repository/index", self._index),
            "of_a_server": elsewhere,
            "trace/setting": elsewhere,
            **dict.fromkeys(_KINDS, infer),
            "explain": DoorPath("/v2/models/{model}/explain", self._infer),
            **dict.fromkeys(get_args(ModelPart), query),
            **dict.fromkeys(get_args(Order), DoorPath("/v2/repository/models/{model}/{order}", _order)),
        }

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return list(self._routes.values())

    def __call__(self, http: Request) -> Awaitable[Response]:
        """Answer one request. Probes need no key, as they report nothing about models."""
        if http.target.startswith(b"/v2/health/") and http.method in ("GET", "HEAD"):
            return self._health(http)
        target = target_of(http.target)
        route = None if target is None else self._routes[target.verb]
        return self._door.serve(http, route, _NOT_FOUND, errors.oip_response, event_of=sse.encode)

    # ── the gateway itself ────────────────────────────────────────────────────────────────────────────

    async def _health(self, http: Request) -> Response:
        headers = [("content-type", _JSON)]
        aspect = http.target.removeprefix(b"/v2/health/")
        if aspect == b"live":
            return Response(200, headers, b'{"live":true}')
        if aspect != b"ready":
            return Response(404, headers, oip_responses.encode_error(_NOT_FOUND))
        return (
            Response(200, headers, b'{"ready":true}') if self._ready() else Response(503, headers, b'{"ready":false}')
        )

    async def _server(self, principal: Principal, http: Request, record: Record) -> Response:
        return self._door.respond(record, oip_bodies.encode(tensors.server_metadata()))

    async def _names(self, principal: Principal, http: Request, record: Record) -> Response:
        names = dict.fromkeys(entry.name for entry in tensors.listed(self._door, principal))
        return self._door.respond(record, oip_bodies.encode({"models": list(names)}))

    async def _index(self, principal: Principal, http: Request, record: Record) -> Response:
        only_ready = oip_bodies.decode_index_request(await http.read())
        entries = await states.index(self._door, principal, http.headers)
        listed = [entry for entry in entries if entry.state == "READY" or not only_ready]
        return self._door.respond(record, oip_bodies.encode(listed))

    async def _statistics(self, principal: Principal, http: Request, record: Record) -> Response:
        common = await statistics(self._door, principal, http.headers)
        every = [each for one in common for each in one.get("model_stats", ())]
        return self._door.respond(record, oip_bodies.encode({"model_stats": every}))

    # ── one model ─────────────────────────────────────────────────────────────────────────────────────

    async def _query(self, principal: Principal, http: Request, record: Record) -> Response:
        target = target_of(http.target)
        assert target is not None
        model, version = tensors.named(self._core.snapshot, target.model, target.version)
        query = ModelQuery(model=model, version=version, about=cast(ModelPart, target.verb))
        body = await tensors.queried(self._core, principal, query, http.headers, record)
        return Response(200, [("content-type", _JSON), *self._door.headers(record)], body)

    async def _infer(self, principal: Principal, http: Request, record: Record) -> Response:
        target, headers = _target_of(http.target), http.headers  # `__call__` has checked its length
        assert target is not None
        body = await http.read_encoded()
        opened = await http.decoded(body) if http.encoded else b""
        model, version = tensors.named(self._core.snapshot, target.model, target.version)
        encoding = (headers.get("content-encoding") or "").strip().lower()
        kind, declared = cast(InferKind, target.verb), headers.get(oip.HEADER)
        length = None if declared is None else oip.header_length(declared)
        encoding = "" if encoding == "identity" else encoding

        async def read(dropped: frozenset[str]) -> InferRequest:
            data, size, coding, plain = body, length, encoding, opened
            if dropped:
                source = opened if encoding else body
                data, size = await offload.run(len(source), oip_view.without_parameters, source, kind, length, dropped)
                coding, plain = "", b""
            seen = None
            if len(data) >= offload.SCANNED and not coding:
                seen = await offload.scan(len(data) if size is None else size, oip_view.summarize, data, kind, size)
            return oip_view.request_of(
                data,
                model=model,
                version=version,
                kind=kind,
                header_length=size,
                encoding=coding,
                seen=seen,
                accepts=headers.get("accept-encoding") or "",
                opened=plain,
            )

        try:
            request = await read(frozenset())
        except CallerError as refusal:
            request = await decode_inference(self._core.snapshot, model, read, refusal)
        answer = await self._core.handle(principal, request, headers, record)
        common = [*self._door.headers(record), *answer.headers]
        if answer.body is None:
            return _stream(request, answer, common)
        return await _whole(answer.routed(request), answer, common, headers.get("accept-encoding"))


async def _order(principal: Principal, http: Request, record: Record) -> Response:
    raise Forbidden(tensors.ORDERS).because("operators_only")


async def _elsewhere(principal: Principal, http: Request, record: Record) -> Response:
    raise Forbidden(tensors.ELSEWHERE).because("operators_only")


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


async def _whole(request: InferRequest, answer: Answer, common: Fields, accepts: str | None) -> Response:
    """A whole response: the upstream's bytes, or transcoded if the upstream speaks another wire.

    `accepts` is the client's Accept-Encoding.
    """
    form, body = answer.form, answer.body
    assert body is not None
    if form.wire == "oip-http" and form.generates == (request.kind == "generate"):
        fields = [("content-type", answer.content_type), *common]
        if form.header_length is not None:
            fields.append((_LENGTH, str(form.header_length)))
        if form.encoding:
            fields.append(("content-encoding", form.encoding))
        return Response(answer.status, fields, body)
    response = await decode(answer)
    if request.kind == "generate":
        size, length = oip_responses.json_bytes(response), None
        body = await offload.run(size, oip_generate.encode_generate, response)
    else:
        binary = oip_responses.binary_outputs(await codecs.inference_of(request))
        body, length = await codecs.encode_response(response, binary)
    fields = [("content-type", _JSON if length is None else _BINARY), *common]
    if length is not None:
        fields.append((_LENGTH, str(length)))
    if len(body) >= compression.SMALLEST and (coding := compression.chosen(accepts or None)) is not None:
        body = await _compressed(body, coding)
        fields.append(("content-encoding", coding))
    return Response(200, fields, body)


async def _compressed(body: bytes, coding: str) -> bytes:
    if len(body) < IN_A_THREAD:
        return compression.compress(body, coding)
    return await asyncio.to_thread(compression.compress, body, coding)


def _stream(request: InferRequest, answer: Answer, common: Fields) -> Response:
    fields = [("content-type", _EVENTS), *common, *STREAMED]
    return Response(answer.status, fields, EventBody(answer, generates=request.kind == "generate_stream"))


class EventBody:
    """The events of an answer. A failure after the first event is an error event in the protocol's form, the last
    one."""

    __slots__ = ("_answer", "_broken", "_generates")

    def __init__(self, answer: Answer, *, generates: bool) -> None:
        self._answer = answer
        self._generates = generates
        self._broken = False

    def __aiter__(self) -> "EventBody":
        return self

    async def __anext__(self) -> bytes:
        if self._broken:
            raise StopAsyncIteration
        try:
            piece = await self._answer.__anext__()
            form = self._answer.form
            if form.wire == "oip-http":
                return piece if form.generates == self._generates else await self._generated(piece)
            return await self._written(piece)
        except InferenceError as error:
            self._broken = True
            return sse.encode(oip_responses.encode_error(error.message))

    @staticmethod
    async def _generated(piece: bytes) -> bytes:
        """Transcode the events of a piece, which hold tensors, to objects of the generate extension."""
        texts = [data for event in piece.split(b"\n\n") if (data := sse.data_of(event))]
        return b"".join([sse.encode(await offload.run(len(each), _object_of, each)) for each in texts])

    async def _written(self, piece: bytes) -> bytes:
        """Transcode one message of a gRPC stream to an event."""
        from adapters.wire.oip import (
            proto_responses as oip_proto_answers,  # needs the gRPC extra, as does an upstream of this wire
        )

        error, message = oip_proto_answers.split_stream_response(piece)
        if error:
            return sse.encode(oip_responses.encode_error(error))
        response = oip_proto_answers.decode_infer_response(message)
        if self._generates:
            size = oip_responses.json_bytes(response)
            return sse.encode(await offload.run(size, oip_generate.encode_generate, response))
        body, _ = await codecs.encode_response(response)
        return sse.encode(body)

    async def aclose(self) -> None:
        await self._answer.aclose()


def _object_of(data: bytes) -> bytes:
    """An event with tensors as an object of the generate extension. Raises `BackendError` for an error."""
    if (message := oip_responses.error_of(data)) is not None:
        raise BackendError(message)
    return oip_generate.encode_generate(oip_responses.decode_response(data, None))
