"""Adapter of TorchServe over gRPC: a request is one body, a response one body or a stream of bodies."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, Unsupported
from adapters.http2.channel import Channel, encode_fields
from adapters.http2.status import Code, GrpcError
from adapters.registry import Address
from adapters.requests import AppRequest, InferRequest, ModelRequest
from adapters.types import APP, Deadline, Usage
from adapters.upstreams.apps.http_app import MAX_ANSWER, call_for, tensors
from adapters.upstreams.declared_tensors import DeclaredModel
from adapters.upstreams.dial import grpc_channel, names
from adapters.upstreams.failed_status import credential_refused
from adapters.upstreams.grpc_answers import AppMessages, check_time, refuse
from adapters.upstreams.readiness import Readiness
from adapters.upstreams.torchserve.http_client import PREDICTIONS, answered, models_of, verb_of
from adapters.upstreams.torchserve.models import ManagedModels, by_kind
from adapters.wire import torchserve
from config.schema.config import PoolConfig
from config.schema.protocols.tensors import TorchServeGrpcProtocol


def make(pool: PoolConfig, address: Address) -> TorchServeGrpcAdapter:
    """Return the adapter of one endpoint of a pool."""
    protocol = pool.protocol
    assert isinstance(protocol, TorchServeGrpcProtocol)
    channel = grpc_channel(pool, address, MAX_ANSWER)
    return TorchServeGrpcAdapter(channel, protocol, models_of(pool, address, protocol), **names(pool))


class TorchServeGrpcAdapter:
    """Adapter of one endpoint. `model` is the endpoint's own name of the model, if clients use another name."""

    def __init__(
        self,
        channel: Channel,
        protocol: TorchServeGrpcProtocol,
        models: ManagedModels | None = None,
        *,
        model: str | None = None,
    ) -> None:
        self._channel = channel
        self._protocol = protocol
        self._declared = DeclaredModel(protocol, channel.now)
        self._models = models
        self._readiness = Readiness(models.entries if models else None, channel.now)
        self._model = model

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._readiness.explained(self._answer(request, call), request, call)

    async def _answer(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, AppRequest):
            if verb_of(request) != PREDICTIONS:
                raise Unsupported("TorchServe has explanations over HTTP only.")
            return await self._predict(request, call)
        if isinstance(request, InferRequest):
            inference, body = await self._declared.encode(request, call)
            prediction = call_for(request, PREDICTIONS, body)
            return await self._declared.answer(request, inference, await tensors(self._predict(prediction, call)))
        return await answered(request, self._declared, self._models, call)

    async def _predict(self, request: AppRequest, call: Call) -> Answer:
        model = self._model or request.model
        message = torchserve.encode_request(model, request.version, self._protocol.input, request.body)
        fields = encode_fields(call.fields)
        try:
            if self._protocol.streaming:
                return await self._stream(message, fields, call, request)
            answer, _ = await self._channel.request(torchserve.PREDICTIONS, message, fields, call.deadline)
        except GrpcError as error:
            self._refuse(request, call, error)
        body = torchserve.decode_response(answer)
        return Answer(content_type="", body=body, usage=Usage(bytes=len(body), exact=True), form=APP)

    async def _stream(self, message: bytes, fields: bytes, call: Call, request: AppRequest) -> Answer:
        exchange = await self._channel.open_stream(torchserve.STREAM_PREDICTIONS, message, fields, call.deadline)
        return await AppMessages(exchange, partial(self._refuse, request, call), torchserve.decode_response).begun()

    def _refuse(self, request: ModelRequest, call: Call, error: GrpcError) -> NoReturn:
        """Raise the typed error of a status, whose message ends with the name of a Java class."""
        check_time(error, call.deadline, self._channel.now())
        kind = error.message.rpartition("\n")[2].rpartition(".")[2].strip()
        if (failure := by_kind(request, kind, error.message)) is not None:
            raise failure from None
        refuse(request, error)

    async def probe(self, timeout: float) -> None:
        deadline = Deadline(self._channel.now() + timeout, timeout, timeout)
        try:
            answer, _ = await self._channel.request(torchserve.PING, b"", b"", deadline)
        except GrpcError as error:
            if error.code == Code.PERMISSION_DENIED:
                raise credential_refused() from None
            raise BackendError(f"The health check was answered with status {error.code}.") from None
        if b"Healthy" not in torchserve.decode_response(answer):
            raise BackendError("The server is not healthy.")

    async def aclose(self) -> None:
        await self._channel.aclose()
        if self._models is not None:
            await self._models.aclose()
