"""Adapter of servers of the Open Inference Protocol over gRPC: Triton, KServe, MLServer, the bundled tensor runtime."""

from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

from google.protobuf.message import DecodeError

from adapters import offload
from adapters.assembly import join
from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError
from adapters.http2.channel import Channel, encode_fields
from adapters.http2.exchange import Exchange
from adapters.http2.status import Code, GrpcError
from adapters.registry import Address
from adapters.requests import InferRequest, ModelOrder, ModelQuery, ModelRequest
from adapters.stream import OnePiece
from adapters.tensors import Data
from adapters.types import OIP_GRPC, OIP_JSON, Deadline, Usage
from adapters.upstreams import failed_status
from adapters.upstreams.dial import grpc_channel, names
from adapters.upstreams.grpc_answers import FAILED, OF_THE_KEY, GrpcStream, device_ms_of, refuse
from adapters.upstreams.inference import FRESH, Reader
from adapters.upstreams.inferred import MAX_ANSWER, check_explains
from adapters.upstreams.oip.dialects import PIPELINE, TRITON, Dialect, dialect_of
from adapters.upstreams.readiness import Readiness
from adapters.wire import decoding, failure_text, proto_json
from adapters.wire.error_table import by_client
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip import card as oip_card
from adapters.wire.oip import proto_requests as oip_proto
from adapters.wire.oip import proto_responses as oip_proto_answers
from adapters.wire.oip.bodies import IndexEntry
from adapters.wire.protos import METHODS
from config.schema.config import PoolConfig
from config.schema.protocols.tensors import OipGrpcProtocol

_PATHS = {name: method.path.encode() for name, method in METHODS.items()}
_QUERIES = {"metadata": "ModelMetadata", "ready": "ModelReady", "config": "ModelConfig", "stats": "ModelStatistics"}


@lru_cache(4096)
def _renamed(model: str, version: str) -> bytes:
    """Return the name fields to append to a request: the last value of a repeated field replaces the client's."""
    return oip_proto.encode_names(model, version)


def make(pool: PoolConfig, address: Address) -> "OipGrpcAdapter":
    """Return the adapter of one endpoint of a pool."""
    assert isinstance(pool.protocol, OipGrpcProtocol)
    channel = grpc_channel(pool, address, MAX_ANSWER)
    return OipGrpcAdapter(channel, dialect=dialect_of(pool.protocol.server), **names(pool))


class OipGrpcAdapter:
    """Adapter of one endpoint. `model` is the endpoint's own name of the model, if clients use another name."""

    def __init__(self, channel: Channel, *, model: str | None = None, dialect: Dialect = TRITON) -> None:
        self._channel = channel
        self._dialect = dialect
        self._routed = model
        """The name for a router; the servers behind it use a pipeline's name without its suffix."""
        self._model = model.removesuffix(PIPELINE) if model and dialect.routed_by else model
        self._reader = Reader(self._metadata, channel.now)
        self._readiness = Readiness(self._listed, channel.now)
        self._alone_until = 0.0
        """The time until which no stream is requested, since the server does not support streams."""

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        failed_status.check_version(request, self._dialect.versions)
        try:
            return await self._readiness.explained(self._answer(request, call), request, call)
        except BackendError as error:
            if self._model is None:
                raise by_client(error, None, request.model) from None
            raise

    async def _answer(self, request: ModelRequest, call: Call) -> Answer:
        try:
            if isinstance(request, InferRequest):
                check_explains(request, False)
                return await (self._stream if request.stream else self._infer)(request, call)
            if isinstance(request, ModelQuery):
                return await self._query(request, call)
            if isinstance(request, ModelOrder):
                return await self._order(request, call)
        except GrpcError as error:
            if self._dialect.blunt and error.code in FAILED and isinstance(request, InferRequest):
                with suppress(GrpcError):
                    await self._reader.check(request, self._model or request.model, call)
            refuse(request, error)
        raise failed_status.takes_tensors(request)

    async def probe(self, timeout: float) -> None:
        call = Call(Deadline(self._channel.now() + timeout, timeout, timeout))
        try:
            response = await self._unary("ServerReady", {}, b"", call)
        except GrpcError as error:
            raise BackendError(f"The health check was answered with status {error.code}.") from None
        if not response.ready:
            raise BackendError("The server is not ready.")

    async def aclose(self) -> None:
        await self._channel.aclose()

    # ── tensors ───────────────────────────────────────────────────────────────────────────────────────

    async def _infer(self, request: InferRequest, call: Call) -> Answer:
        answer, usage = await self._once(request, await self._message(request, call), call)
        if self._dialect.typed and request.wire == "oip-grpc":
            answer = await offload.run(len(answer), oip_proto_answers.as_raw, answer)
        return Answer(content_type="application/grpc", body=answer, usage=usage, form=OIP_GRPC)

    async def _once(self, request: InferRequest, message: bytes, call: Call) -> tuple[bytes, Usage]:
        answer, trailers = await self._channel.request(
            _PATHS["ModelInfer"], message, self._metadata_fields(request, call), call.deadline
        )
        return answer, Usage(rows=request.row_count, bytes=len(answer), device_ms=device_ms_of(trailers), exact=True)

    async def _stream(self, request: InferRequest, call: Call) -> Answer:
        """Return a stream of responses; a stream of one response if the server does not support streams."""
        message = await self._message(request, call)
        if self._channel.now() >= self._alone_until:
            try:
                return await self._streamed(request, message, call)
            except GrpcError as error:
                if error.code == Code.UNIMPLEMENTED:
                    self._alone_until = self._channel.now() + FRESH
                elif not (self._dialect.graphs and error.code == Code.NOT_FOUND):
                    raise
        answer, usage = await self._once(request, message, call)
        final = await join([*oip_proto_answers.stream_response_parts([answer]), oip_proto_answers.final_marker(True)])
        return OnePiece(final, content_type="application/grpc", usage=usage, form=OIP_GRPC)

    async def _streamed(self, request: InferRequest, message: bytes, call: Call) -> Answer:
        path, fields = _PATHS["ModelStreamInfer"], self._metadata_fields(request, call)
        exchange = await self._channel.open_stream(path, message, fields, call.deadline)
        return await InferMessages(exchange, request).begun()

    async def _message(self, request: InferRequest, call: Call) -> bytes:
        """Return the client's own message if it speaks gRPC, else an encoded message."""
        model = self._model or request.model
        if request.wire == "oip-grpc":
            parts: list[Data] = [request.payload.body]
        else:
            parts = oip_proto.infer_request_parts(await self._reader.inference(request, model, call))
        return await join([*parts, _renamed(model, request.version)])

    def _metadata_fields(self, request: ModelRequest, call: Call) -> bytes:
        fields = [*call.fields]
        if self._dialect.routed_by:
            fields.append((self._dialect.routed_by, self._routed or request.model))
        return encode_fields(fields)

    # ── orders ────────────────────────────────────────────────────────────────────────────────────────

    async def _order(self, order: ModelOrder, call: Call) -> Answer:
        name = "RepositoryModelLoad" if order.order == "load" else "RepositoryModelUnload"
        model = self._model or order.model
        message = METHODS[name].request(**{"repository_name" if self._dialect.name_first else "model_name": model})
        if order.order == "load":
            load = oip_bodies.decode_load(order.body)
            if load.config is not None:
                message.parameters["config"].string_param = load.config
            for path, data in load.files.items():
                message.parameters[f"file:{path}"].bytes_param = data
        elif oip_bodies.decode_unload(order.body):
            message.parameters["unload_dependents"].bool_param = True
        try:
            await self._channel.request(
                _PATHS[name], message.SerializeToString(), self._metadata_fields(order, call), call.deadline
            )
        except GrpcError as error:
            if error.code != Code.INTERNAL or not await self._was_done(order, model, call):
                raise
        self._reader.forget()
        return Answer(content_type="application/json", body=b"{}", form=OIP_JSON)

    async def _was_done(self, order: ModelOrder, model: str, call: Call) -> bool:
        """Whether an order succeeded, for a server that reports success as an error."""
        if not self._dialect.name_first:
            return False
        try:
            response = await self._unary("ModelReady", {"name": model}, self._metadata_fields(order, call), call)
        except GrpcError as error:
            return error.code == Code.NOT_FOUND and order.order == "unload"
        return bool(response.ready) == (order.order == "load")

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────

    async def _query(self, query: ModelQuery, call: Call) -> Answer:
        about, model = query.about, self._model or query.model
        fields_of_query = {"name": model, "version": query.version}
        try:
            response = await self._unary(_QUERIES[about], fields_of_query, self._metadata_fields(query, call), call)
        except GrpcError as error:
            if about == "ready" and error.code not in OF_THE_KEY:
                raise failed_status.not_ready(query, await self._listed(query, call)) from None
            raise
        if about == "ready":
            if not response.ready:
                raise failed_status.not_ready(query, await self._listed(query, call))
            body = oip_bodies.encode({"name": query.model, "ready": True})
        else:
            fields = proto_json.plain(response.config if about == "config" else response)
            if about == "metadata" and (parameters := oip_card.read_parameters(response)):
                fields["parameters"] = parameters
            body = oip_bodies.encode(fields)
        return Answer(content_type="application/json", body=body, usage=Usage(bytes=len(body)), form=OIP_JSON)

    async def _listed(self, query: ModelRequest, call: Call) -> list[IndexEntry]:
        """Return a model's entries in the repository's index; no entries if the server has no index."""
        name = self._model or query.model
        try:
            response = await self._unary("RepositoryIndex", {}, self._metadata_fields(query, call), call)
        except (GrpcError, BackendError):
            return []
        return [IndexEntry(one.name, one.version, one.state, one.reason) for one in response.models if one.name == name]

    async def _metadata(self, model: str, version: str, call: Call) -> oip_bodies.ModelMetadata:
        response = await self._unary("ModelMetadata", {"name": model, "version": version}, b"", call)
        return oip_bodies.decode_metadata(oip_bodies.encode(proto_json.plain(response)))

    async def _unary(self, name: str, fields_of_query: dict[str, str], fields: bytes, call: Call) -> Any:
        method = METHODS[name]
        message = method.request(**fields_of_query).SerializeToString()
        answer, _ = await self._channel.request(_PATHS[name], message, fields, call.deadline)
        with decoding.Checked(DecodeError):
            return method.response.FromString(answer)


# Streams of responses over gRPC, each a `ModelStreamInferResponse`.


class InferMessages(GrpcStream):
    """A stream of a decoupled model. Responses of another message type become a `ModelStreamInferResponse`."""

    __slots__ = ("_request",)

    def __init__(self, exchange: Exchange, request: InferRequest) -> None:
        usage = Usage(rows=request.row_count, exact=True)
        no = partial(refuse, request)
        super().__init__(exchange, no, content_type="application/grpc", usage=usage, form=OIP_GRPC)
        self._request = request

    def _read(self, message: bytes) -> bytes:
        if oip_proto_answers.is_bare(message):
            return oip_proto_answers.encode_stream_response(message)
        if oip_proto_answers.is_failure(message):
            words, by_model, code = oip_proto_answers.decode_stream_error(message)
            if (reported := failure_text.reported_failure(code, words)) is not None:
                raise reported
            if self._begun or by_model:
                raise failure_text.model_failure(words)
            raise failed_status.refused_in_stream(self._request, words)
        return message

    def _over(self) -> None:
        self.usage.device_ms = device_ms_of(self._exchange.trailers)
