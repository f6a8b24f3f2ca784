"""Answers: the values of a step's answer, and the answer of a pipeline from values."""

import time
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

import msgspec

from adapters import offload
from adapters.answer import Answer
from adapters.call import Call, CallTrace
from adapters.errors import BackendError, StepFailed
from adapters.requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    GenerateRequest,
    InferRequest,
    ModelRequest,
)
from adapters.stream import DerivedStream, OnePiece
from adapters.tensors import Inference, Inferred, Tensor, requested_outputs
from adapters.types import OPENAI, PREDICT_V1, Usage
from adapters.upstreams.inferred import answer_of, decode
from adapters.wire import sse
from adapters.wire.oip.bodies import TensorMetadata
from adapters.wire.openai import embeddings as vectors
from adapters.wire.text.generated_text import TextEncoder
from adapters.wire.tfserving.predict_v1 import PredictV1Payload
from gateway.features.pipelines import bodies
from gateway.features.pipelines.bodies import answer_values, counts, events
from gateway.features.pipelines.request import PipelineRequest
from gateway.features.pipelines.values import UnusableValueError, Values, elements_of, tensor_of, text_of
from gateway.traffic.generated_text import events_of

LONG: Final = 256 * 1024
"""Bytes of an answer that a worker process decodes: answers of several steps may arrive in one turn of the loop."""
P = ParamSpec("P")
T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


async def decoded(body: bytes, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that decodes the JSON of a step's answer, in a worker process if the answer is long."""
    if len(body) >= LONG:
        return await offload.run(len(body), function, *args, **kwargs)
    return await offload.parse(body, function, *args, **kwargs)


async def values_of(answer: Answer) -> Values:
    """The values of a whole answer: outputs of tensors, or the fields of a generated text. Raises `InferenceError`."""
    if answer.body is None:
        await answer.aclose()
        raise BackendError("The upstream answered with a stream.", code="upstream_bad_response")
    if answer.form.wire in ("oip-http", "oip-grpc"):
        return {tensor.name: tensor for tensor in (await decode(answer)).outputs}
    if answer.form.wire == "predict-v1":
        return await offload.parse(answer.body, bodies.decode_fields, answer.body)
    if answer.form.wire != "openai":
        raise StepFailed(f"An answer of the kind `{answer.form.wire}` has no values for other steps.")
    return await decoded(answer.body, answer_values, answer.body, answer.usage.completion_tokens)


async def answer_from(incoming: PipelineRequest, values: Values, usage: Usage, *, has_names: bool = False) -> Answer:
    """The answer to the pipeline's request, in its own operation. Raises `StepFailed` if the values cannot be it."""
    request = incoming.request
    try:
        if isinstance(request, InferRequest):
            return await _inferred(incoming, request, values, usage, has_names=has_names)
        if isinstance(request, EmbeddingRequest):
            return _embedded(request, values, usage)
        assert isinstance(request, GenerateRequest)
        return _generated(request, text_of(_only(values, "text")), usage)
    except UnusableValueError as error:
        raise StepFailed(f"The outputs of the pipeline do not fit this operation: {error}.") from None


async def _inferred(
    incoming: PipelineRequest, request: InferRequest, values: Values, usage: Usage, *, has_names: bool
) -> Answer:
    if isinstance(payload := request.payload, PredictV1Payload):
        is_plain = not all(isinstance(value, Tensor) for value in values.values())
        if is_plain or payload.verb == "predict":
            size = sum(len(value.data) for value in values.values() if isinstance(value, Tensor))
            body = await offload.run(
                size, bodies.encode_predictions, dict(values), by_row=payload.by_row, has_names=has_names
            )
            usage.bytes = usage.bytes or len(body)
            return Answer(content_type="application/json", body=body, usage=usage, form=PREDICT_V1)
    inference: Inference = await incoming.inference()
    outputs = [tensor_of(name, value) for name, value in values.items()]
    inferred = Inferred(request.model, "", inference.id, outputs=requested_outputs(inference, outputs))
    return await answer_of(request, inferred, usage)


def _embedded(request: EmbeddingRequest, values: Values, usage: Usage) -> Answer:
    fields = vectors.decode(request.fields)
    value = _only(values, "embedding")
    if isinstance(value, Tensor):
        rows, flat = value.shape[0] if len(value.shape) > 1 else 1, elements_of(value)
        width = len(flat) // max(rows, 1)
        value = [flat[at : at + width] for at in range(0, len(flat), width or 1)]
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise UnusableValueError("they are not vectors")
    declared = TensorMetadata("embedding", "FP32", (-1,))
    data = [vectors.Vector(bytes(tensor_of("embedding", row, declared).data), ()) for row in value]
    body = vectors.encode(data, model=request.model, tokens=usage.prompt_tokens, in_base64=fields.base64)
    return Answer(content_type="application/json", body=body, usage=usage)


def _generated(request: GenerateRequest, text: str, usage: Usage) -> Answer:
    encoder = TextEncoder(request, id_=f"{time.time_ns():x}", created=int(time.time()))
    if not request.stream:
        return Answer(content_type="application/json", body=encoder.whole(text, "stop", usage), usage=usage)
    events = encoder.opening() + encoder.piece(text) + encoder.end("stop", usage)
    return OnePiece(events, content_type="text/event-stream", usage=usage, form=OPENAI)


async def as_stream(request: ModelRequest, answer: Answer) -> Answer:
    """A whole answer as the stream that the client requests, such as the best of several drafts; or as it is."""
    if not isinstance(request, ChatRequest | CompletionRequest) or not request.stream or answer.body is None:
        return answer
    is_chat, usage = isinstance(request, ChatRequest), request.include_usage
    streamed = await offload.parse(answer.body, events, answer.body, is_chat=is_chat, include_usage=usage)
    made = OnePiece(streamed, content_type="text/event-stream", usage=answer.usage, form=OPENAI)
    made.pool, made.endpoint, made.headers = answer.pool, answer.endpoint, answer.headers
    return made


def _only(values: Values, name: str) -> Any:
    """The value of this name, or the only value."""
    if name in values:
        return values[name]
    if len(values) == 1:
        return next(iter(values.values()))
    raise UnusableValueError(f"there is no `{name}` among {', '.join(values) or 'nothing'}")


def has_several(trace: CallTrace) -> bool:
    """Whether more than one step has a usage, so that the last step's own is not that of the pipeline."""
    return sum(step.usage is not None for step in trace.steps) > 1


class PassedStream(DerivedStream):
    """Forwards the events of a stream as they come.

    If other steps have a usage too, the event with the usage, if the client requested it, has the sum.
    """

    __slots__ = ("_call", "_sums")

    def __init__(self, inner: Answer, call: Call) -> None:
        super().__init__(inner)
        self._call = call
        is_outermost = call.step is None  # it sums the steps of inner pipelines too
        self._sums = is_outermost and inner.form.wire == "openai" and call.trace.spent()[0] is not None

    def _take_usage(self, inner: Answer, _: BaseException | None) -> None:
        self.usage = self._call.trace.spent(self._call.step)[0] or inner.usage

    async def _next(self, patience: float | None = None) -> bytes:
        piece = await self._inner.__anext__()
        if not self._sums or b'"usage"' not in piece:
            return piece
        return b"".join(self._summed(event, body) for event, body in events_of(piece))

    def _summed(self, event: bytes, body: dict[str, Any] | None) -> bytes:
        own = None if body is None else body.get("usage")
        earlier = self._call.trace.spent()[0]
        if body is None or not isinstance(own, dict) or earlier is None:
            return event
        prompt, completion = own.get("prompt_tokens") or 0, own.get("completion_tokens") or 0
        total = Usage(earlier.prompt_tokens + prompt, earlier.completion_tokens + completion)
        return sse.encode(_encode({**body, "usage": counts(total)}))
