"""An answer's tensors, whatever wire it came by; and tensors as an answer, from servers of any protocol."""

from dataclasses import replace

from adapters.base import Answer
from adapters.errors import BackendError, InferenceError, Unsupported
from adapters.oip_events import OneEvent
from adapters.tensors import FINAL, Inferred
from adapters.types import OIP_JSON, PREDICT_V1, Form, InferRequest, Usage
from adapters.wire import compression, oip_answers, oip_generate, predict_v1_answers, sse

JSON = "application/json"
MAX_ANSWER = 256 * 1024 * 1024
"""Bytes of an answer that is compressed, once it is not."""


def inferred(answer: Answer) -> Inferred:
    """Of a whole answer. Raises `BackendError`."""
    assert answer.body is not None
    form = answer.form
    if form.wire == "oip-grpc":
        from adapters.wire import oip_proto_answers  # with an extra, which an upstream of this wire needs

        return oip_proto_answers.decode_infer_response(answer.body)
    if form.wire != "oip-http":
        raise BackendError("The upstream answered no tensors.", code="upstream_bad_response")
    body = answer.body
    if form.encoding:
        try:
            body = compression.decompress(body, form.encoding, MAX_ANSWER)
        except InferenceError:
            raise BackendError("The upstream's answer cannot be read.", code="upstream_bad_response") from None
    return oip_answers.decode_response(body, form.header_length)


def answer_of(request: InferRequest, inferred: Inferred, usage: Usage) -> Answer:
    """Tensors in the form that the request's own client reads. Raises `InferenceError` where they have none there."""
    if request.wire == "predict-v1":
        body = predict_v1_answers.encode_answer(inferred, request.verb, by_row=request.by_row)
        return Answer(content_type=JSON, body=body, usage=_of(usage, body), form=PREDICT_V1)
    if request.stream:
        return only_event(request, inferred, usage)
    if request.kind == "generate":
        body = written(request, inferred)
        return Answer(content_type=JSON, body=body, usage=_of(usage, body), form=OIP_JSON)
    wanted = oip_answers.wanted(request.inference) if request.wire == "oip-http" else True
    body, length = oip_answers.encode_response(inferred, wanted)
    content_type = JSON if length is None else "application/octet-stream"
    return Answer(content_type=content_type, body=body, usage=_of(usage, body), form=Form("oip-http", length))


def only_event(request: InferRequest, inferred: Inferred, usage: Usage) -> OneEvent:
    """A stream of one response, which is marked as final. Raises `CallerError`."""
    final = replace(inferred, parameters={**inferred.parameters, FINAL: True})
    told = written(request, final)
    return OneEvent(sse.encode(told), _of(usage, told))


def written(request: InferRequest, inferred: Inferred) -> bytes:
    """One response in JSON, as the request's kind has it. Raises `CallerError`."""
    if request.kind in ("generate", "generate_stream"):
        return oip_generate.encode_generate(inferred)
    return oip_answers.encode_response(inferred)[0]


def takes_plain_inference(request: InferRequest) -> None:
    """Raise `Unsupported` for what servers of the Open Inference Protocol alone do: prompts and sequences."""
    if request.kind in ("generate", "generate_stream"):
        raise Unsupported(f"The servers of `{request.model[:128]}` take tensors: ask with `infer`.")
    if request.sequence:
        raise Unsupported(f"The servers of `{request.model[:128]}` keep nothing from request to request.")


def _of(usage: Usage, body: bytes) -> Usage:
    usage.bytes = usage.bytes or len(body)
    return usage
