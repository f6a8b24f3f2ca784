"""The gateway's view of an Open Inference Protocol request over gRPC, which is decoded whole."""

import dataclasses
from typing import Any

import msgspec
from google.protobuf.message import DecodeError
from msgspec import Raw
from msgspec.structs import replace

from adapters.errors import CallerError
from adapters.requests import Codec, Fields, InferRequest, ModelRequest, R
from adapters.tensors import SHARED_MEMORY, Data, Inference, Parameter, Parameters
from adapters.types import InferKind
from adapters.wire.oip import parameters as oip_parameters
from adapters.wire.oip.payloads import GrpcPayload
from adapters.wire.oip.proto_requests import decode_infer_request, encode_infer_request
from adapters.wire.oip.request_view import rows_of, separate, sequence_name, with_model, without_model
from adapters.wire.protos import inference as messages

_encode = msgspec.json.Encoder().encode
_parameters = msgspec.json.Decoder(dict[str, str | int | float | bool]).decode


def request_of(
    inference: Inference, message: bytes, *, model: str, version: str, kind: InferKind, timeout: float | None = None
) -> InferRequest:
    """The request of a decoded message. Raises `CallerError` for an invalid sequence id."""
    described = [*[each.parameters for each in inference.inputs], *[each.parameters for each in inference.outputs]]
    if any(SHARED_MEMORY in each for each in described):
        raise oip_parameters.in_shared_memory()
    parameters = inference.parameters
    id_ = parameters.get("sequence_id")
    if isinstance(id_, float | bool):
        raise CallerError("`sequence_id` must be a whole number or a text.", param="sequence_id")
    return InferRequest(
        model=model,
        version=version,
        kind=kind,
        stream=kind == "infer_stream",
        payload=GrpcPayload(body=message, decoded=inference),
        size=len(message),
        rows=rows_of(inference.inputs[0].shape) if inference.inputs else 0,
        timeout=timeout,
        sequence=sequence_name(id_),
        starts=parameters.get("sequence_start") is True,
        ends=parameters.get("sequence_end") is True,
        codec=GRPC,
    )


def model_of(message: bytes) -> tuple[str, str]:
    """The name and the version of the model. Raises `CallerError`."""
    request = _parsed(message)
    return request.model_name, request.model_version


def without_parameters(message: bytes, names: frozenset[str]) -> bytes:
    """The message without these parameters. Raises `CallerError`."""
    request = _parsed(message)
    for name in names & request.parameters.keys():
        del request.parameters[name]
    encoded: bytes = request.SerializeToString()
    return encoded


def _parsed(message: bytes) -> Any:
    try:
        return messages.ModelInferRequest.FromString(message)
    except DecodeError:
        raise CallerError("The message is not a ModelInferRequest.", code="invalid_message") from None


class _Grpc(Codec):
    """The codec of these requests."""

    def fields(self, request: ModelRequest) -> Fields:
        assert isinstance(request, InferRequest)
        return without_model(_encoded(request.inference.parameters))

    def rewrite(self, request: R, fields: Fields) -> R:
        assert isinstance(request, InferRequest)
        model, written = with_model(request, fields, _encoded(request.inference.parameters))
        try:
            parameters: dict[str, Parameter] = _parameters(_encode(written))
        except msgspec.ValidationError:
            raise CallerError(
                "A parameter that this route writes has no form over gRPC: only plain values do."
            ) from None
        inference = dataclasses.replace(request.inference, parameters=parameters)
        payload = GrpcPayload(body=encode_infer_request(inference), decoded=inference)
        return replace(request, model=model, payload=payload)

    def separate(self, request: R, tenant: str) -> R:
        return separate(request, tenant)

    def inference(self, request: InferRequest) -> Inference:
        return decode_infer_request(request.payload.body)

    def canonical(self, request: ModelRequest) -> tuple[Data, ...]:
        """The unchanged message, with its id."""
        assert isinstance(request, InferRequest)
        return _encode((request.wire, request.kind, request.model, request.version)), request.payload.body

    def is_deterministic(self, request: ModelRequest) -> bool:
        return True


def _encoded(parameters: Parameters) -> Fields:
    return {name: Raw(_encode(value)) for name, value in parameters.items()}


GRPC = _Grpc()
