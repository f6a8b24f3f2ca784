"""Codecs of tensors: small bodies in this process, large ones in a worker."""

from __future__ import annotations

from msgspec.structs import replace

from adapters.assembly import join
from adapters.offload.worker_queue import LARGE, run, scan
from adapters.requests import Fields, InferRequest
from adapters.tensors import Inference, Inferred
from adapters.types import Verb
from adapters.wire.oip import request_view
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from adapters.wire.oip.bodies import HttpPayload, ModelMetadata, header_length
from adapters.wire.tfserving import predict_v1_responses, predict_v1_view


async def decode_message(message: bytes) -> Inference:
    """Decode a `ModelInferRequest`. Raises `CallerError`."""
    from adapters.wire.oip import proto_requests as oip_proto  # with an extra, which a server of gRPC has

    if len(message) < LARGE:
        return oip_proto.decode_infer_request(message)
    return await run(oip_proto.parsed_bytes(message), oip_proto.decode_infer_request, message)


async def decode_body(body: bytes, header_length: int | None, model: str, version: str) -> Inference:
    """Decode a request over HTTP. Raises `CallerError`."""
    size = len(body) if header_length is None else header_length
    if size < LARGE:
        return oip.decode_request(body, header_length, model, version)
    return await run(size, oip.decode_request, body, header_length, model, version)


async def encode_response(inferred: Inferred, binary: oip_responses.BinaryOutputs = False) -> tuple[bytes, int | None]:
    """Encode a response over HTTP. Raises `CallerError`."""
    size = oip_responses.json_bytes(inferred, binary)
    if size < LARGE:
        head, blobs = oip_responses.response_parts(inferred, binary)
        return (await join((head, *blobs)), len(head)) if blobs else (head, None)
    return await run(size, oip_responses.encode_response, without_extras(inferred), binary)


async def encode_request(inference: Inference, *, binary: bool) -> tuple[bytes, int | None]:
    """Encode a request over HTTP. Raises `CallerError`."""
    if binary:
        head, blobs = oip.request_parts(inference, binary=True)
        return await join((head, *blobs)), len(head)
    size = sum([len(tensor.data) for tensor in inference.inputs])
    return await run(size, oip.encode_request, inference, binary=False)


async def request_from(inference: Inference, size: int) -> InferRequest:
    """The request of an inference from another protocol, over HTTP. `size` is that of the client's body."""
    return request_view.request_with(inference, size, *await encode_request(inference, binary=True))


async def decode_response(body: bytes, header_length: int | None) -> Inferred:
    """Decode a server's response over HTTP. Raises `BackendError`."""
    size = len(body) if header_length is None else header_length
    return await run(size, oip_responses.decode_response, body, header_length)


async def encode_predict_v1(inferred: Inferred, verb: Verb, *, by_row: bool) -> bytes:
    """Encode a KServe v1 response. Raises `InferenceError`."""
    if (size := oip_responses.json_bytes(inferred)) < LARGE:
        return predict_v1_responses.encode_answer(inferred, verb, by_row=by_row)
    return await run(size, predict_v1_responses.encode_answer, without_extras(inferred), verb, by_row=by_row)


async def inference_of(request: InferRequest) -> Inference:
    """Decode the tensors of a request, once. Raises `CallerError`."""
    payload = request.payload
    if payload.decoded is None and request.size >= LARGE:
        payload.decoded = await run(_parsed_bytes(request), request.codec.inference, undecoded(request))
    return request.inference


def _parsed_bytes(request: InferRequest) -> int:
    if request.wire == "oip-grpc":
        from adapters.wire.oip import proto_requests as oip_proto

        return oip_proto.parsed_bytes(request.payload.body)
    length = header_length(request.payload)
    return len(request.payload.plain) if length is None else length


async def inference_of_values(request: InferRequest, declared: ModelMetadata) -> Inference:
    """Decode a KServe v1 request by the model's metadata. Raises `CallerError`."""
    payload = request.payload
    if len(payload.body) < LARGE:
        return predict_v1_view.inference(request, declared)
    inference, payload.rows = await run(len(payload.body), _of_values, undecoded(request), declared)
    return inference


def _of_values(request: InferRequest, declared: ModelMetadata) -> tuple[Inference, int | None]:
    return predict_v1_view.inference(request, declared), request.payload.rows


async def fields_of(request: InferRequest) -> Fields:
    """The fields that a route may rewrite. Raises `CallerError`."""
    return await scan(request.size, request.codec.fields, undecoded(request))


async def rewritten(request: InferRequest, fields: Fields) -> InferRequest:
    """The request with other fields. Raises `CallerError`."""
    return _changed(request, await scan(request.size, request.codec.rewrite, undecoded(request), fields))


async def separated(request: InferRequest, tenant: str) -> InferRequest:
    """The request with an id of its sequence that no other tenant can use."""
    return _changed(request, await scan(request.size, request.codec.separate, undecoded(request), tenant))


def _changed(request: InferRequest, derived: InferRequest) -> InferRequest:
    """A request for the values that were derived from its undecoded form."""
    payload = derived.payload
    if isinstance(payload, HttpPayload) and isinstance(request.payload, HttpPayload):
        payload = replace(payload, accepts=request.payload.accepts)
    return replace(request, model=derived.model, payload=payload, codec=derived.codec)


def undecoded(request: InferRequest) -> InferRequest:
    """The request for a worker process: only the parts that its codec reads, and nothing that is decoded."""
    return InferRequest(
        model=request.model,
        version=request.version,
        kind=request.kind,
        payload=request.payload.undecoded(),
        codec=request.codec,
    )


def without_extras(inferred: Inferred) -> Inferred:
    """The response without a runtime's additions."""
    return Inferred(inferred.model_name, inferred.model_version, inferred.id, inferred.parameters, inferred.outputs)
