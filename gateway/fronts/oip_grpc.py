"""The Open Inference Protocol's door over gRPC: a message in, `core.handle`, a message out. Streams: `oip_stream`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from adapters.base import Answer
from adapters.errors import BackendError, CallerError, ClientGone, Forbidden, InferenceError, Unavailable, Unsupported
from adapters.http2.call import Call
from adapters.http2.server import Limits, Server
from adapters.http2.status import GrpcError
from adapters.inferred import inferred
from adapters.types import InferKind, InferRequest, ModelOrder, ModelPart, ModelQuery
from adapters.wire import oip_bodies, oip_proto_answers, oip_proto_asked, proto_json
from adapters.wire.oip_proto import decode_infer_request
from adapters.wire.protos import METHODS, health, inference
from config.schema import HttpConfig
from gateway.auth.keys import Principal, bearer
from gateway.fronts import errors, grpc_errors, tensors
from gateway.fronts.door import Door
from gateway.fronts.oip_stream import InferStream
from gateway.telemetry import Record

_ABOUT: dict[str, ModelPart] = {"ModelMetadata": "metadata", "ModelReady": "ready", "ModelConfig": "config"}
_ELSEWHERE = (
    "TraceSetting", "LogSettings",
    "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
    "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister",
)  # fmt: skip
_SERVING = health.HealthCheckResponse(status=1).SerializeToString()
_NOT_SERVING = health.HealthCheckResponse(status=2).SerializeToString()


class Method(NamedTuple):
    """One of the service's: the operation it is logged as, who answers."""

    operation: str
    answer: Callable[[Principal, Call, Record], Awaitable[None]]


class OipGrpcFront:
    """The handler of the gRPC listener. `ready` tells whether this gateway is."""

    def __init__(self, door: Door, ready: Callable[[], bool]) -> None:
        self._door = door
        self._core = door.core
        self._ready = ready
        methods: dict[str, Callable[[Principal, Call, Record], Awaitable[None]]] = {
            "ServerMetadata": self._server,
            "RepositoryIndex": self._index,
            "ModelStatistics": self._statistics,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            **dict.fromkeys(_ABOUT, self._ask),
            **dict.fromkeys(_ELSEWHERE, _elsewhere),
        }
        self._methods = {METHODS[name].path: Method("models", answer) for name, answer in methods.items()}
        self._methods[METHODS["ModelInfer"].path] = Method("infer", self._infer)
        self._methods[METHODS["ModelStreamInfer"].path] = Method("infer", self._stream)
        self._open = {
            METHODS["ServerLive"].path: lambda: inference.ServerLiveResponse(live=True).SerializeToString(),
            METHODS["ServerReady"].path: lambda: inference.ServerReadyResponse(ready=ready()).SerializeToString(),
            "/grpc.health.v1.Health/Check": lambda: _SERVING if ready() else _NOT_SERVING,
        }

    async def __call__(self, call: Call) -> None:
        """Answer one call; whatever happens it is told of once. Probes need no key: they are told nothing of models."""
        if (probe := self._open.get(call.path)) is not None:
            await call.unary()
            call.reply(probe())
            return
        method, core = self._methods.get(call.path), self._core
        operation = method.operation if method is not None else "unknown"
        record = self._door.record(call.metadata.get("x-request-id"), operation, call.peer)
        try:
            principal = self._authenticate(call, record)
            if method is None:
                raise Unsupported("Unknown method.", code="unknown_url")
            if principal.scope is not None:
                principal.scope.check_front(method.operation)
            await method.answer(principal, call, record)
        except InferenceError as error:
            core.telemetry.end(record, error, errors.status_of(error), core.clock())
            call.fail(grpc_errors.code_of(error), error.message, self._door.headers(record))
        except GrpcError as error:
            core.telemetry.end(record, CallerError(error.message), 400, core.clock())
            raise
        except asyncio.CancelledError:
            core.telemetry.end(record, ClientGone("the client cancelled the call"), 499, core.clock())
            raise
        except Exception:
            bug = errors.internal_error()
            core.telemetry.end(record, bug, errors.status_of(bug), core.clock())
            raise

    def _authenticate(self, call: Call, record: Record) -> Principal:
        token = bearer(call.metadata.get("authorization"), call.metadata.get("x-api-key"))
        return self._door.principal(token, call.peer_certificate if token is None else None, record)

    # ── of the gateway itself ─────────────────────────────────────────────────────────────────────────

    async def _server(self, principal: Principal, call: Call, record: Record) -> None:
        await call.unary()
        told = tensors.server_metadata()
        answer = inference.ServerMetadataResponse(name=told.name, version=told.version, extensions=told.extensions)
        self._told(call, record, answer)

    async def _index(self, principal: Principal, call: Call, record: Record) -> None:
        asked = _read(inference.RepositoryIndexRequest, await call.unary())
        answer = inference.RepositoryIndexResponse()
        for entry in tensors.listed(self._door, principal):
            if entry.state == "READY" or not asked.ready:
                answer.models.add(name=entry.name, version=entry.version, state=entry.state, reason=entry.reason)
        self._told(call, record, answer)

    def _told(self, call: Call, record: Record, answer: Any) -> None:
        """An answer of the gateway's own, and the end of its request."""
        self._core.telemetry.end(record, None, 200, self._core.clock())
        call.reply(answer.SerializeToString(), self._door.headers(record))

    # ── of a model ────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, principal: Principal, call: Call, record: Record) -> None:
        name = call.path.rpartition("/")[2]
        method, about = METHODS[name], _ABOUT[name]
        asked = _read(method.request, await call.unary())
        try:
            told = await self._about(principal, call, record, asked.name, asked.version, about)
        except Unavailable:
            if about != "ready":
                raise
            self._told(call, record, method.response(ready=False))
            return
        if about == "ready":
            answer = method.response(ready=True)
        else:
            answer = _fill(method.response, {"config": told} if about == "config" else told)
        call.reply(answer.SerializeToString(), self._door.headers(record))

    async def _statistics(self, principal: Principal, call: Call, record: Record) -> None:
        """Of one model, or of each that this client may use."""
        asked = _read(inference.ModelStatisticsRequest, await call.unary())
        if asked.name:
            told = await self._about(principal, call, record, asked.name, asked.version, "stats")
            call.reply(_fill(inference.ModelStatisticsResponse, told).SerializeToString(), self._door.headers(record))
            return
        answer = inference.ModelStatisticsResponse()
        for name in dict.fromkeys(entry.name for entry in tensors.listed(self._door, principal)):
            each = self._door.record(record.request_id, record.operation, call.peer)
            told = await self._about(principal, call, each, name, "", "stats")
            answer.MergeFrom(_fill(inference.ModelStatisticsResponse, told))
        self._told(call, record, answer)

    async def _about(
        self, principal: Principal, call: Call, record: Record, name: str, version: str, about: ModelPart
    ) -> dict[str, Any]:
        model, version = tensors.named(self._core.snapshot, name, version)
        query = ModelQuery(model=model, version=version, about=about, timeout=time_left(call))
        body = await tensors.asked(self._core, principal, query, call.metadata, record)
        return {} if about == "ready" else oip_bodies.decode_told(body)

    async def _load(self, principal: Principal, call: Call, record: Record) -> None:
        asked = _read(inference.RepositoryModelLoadRequest, await call.unary())
        load = oip_bodies.Load(None, {})
        for name, value in asked.parameters.items():
            if name.startswith("file:"):
                load.files[name.removeprefix("file:")] = value.bytes_param
            elif name == "config":
                load.config = value.string_param
            else:
                raise CallerError(f"Unknown load parameter `{name[:64]}`. Known: config, file:PATH.", param=name[:64])
        order = ModelOrder(model=asked.model_name, order="load", body=oip_bodies.encode_load(load))
        await self._order(principal, call, record, order, inference.RepositoryModelLoadResponse())

    async def _unload(self, principal: Principal, call: Call, record: Record) -> None:
        asked = _read(inference.RepositoryModelUnloadRequest, await call.unary())
        dependents = asked.parameters["unload_dependents"].bool_param
        body = oip_bodies.encode({"parameters": {"unload_dependents": dependents}})
        order = ModelOrder(model=asked.model_name, order="unload", body=body)
        await self._order(principal, call, record, order, inference.RepositoryModelUnloadResponse())

    async def _order(self, principal: Principal, call: Call, record: Record, order: ModelOrder, answer: Any) -> None:
        order.request_id = record.request_id
        await self._core.order(principal, order, call.metadata, record)
        self._told(call, record, answer)

    async def _infer(self, principal: Principal, call: Call, record: Record) -> None:
        request = self._request(await call.unary(), "infer", call)
        answer = await tensors.inferred(self._core, principal, request, call.metadata, record)
        trailers = [*self._door.headers(record), *answer.headers]
        call.reply(message_of(answer), trailers)

    async def _stream(self, principal: Principal, call: Call, record: Record) -> None:
        """Each request in it has a record of its own: of the call itself nothing is told."""
        stream = InferStream(self._door, call, principal, lambda one: self._request(one, "infer_stream", call))
        await stream.run()

    def _request(self, message: bytes, kind: InferKind, call: Call) -> InferRequest:
        """Raises `CallerError` for a message that is no request."""
        asked = decode_infer_request(message)
        model, version = tensors.named(self._core.snapshot, asked.model_name, asked.model_version)
        request = oip_proto_asked.request_of(asked, message, model=model, version=version, kind=kind)
        request.timeout = time_left(call)
        return request


def grpc_server(door: Door, ready: Callable[[], bool], http: HttpConfig) -> Server:
    """The gRPC listener, within the bounds that clients of HTTP have too."""
    limits = Limits(
        max_head=http.max_head,
        max_message=http.max_body,
        max_connections=http.max_connections,
        greeting_timeout=http.head_timeout,
        message_timeout=http.body_timeout,
        send_timeout=http.send_timeout,
    )
    return Server(OipGrpcFront(door, ready), limits)


def time_left(call: Call) -> float | None:
    """Seconds that the client still waits; None when it says nothing of it."""
    return None if call.deadline is None else max(0.0, call.deadline - asyncio.get_running_loop().time())


def message_of(answer: Answer) -> bytes:
    """A whole answer as a message: its own bytes, or written anew where the upstream speaks another wire."""
    if answer.body is not None and answer.form.wire == "oip-grpc":
        return answer.body
    return oip_proto_answers.encode_infer_response(inferred(answer))


async def _elsewhere(principal: Principal, call: Call, record: Record) -> None:
    raise Forbidden(tensors.ELSEWHERE)


def _read(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError:
        raise CallerError(f"The message is no {kind.DESCRIPTOR.name}.", code="invalid_message") from None


def _fill(kind: Any, told: dict[str, Any]) -> Any:
    """What an upstream told in JSON as a message."""
    try:
        return proto_json.fill(kind(), told)
    except CallerError:
        raise BackendError("The upstream's answer cannot be read.", code="upstream_bad_response") from None
