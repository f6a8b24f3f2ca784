"""Adapter of TensorFlow Serving over gRPC: `PredictionService` and `ModelService`."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError

from adapters import offload
from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError, Unsupported
from adapters.http2.channel import Channel, encode_fields
from adapters.http2.status import Code, GrpcError
from adapters.registry import Address
from adapters.requests import InferRequest, ModelOrder, ModelQuery, ModelRequest
from adapters.tensors import requested_outputs
from adapters.types import OIP_JSON, PREDICT_V1, TFSERVING_GRPC, Deadline, Usage
from adapters.upstreams import failed_status
from adapters.upstreams.dial import grpc_channel, names
from adapters.upstreams.grpc_answers import OF_THE_KEY, refuse
from adapters.upstreams.inferred import JSON, answer_of, takes_plain_inference
from adapters.upstreams.readiness import Readiness
from adapters.upstreams.tfserving.models import ModelSignatures, entries, untold
from adapters.wire import decoding
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import IndexEntry
from adapters.wire.protos.tfserving import MODEL, PREDICTION, serving
from adapters.wire.tfserving import examples as tfserving_examples
from adapters.wire.tfserving import predict as tfserving_predict
from adapters.wire.tfserving import predict_view as tfserving_view
from adapters.wire.tfserving import rest as tfserving
from adapters.wire.tfserving.predict_v1 import PredictV1Payload
from config.schema.config import PoolConfig

MAX_ANSWER = 256 * 1024 * 1024
_METHODS = {**PREDICTION, **MODEL}
_PATHS = {name: method.path.encode() for name, method in _METHODS.items()}
_OF_EXAMPLES = {"classify": "Classify", "regress": "Regress"}
"""The methods for verbs whose body has examples."""
_ALIVE = frozenset({Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION})
_SIGNATURES = "signature_def"
WHOLE = (
    "TensorFlow Serving loads all its models together: load with the parameter `config`, its ModelServerConfig as "
    "JSON. A model that is not in it is unloaded."
)


def make(pool: PoolConfig, address: Address) -> TfServingGrpcAdapter:
    """Return the adapter of one endpoint of a pool."""
    return TfServingGrpcAdapter(grpc_channel(pool, address, MAX_ANSWER), **names(pool))


class TfServingGrpcAdapter:
    """Adapter of one endpoint. `model` is the endpoint's own name of the model, if clients use another name."""

    def __init__(self, channel: Channel, *, model: str | None = None) -> None:
        self._channel = channel
        self._model = model
        self._models = ModelSignatures(self._signatures, channel.now)
        self._readiness = Readiness(self._entries, channel.now)

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._readiness.explained(self._answer(request, call), request, call)

    async def _answer(self, request: ModelRequest, call: Call) -> Answer:
        try:
            if isinstance(request, InferRequest):
                takes_plain_inference(request)
                if request.wire == "tfserving-grpc":
                    return await self._pass_on(request, call)
                if isinstance(payload := request.payload, PredictV1Payload) and payload.verb in _OF_EXAMPLES:
                    return await self._of_examples(request, payload, call)
                return await self._predict(request, call)
            if isinstance(request, ModelQuery):
                return await self._query(request, call)
            if isinstance(request, ModelOrder):
                return await self._order(request, call)
        except GrpcError as error:
            refuse(request, error)
        raise failed_status.takes_tensors(request)

    async def probe(self, timeout: float) -> None:
        """Check the model's state; without a configured model, any response is healthy."""
        call = Call(Deadline(self._channel.now() + timeout, timeout, timeout))
        try:
            versions = await self._versions(self._model or "", "", b"", call)
        except GrpcError as error:
            if self._model or error.code not in _ALIVE:
                raise BackendError(f"The health check was answered with status {error.code}.") from None
            return
        if self._model and not any(version.available for version in versions):
            raise failed_status.not_ready(ModelQuery(model=self._model), entries(self._model, versions))

    async def aclose(self) -> None:
        await self._channel.aclose()

    # ── tensors ───────────────────────────────────────────────────────────────────────────────────────

    async def _pass_on(self, request: InferRequest, call: Call) -> Answer:
        message = request.payload.body + tfserving_view.renamed("PredictRequest", self._name(request))
        content = await self._unary("Predict", message, self._metadata_fields(call), call)
        return Answer(
            content_type="application/grpc", body=content, usage=_usage(request, content), form=TFSERVING_GRPC
        )

    async def _predict(self, request: InferRequest, call: Call) -> Answer:
        inference, _ = await self._models.inference(request, self._name(request), call)
        size = sum([len(tensor.data) for tensor in inference.inputs if tensor.datatype == "BYTES"])
        message = await offload.run(size, tfserving_predict.encode_request, inference, self._name(request))
        content = await self._unary("Predict", message, self._metadata_fields(call), call)
        inferred = await offload.run(len(content), tfserving_predict.decode_response, content, request.model)
        inferred.id = inference.id
        inferred.outputs = requested_outputs(inference, inferred.outputs)
        return await answer_of(request, inferred, _usage(request, content))

    async def _of_examples(self, request: InferRequest, payload: PredictV1Payload, call: Call) -> Answer:
        name = _OF_EXAMPLES[payload.verb]
        body, model = payload.body, self._name(request)
        message = await offload.run(len(body), tfserving_examples.encode_request, name, body, model, request.version)
        content = await self._unary(name, message, self._metadata_fields(call), call)
        body = await offload.run(len(content), tfserving_examples.decode_response, name, content)
        return Answer(content_type=JSON, body=body, usage=_usage(request, content), form=PREDICT_V1)

    async def _unary(self, name: str, message: bytes, fields: bytes, call: Call) -> bytes:
        answer, _ = await self._channel.request(_PATHS[name], message, fields, call.deadline)
        return answer

    def _name(self, request: ModelRequest) -> str:
        return self._model or request.model

    def _metadata_fields(self, call: Call) -> bytes:
        return encode_fields(call.fields)

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────

    async def _query(self, query: ModelQuery, call: Call) -> Answer:
        if query.about not in ("metadata", "ready"):
            raise untold(query)
        try:
            versions = await self._versions(self._name(query), query.version, self._metadata_fields(call), call)
        except GrpcError as error:
            if query.about == "ready" and error.code not in OF_THE_KEY:
                raise failed_status.unavailable(query, error.message) from None
            raise
        return await self._models.answer(query, self._name(query), versions, call)

    async def _entries(self, request: ModelRequest, call: Call) -> list[IndexEntry]:
        try:
            versions = await self._versions(self._name(request), request.version, self._metadata_fields(call), call)
        except GrpcError:
            return []
        return entries(request.model, versions)

    async def _versions(self, model: str, version: str, fields: bytes, call: Call) -> list[tfserving.VersionState]:
        message = serving.GetModelStatusRequest()
        tfserving_predict.put_spec(message.model_spec, model, version)
        answer = await self._unary("GetModelStatus", message.SerializeToString(), fields, call)
        content = tfserving_predict.decode_answer(serving.GetModelStatusResponse, answer)
        states = {value: tfserving.STATES.get(name, "") for name, value in serving.ModelVersionStatus.State.items()}
        return [
            tfserving.VersionState(str(one.version), states.get(one.state, ""), one.status.error_message)
            for one in content.model_version_status
        ]

    async def _signatures(self, model: str, version: str, call: Call) -> dict[str, Any]:
        """Return a model's signatures in REST's JSON form."""
        message = serving.GetModelMetadataRequest(metadata_field=[_SIGNATURES])
        tfserving_predict.put_spec(message.model_spec, model, version)
        answer = await self._unary("GetModelMetadata", message.SerializeToString(), b"", call)
        content = tfserving_predict.decode_answer(serving.GetModelMetadataResponse, answer)
        with decoding.Checked(DecodeError):
            decoded = serving.SignatureDefMap.FromString(content.metadata[_SIGNATURES].value)
        plain = MessageToDict(decoded, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        signatures: dict[str, Any] = plain[_SIGNATURES]
        return signatures

    # ── orders ────────────────────────────────────────────────────────────────────────────────────────

    async def _order(self, order: ModelOrder, call: Call) -> Answer:
        """Replace the server's configuration of all models, with their versions and labels."""
        load = oip_bodies.decode_load(order.body) if order.order == "load" else oip_bodies.Load(None, {})
        if load.config is None or load.files:
            raise Unsupported(WHOLE)
        message = serving.ReloadConfigRequest()
        try:
            ParseDict(oip_bodies.decode_object(load.config.encode()), message.config)
        except ParseError as error:
            raise CallerError(f"The `config` is not a ModelServerConfig: {error}.", param="config") from None
        if not message.config.model_config_list.config:
            raise CallerError(WHOLE, param="config")
        answer = await self._unary(
            "HandleReloadConfigRequest", message.SerializeToString(), self._metadata_fields(call), call
        )
        status = tfserving_predict.decode_answer(serving.ReloadConfigResponse, answer).status
        self._models.forget()
        if status.error_code:
            raise GrpcError(status.error_code, status.error_message)
        return Answer(content_type=JSON, body=b"{}", form=OIP_JSON)


def _usage(request: InferRequest, answer: bytes) -> Usage:
    return Usage(rows=request.row_count, bytes=len(answer), exact=True)
