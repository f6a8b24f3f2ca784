"""The Open Inference Protocol over gRPC: unary calls. `oip_stream` has the streams."""

from collections.abc import Awaitable, Callable
from typing import Any

from adapters import offload
from adapters.assembly import join
from adapters.base import Answer
from adapters.errors import CallerError, Forbidden, Unavailable
from adapters.grpc_health import Health
from adapters.http2.call import GrpcCall
from adapters.offload import codecs
from adapters.requests import InferRequest, ModelQuery
from adapters.types import InferKind, ModelPart
from adapters.upstreams.inferred import decode
from adapters.wire import decoding, proto_json
from adapters.wire.oip import (
    bodies as oip_bodies,
)
from adapters.wire.oip import card as oip_card
from adapters.wire.oip import proto_requests
from adapters.wire.oip import (
    proto_responses as oip_proto_answers,
)
from adapters.wire.protos import METHODS, inference
from adapters.wire.protos.tfserving import MODEL, PREDICTION
from gateway.auth.keys import Principal
from gateway.fronts import states, tensors
from gateway.fronts.decoding import decode_inference
from gateway.fronts.door import Door
from gateway.fronts.grpc import rpcs
from gateway.fronts.grpc.oip_stream import InferStream
from gateway.fronts.statistics import statistics
from gateway.telemetry import Record

_ABOUT: dict[str, ModelPart] = {"ModelMetadata": "metadata", "ModelReady": "ready", "ModelConfig": "config"}
_ELSEWHERE = (
    "TraceSetting", "LogSettings",
    "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
    "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister",
)  # fmt: skip
_SERVICES = frozenset(
    method.path.split("/")[1] for methods in (METHODS, PREDICTION, MODEL) for method in methods.values()
)
"""The services that `grpc.health.v1.Health` reports."""


class OipGrpcFront:
    """`inference.GRPCInferenceService`. `ready` reports whether this gateway is ready."""

    def __init__(self, door: Door, ready: Callable[[], bool]) -> None:
        self._door = door
        self._core = door.core
        answers: dict[str, rpcs.Answer] = {
            "ModelInfer": self._infer,
            "ModelStreamInfer": self._stream,
            "ServerMetadata": self._server,
            "RepositoryIndex": self._index,
            "ModelStatistics": self._statistics,
            **dict.fromkeys(("RepositoryModelLoad", "RepositoryModelUnload"), _order),
            **dict.fromkeys(_ABOUT, self._query),
            **dict.fromkeys(_ELSEWHERE, _elsewhere),
        }
        paths = {METHODS[name].path: answer for name, answer in answers.items()}
        self.methods = rpcs.methods_of(paths, streams=METHODS["ModelStreamInfer"].path)
        self.probes = {
            METHODS["ServerLive"].path: _probe(lambda: inference.ServerLiveResponse(live=True)),
            METHODS["ServerReady"].path: _probe(lambda: inference.ServerReadyResponse(ready=ready())),
            **Health(_SERVICES, ready).calls,
        }

    # ── the gateway itself ────────────────────────────────────────────────────────────────────────────

    async def _server(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        await call.unary()
        metadata = tensors.server_metadata()
        answer = inference.ServerMetadataResponse(
            name=metadata.name, version=metadata.version, extensions=metadata.extensions
        )
        self._reply(call, record, answer)

    async def _index(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        message = rpcs.read(inference.RepositoryIndexRequest, await call.unary())
        answer = inference.RepositoryIndexResponse()
        for entry in await states.index(self._door, principal, call.metadata):
            if entry.state == "READY" or not message.ready:
                answer.models.add(name=entry.name, version=entry.version, state=entry.state, reason=entry.reason)
        self._reply(call, record, answer)

    def _reply(self, call: GrpcCall, record: Record, answer: Any) -> None:
        rpcs.respond(self._door, call, record, answer)

    # ── one model ─────────────────────────────────────────────────────────────────────────────────────

    async def _query(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        name = call.path.rpartition("/")[2]
        method, about = METHODS[name], _ABOUT[name]
        message = rpcs.read(method.request, await call.unary())
        try:
            fields = await self._about(principal, call, record, message.name, message.version, about)
        except Unavailable:
            if about != "ready":
                raise
            self._reply(call, record, method.response(ready=False))
            return
        if about == "ready":
            answer = method.response(ready=True)
        else:
            answer = _fill(method.response, {"config": fields} if about == "config" else fields)
            if about == "metadata" and isinstance(parameters := fields.get("parameters"), dict):
                oip_card.add_parameters(answer, parameters)
        call.reply(answer.SerializeToString(), self._door.headers(record))

    async def _statistics(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        """The statistics of one model, or of each model that the client may use."""
        message = rpcs.read(inference.ModelStatisticsRequest, await call.unary())
        if message.name:
            fields = await self._about(principal, call, record, message.name, message.version, "stats")
            call.reply(_fill(inference.ModelStatisticsResponse, fields).SerializeToString(), self._door.headers(record))
            return
        answer = inference.ModelStatisticsResponse()
        for fields in await statistics(self._door, principal, call.metadata):
            answer.MergeFrom(_fill(inference.ModelStatisticsResponse, fields))
        self._reply(call, record, answer)

    async def _about(
        self, principal: Principal, call: GrpcCall, record: Record, name: str, version: str, about: ModelPart
    ) -> dict[str, Any]:
        model, version = tensors.named(self._core.snapshot, name, version)
        query = ModelQuery(model=model, version=version, about=about, timeout=rpcs.time_left(call))
        body = await tensors.queried(self._core, principal, query, call.metadata, record)
        return {} if about == "ready" else oip_bodies.decode_response_object(body)

    async def _infer(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        request = await self._request(await call.unary(), "infer", call)
        answer = await self._core.handle(principal, request, call.metadata, record)
        trailers = [*self._door.headers(record), *answer.headers]
        call.reply(await message_of(answer), trailers)

    async def _stream(self, principal: Principal, call: GrpcCall, record: Record) -> None:
        """Answer a stream. Each request in it has a separate record; the call itself has none."""
        stream = InferStream(self._door, call, principal, lambda one: self._request(one, "infer_stream", call))
        await stream.run()

    async def _request(self, message: bytes, kind: InferKind, call: GrpcCall) -> InferRequest:
        """Decode a request. Raises `CallerError` for an invalid message."""

        async def read(dropped: frozenset[str]) -> InferRequest:
            body = message
            if dropped:
                body = await offload.run(len(body), proto_requests.without_parameters, body, dropped)
            inference = await codecs.decode_message(body)
            model, version = tensors.named(self._core.snapshot, inference.model_name, inference.model_version)
            timeout = rpcs.time_left(call)
            return proto_requests.request_of(inference, body, model=model, version=version, kind=kind, timeout=timeout)

        try:
            return await read(frozenset())
        except CallerError as refusal:
            name, version = await offload.run(len(message), proto_requests.model_of, message)
            model, _ = tensors.named(self._core.snapshot, name, version)
            return await decode_inference(self._core.snapshot, model, read, refusal)


def _probe(state: Callable[[], Any]) -> Callable[[GrpcCall], Awaitable[None]]:
    async def answer(call: GrpcCall) -> None:
        await call.unary()
        call.reply(state().SerializeToString())

    return answer


async def message_of(answer: Answer) -> bytes:
    """A whole answer as a message: its own bytes, or transcoded if the upstream speaks another wire."""
    if answer.body is not None and answer.form.wire == "oip-grpc":
        return answer.body
    return await join(oip_proto_answers.infer_response_parts(await decode(answer)))


async def _order(principal: Principal, call: GrpcCall, record: Record) -> None:
    raise Forbidden(tensors.ORDERS).because("operators_only")


async def _elsewhere(principal: Principal, call: GrpcCall, record: Record) -> None:
    raise Forbidden(tensors.ELSEWHERE).because("operators_only")


def _fill(kind: Any, fields: dict[str, Any]) -> Any:
    """Convert an upstream's JSON response to a message."""
    with decoding.Checked(CallerError):
        return proto_json.fill(kind(), fields)
