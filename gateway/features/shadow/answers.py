"""Decodes whole answers of any wire for their comparison. Runs in a worker process for large answers."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from adapters.errors import InferenceError
from adapters.tensors import Tensor
from adapters.types import Form
from adapters.wire import compression, sse
from adapters.wire.oip import responses as oip_responses
from config.schema.config import CompareConfig
from gateway.telemetry.redaction.streams import events_of, texts_of
from policies.comparison.answers import AnswerContent, ComparedTensor, ComparedTool
from policies.comparison.differences import Differences, differences, undecided_texts

MOST_DECODED = 16 * 1024 * 1024
"""Bytes of a compressed answer after decompression."""


_MALFORMED = (InferenceError, msgspec.MsgspecError, ValueError, LookupError, AttributeError, TypeError, RecursionError)
"""The errors of answers in which a value has another type, or none."""


class WholeAnswer(NamedTuple):
    """An answer, read to its end."""

    status: int
    operation: str = ""
    form: Form = Form()
    content_type: str = ""
    is_stream: bool = False
    data: bytes = b""


class Comparison(NamedTuple):
    """The differences of two answers, and the texts that a model has to decide."""

    differences: Differences
    undecided: tuple[tuple[str, str], ...] = ()


def compared(first: WholeAnswer, second: WholeAnswer, config: CompareConfig) -> Comparison:
    """The comparison of two answers. `first` is the primary's."""
    one, other = content_of(first), content_of(second)
    differing = differences(one, other, config)
    return Comparison(differing, undecided_texts(one, other, config) if "text" in differing else ())


def content_of(answer: WholeAnswer) -> AnswerContent:
    """The parts of an answer. An answer that cannot be decoded is bytes."""
    if answer.status < 400:
        try:
            return _decoded(answer)
        except _MALFORMED:
            pass
    return AnswerContent(status=answer.status, kind="bytes", body=answer.data)


def _decoded(answer: WholeAnswer) -> AnswerContent:
    form, data = answer.form, answer.data
    if form.encoding:
        data = compression.decompress(data, form.encoding, MOST_DECODED)
    if form.wire == "oip-grpc":
        from adapters.wire.oip import proto_responses  # needs an extra, as does an upstream of this wire

        return _tensors(answer, proto_responses.decode_infer_response(data).outputs)
    if form.wire == "tfserving-grpc":
        from adapters.wire.tfserving import predict  # the same

        return _tensors(answer, predict.decode_response(data, "").outputs)
    if form.wire == "oip-http" and not form.generates:
        return _tensors(answer, list(_inferred(answer, data)))
    if answer.is_stream and answer.content_type.startswith("text/event-stream"):
        return _of_events(answer, data)
    value = msgspec.json.decode(data)
    if form.wire == "predict-v1":
        return AnswerContent(status=answer.status, kind="tensors", body=answer.data, value=value)
    if answer.operation == "embeddings":
        return AnswerContent(status=answer.status, kind="tensors", body=answer.data, value=_vectors(value))
    if form.wire == "anthropic" or (form.wire == "openai" and answer.operation in ("chat", "text_completion")):
        texts, tools = _generated(value)
        return AnswerContent(status=answer.status, kind="text", body=answer.data, texts=texts, tools=tools)
    return AnswerContent(status=answer.status, kind="json", body=answer.data, value=value)


# ── tensors ───────────────────────────────────────────────────────────────────────────────────────────


def _inferred(answer: WholeAnswer, data: bytes) -> Iterator[Tensor]:
    """The outputs; those of a stream's responses have the number of the response in their names."""
    if not answer.is_stream:
        yield from oip_responses.decode_response(data, answer.form.header_length).outputs
        return
    for number, event in enumerate(data.split(b"\n\n")):
        if body := sse.data_of(event):
            for tensor in oip_responses.decode_response(bytes(body), None).outputs:
                tensor.name = f"{number}.{tensor.name}"
                yield tensor


def _tensors(answer: WholeAnswer, outputs: list[Tensor]) -> AnswerContent:
    tensors = tuple(ComparedTensor(each.name, each.datatype, each.shape, each.data) for each in outputs)
    return AnswerContent(status=answer.status, kind="tensors", body=answer.data, tensors=tensors)


def _vectors(value: Any) -> list[Any]:
    """The vectors of an embeddings response: numbers, or base64 as it is."""
    return [item["embedding"] for item in value["data"]]


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────


def _generated(value: Any) -> tuple[tuple[str, ...], tuple[ComparedTool, ...]]:
    """The texts and the tool calls of a whole answer of chats, completions, messages or Responses."""
    texts, tools = list[str](), list[ComparedTool]()
    for choice in value.get("choices") or ():
        message = choice.get("message") or {}
        texts.append(choice.get("text") or _joined(message.get("content")))
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {}
            tools.append(ComparedTool(str(function.get("name")), str(function.get("arguments") or "")))
    parts = value.get("content") or value.get("output") or ()
    if "choices" not in value:
        texts.append("".join(_joined(part.get("content")) or part.get("text") or "" for part in parts))
    for part in parts:
        if part.get("type") in ("tool_use", "function_call"):
            arguments = part.get("arguments") or msgspec.json.encode(part.get("input")).decode()
            tools.append(ComparedTool(str(part.get("name")), arguments))
    return tuple(texts), tuple(tools)


def _joined(content: Any) -> str:
    """The text of a message's content."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _of_events(answer: WholeAnswer, data: bytes) -> AnswerContent:
    """A stream of texts, assembled. The last event of Responses has the whole answer."""
    for event in events_of(data) if b'"response.completed"' in data else ():
        if isinstance(event, dict) and event.get("type") == "response.completed":
            texts, tools = _generated(event["response"])
            return AnswerContent(status=answer.status, kind="text", body=answer.data, texts=texts, tools=tools)
    return of_places(answer.status, answer.data, texts_of(data))


def of_places(status: int, body: bytes, places: Mapping[str, str]) -> AnswerContent:
    """The joined texts of a stream by their places, assembled."""
    names = {place.removesuffix("name"): text for place, text in places.items() if place.endswith("name")}
    tools = tuple(
        ComparedTool(name, places.get(f"{place}arguments") or places.get(f"{place}partial_json") or "")
        for place, name in names.items()
    )
    called = tuple(names)
    texts = tuple(text for place, text in sorted(places.items()) if not (called and place.startswith(called)))
    return AnswerContent(status=status, kind="text", body=body, texts=texts, tools=tools)
