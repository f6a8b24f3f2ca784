"""Decodes the tensors of a response of any wire, and encodes tensors as a response of any wire."""

from dataclasses import replace

from adapters import offload
from adapters.base import Answer
from adapters.errors import HasNoState, InferenceError, TakesNoPrompts, Unsupported
from adapters.offload import codecs
from adapters.offload.codecs import inference_of, undecoded
from adapters.requests import InferRequest
from adapters.stream import OnePiece
from adapters.tensors import FINAL, Inferred
from adapters.types import OIP_GENERATE, OIP_JSON, PREDICT_V1, Form, Usage
from adapters.wire import compression, decoding, sse
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import responses as oip_responses
from adapters.wire.tfserving.predict_v1 import PredictV1Payload

JSON = "application/json"
MAX_ANSWER = 256 * 1024 * 1024
"""Bytes of a compressed response after decompression."""
SMALL_ENCODED = 4096
"""Bytes from which a compressed response may be large after decompression."""


async def decode(answer: Answer) -> Inferred:
    """Return the tensors of a whole response; a large response is decoded off the event loop. Raises `BackendError`."""
    body, form = answer.body, answer.form
    assert body is not None
    if len(body) < (SMALL_ENCODED if form.encoding else offload.LARGE):
        return _decode(body, form)
    return await offload.run(_parsed_bytes(body, form), _decode, body, form)


def inferred(answer: Answer) -> Inferred:
    """Return the tensors of a whole response. Blocks while a large response is decoded."""
    assert answer.body is not None
    return _decode(answer.body, answer.form)


def _parsed_bytes(body: bytes, form: Form) -> int:
    """Return the bytes of a response that must be parsed."""
    if form.wire == "oip-grpc":
        from adapters.wire.oip import proto_responses as oip_proto_answers

        return oip_proto_answers.parsed_bytes(body)
    if form.encoding:
        return max(len(body), offload.LARGE)
    return len(body) if form.header_length is None else form.header_length


def _decode(body: bytes, form: Form) -> Inferred:
    if form.wire == "oip-grpc":
        from adapters.wire.oip import (
            proto_responses as oip_proto_answers,  # needs an extra, as does an upstream of this wire
        )

        return oip_proto_answers.decode_infer_response(body)
    if form.wire != "oip-http":
        raise decoding.bad_response("The upstream's response has no tensors.")
    if form.encoding:
        with decoding.Checked(InferenceError):
            body = compression.decompress(body, form.encoding, MAX_ANSWER)
    return oip_responses.decode_response(body, form.header_length)


async def answer_of(request: InferRequest, inferred: Inferred, usage: Usage) -> Answer:
    """Encode tensors in the wire of the request. Raises `InferenceError` if that wire cannot carry them."""
    if isinstance(payload := request.payload, PredictV1Payload):
        body = await codecs.encode_predict_v1(inferred, payload.verb, by_row=payload.by_row)
        return Answer(content_type=JSON, body=body, usage=_of(usage, body), form=PREDICT_V1)
    if request.stream:
        return await only_event(request, inferred, usage)
    if request.kind == "generate":
        body = await _written(request, inferred)
        return Answer(content_type=JSON, body=body, usage=_of(usage, body), form=OIP_GENERATE)
    binary = oip_responses.binary_outputs(await inference_of(request)) if request.wire == "oip-http" else True
    body, length = await codecs.encode_response(inferred, binary)
    content_type = JSON if length is None else "application/octet-stream"
    return Answer(content_type=content_type, body=body, usage=_of(usage, body), form=Form("oip-http", length))


async def only_event(request: InferRequest, inferred: Inferred, usage: Usage) -> Answer:
    """Return a stream of one response, which is marked as final. Raises `CallerError`."""
    final = replace(inferred, parameters={**inferred.parameters, FINAL: True})
    encoded = await _written(request, final)
    usage, form = _of(usage, encoded), event_form(request)
    return OnePiece(sse.encode(encoded), content_type="text/event-stream", usage=usage, form=form)


def event_form(request: InferRequest) -> Form:
    """Return the form of the events of a stream over HTTP."""
    return OIP_GENERATE if request.kind == "generate_stream" else OIP_JSON


async def _written(request: InferRequest, inferred: Inferred) -> bytes:
    if (size := oip_responses.json_bytes(inferred)) < offload.LARGE:
        return written(request, inferred)
    return await offload.run(size, written, undecoded(request), codecs.without_extras(inferred))


def written(request: InferRequest, inferred: Inferred) -> bytes:
    """Encode one response as JSON, in the format of the request's kind. Raises `CallerError`."""
    if request.kind in ("generate", "generate_stream"):
        return oip_generate.encode_generate(inferred)
    return oip_responses.encode_response(inferred)[0]


def takes_plain_inference(request: InferRequest) -> None:
    """Raise `Unsupported` for prompts, sequences and explanations, which only servers of the Open Inference Protocol
    support. KServe's v1 has explanations of its own."""
    if request.wire != "predict-v1":
        check_explains(request, False)
    if request.kind in ("generate", "generate_stream"):
        raise TakesNoPrompts(f"The servers of `{request.model[:128]}` take tensors: call `infer`.")
    if request.sequence:
        raise HasNoState(f"The servers of `{request.model[:128]}` have no state between requests.")


def check_explains(request: InferRequest, explains: bool) -> None:
    """Raise `Unsupported` for an explanation of a server without them."""
    if request.kind == "explain" and not explains:
        raise Unsupported(f"The servers of `{request.model[:128]}` do not explain answers.")


def _of(usage: Usage, body: bytes) -> Usage:
    usage.bytes = usage.bytes or len(body)
    return usage
