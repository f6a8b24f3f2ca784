"""Bodies of JSON as values of steps, and values as bodies, of OpenAI's APIs and of KServe's v1.

These are functions of bytes without the state of a request, so a worker process can run them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from adapters.errors import CallerError, StepFailed
from adapters.requests import InferRequest
from adapters.tensors import Tensor
from adapters.types import Usage
from adapters.wire import decoding, sse
from adapters.wire.openai.chat import DONE
from adapters.wire.tfserving import predict_v1_upstream, predict_v1_view
from adapters.wire.tfserving.predict_v1 import flattened, object_of
from adapters.wire.tfserving.predict_v1_responses import nested
from gateway.features.pipelines.values import MAX_PLAIN, MAX_TEXT, Value, Values
from gateway.traffic.generated_text import GeneratedText, content_text, without_logprobs

_NOT_TEXT = frozenset(("finish_reason", "role", "id", "type", "index"))
"""Fields of a choice without a text of the model."""
_LOGPROBS = "logprob"
"""A part of the names of fields with log-probabilities, whose tokens may have other texts than the answer."""
_PASSED = frozenset(("id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"))
"""Fields of an answer that leave a guard."""
_object = msgspec.json.Decoder(dict[str, Any]).decode
_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_NUMBERS = frozenset((int, float))
_HOMOGENEOUS = (frozenset((bool,)), frozenset((str,)))


class _Message(msgspec.Struct):
    role: Any = None


_role = msgspec.json.Decoder(_Message).decode


def read_value(raw: bytes | memoryview, name: str, field: str) -> Value:
    """The value `name` of a request's `field`: `text`, `images`, or the field itself. Raises `CallerError`.

    A field with more values, or a text with more characters, than steps read is refused.
    """
    try:
        value = _any(raw)
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`{field}` is not valid: {error}.", param=field) from None
    if len(raw) > MAX_PLAIN and (count := _count(value)) > MAX_PLAIN:
        message = f"`{field}` has {count} values, and {MAX_PLAIN} at most are read by the steps of the model."
        raise CallerError(message, param=field)
    if name == "images":
        return _images(value)
    if name == "text":
        value = last_text(value) if field == "messages" else _first_text(value)
    if len(raw) > MAX_TEXT and (size := sum(map(len, strings(value)))) > MAX_TEXT:
        message = f"`{field}` has {size} characters, and {MAX_TEXT} at most are read by the steps of the model."
        raise CallerError(message, param=field)
    return value


def last_text(messages: Any) -> str:
    """The text of the last message of the user; empty without one."""
    users = [each for each in _objects(messages) if each.get("role") == "user"]
    return content_text(users[-1].get("content")) if users else ""


def _first_text(value: Any) -> Value:
    """The text of a prompt or of the first input; other values as they are."""
    return value if isinstance(value, str) or not value else value[0] if isinstance(value[0], str) else value


def _images(messages: Any) -> list[str]:
    """The URLs of the pictures in the last message of the user. Raises `CallerError` if there is none."""
    last = next((each.get("content") for each in reversed(_objects(messages)) if each.get("role") == "user"), None)
    parts = [part.get("image_url") for part in last if isinstance(part, dict)] if isinstance(last, list) else []
    urls = [part["url"] for part in parts if isinstance(part, dict) and isinstance(part.get("url"), str)]
    if not urls:
        raise CallerError("The last message of the user has no picture, which the model needs.", param="messages")
    return urls


def _objects(messages: Any) -> list[dict[str, Any]]:
    return [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []


def with_system(messages: bytes | memoryview, text: str) -> bytes:
    """The messages of a chat with this text as their only system message. Raises `CallerError`."""
    try:
        others = [each for each in _raws(messages) if not _is_system(each)]
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`messages` is not valid: {error}.", param="messages") from None
    return _encode([{"role": "system", "content": text}, *others])


def _is_system(message: msgspec.Raw) -> bool:
    try:
        return _role(message).role in ("system", "developer")
    except decoding.MALFORMED_JSON:
        return False  # its server refuses it


def encode_value(value: Any) -> bytes:
    """A value as JSON."""
    return _encode(value)


def _count(value: Any) -> int:
    """The number of values inside of a JSON value, with itself."""
    count, rest = 0, [value]
    while rest:
        count += len(rest)
        inner = [each.values() if isinstance(each, dict) else each for each in rest if isinstance(each, dict | list)]
        rest = [value for values in inner for value in values]
    return count


def answer_values(body: bytes, tokens: int) -> Values:
    """The values of a whole answer of OpenAI's APIs. Raises `InferenceError`."""
    decoded = decoding.decode(_object, body)
    if isinstance(decoded.get("data"), list):
        vectors = [entry.get("embedding") for entry in decoded["data"] if isinstance(entry, dict)]
        if (count := sum(len(vector) for vector in vectors if isinstance(vector, list))) > MAX_PLAIN:
            raise StepFailed(f"The answer has {count} numbers, and {MAX_PLAIN} at most are read by another step.")
        return {"embedding": vectors}
    text = GeneratedText()
    text.take(decoded)
    values = text.values(tokens)
    if (size := len(values["text"])) > MAX_TEXT:
        raise StepFailed(f"The answer has {size} characters, and {MAX_TEXT} at most are read by another step.")
    return values


def answer_texts(body: bytes) -> list[str]:
    """Every text of a whole answer that a client could read: contents, reasoning, refusals, tool calls."""
    return list(strings(decoding.decode(_object, body).get("choices")))


def strings(value: Any) -> Iterator[str]:
    """All texts inside a JSON value, except for the tokens of log-probabilities, which are the text again."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in _NOT_TEXT and _LOGPROBS not in name:
                yield from strings(each)


def examined_parts(body: bytes) -> bytes | None:
    """A whole answer without the parts that a guard does not examine: log-probabilities, and fields beside the choices.

    None if it has nothing else.
    """
    decoded = decoding.decode(_object, body)
    if not isinstance(choices := decoded.get("choices"), list):
        return None
    reduced = {name: value for name, value in decoded.items() if name in _PASSED}
    reduced["choices"] = [_examined(choice) for choice in choices]
    return None if reduced == decoded else _encode(reduced)


def _examined(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    return {name: None if _LOGPROBS in name else value for name, value in choice.items()}


def body_without_logprobs(body: bytes) -> bytes:
    """A whole body without log-probabilities."""
    return without_logprobs(decoding.decode(_object, body))


def with_usage(body: bytes, usage: Usage) -> bytes:
    """A whole body of OpenAI's APIs with another usage. Raises `BackendError` for a malformed body."""
    return _encode({**decoding.decode(_object, body), "usage": counts(usage)})


def counts(usage: Usage) -> dict[str, int]:
    """A usage as OpenAI's field."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": usage.total_tokens}


def events(body: bytes, *, is_chat: bool, include_usage: bool) -> bytes:
    """A whole body as the events of a stream."""
    decoded = decoding.decode(_object, body)
    name = "chat.completion.chunk" if is_chat else "text_completion"
    head = {**{key: value for key, value in decoded.items() if key not in ("choices", "usage")}, "object": name}
    bodies = [{**head, "choices": [_streamed(choice) if is_chat else choice]} for choice in _choices(decoded)]
    if include_usage:
        bodies.append({**head, "choices": [], "usage": decoded.get("usage")})
    return b"".join([sse.encode(_encode(each)) for each in bodies]) + sse.encode(DONE)


def _choices(body: dict[str, Any]) -> list[dict[str, Any]]:
    choices = body.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _streamed(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice whose message is the only delta of a stream. Its tool calls have an index there."""
    message = choice.get("message")
    delta = dict(message) if isinstance(message, dict) else {}
    if isinstance(calls := delta.get("tool_calls"), list):
        delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls) if isinstance(call, dict)]
    return {**{key: value for key, value in choice.items() if key != "message"}, "delta": delta}


def decode_request(body: bytes) -> Values:
    """The fields of a client's body, with those of its `parameters`. Raises `CallerError`."""
    fields = object_of(body)
    parameters = fields.get("parameters")
    named = parameters if isinstance(parameters, dict) else {}
    return {**named, **{name: _value(name, value) for name, value in fields.items()}}


def decode_fields(body: bytes) -> Values:
    """The fields of a server's answer. Raises `BackendError`."""
    try:
        fields = object_of(body)
    except CallerError:
        raise decoding.malformed() from None
    return {name: _value(name, value) for name, value in fields.items()}


def _value(name: str, value: Any) -> Value:
    """A rectangular list of numbers, texts or booleans as a tensor, and any other value as it is."""
    # Texts of a tensor whose name ends with `_bytes` would be written as base64.
    if not isinstance(value, list) or not value or name.endswith("_bytes"):
        return value
    try:
        _, flat = flattened(value, name)
        kinds = frozenset(map(type, flat))
        if not kinds or (not kinds <= _NUMBERS and kinds not in _HOMOGENEOUS):
            return value
        return predict_v1_upstream.tensor_of(name, value, None)
    except CallerError:
        return value


def request_of(body: bytes, model: str) -> InferRequest:
    """The request of a body of this gateway."""
    return predict_v1_view.request_of(body, model=model, version="")


def encode_fields(values: Values) -> bytes:
    """A body with these fields. NaN is written as in Python."""
    fields = _plain(values)
    body = _encode(fields)
    return json.dumps(fields).encode() if b"null" in body else body


def encode_predictions(values: Values, *, by_row: bool, has_names: bool = False) -> bytes:
    """An answer of these outputs: `predictions`, one object for each row of named outputs, or `outputs`.

    Raises `StepFailed` for several outputs that differ in their rows.
    """
    fields = _plain(values)
    if len(fields) == 1 and not has_names:
        (only,) = fields.values()
        return _encode({"predictions" if by_row else "outputs": only})
    if not by_row:
        return _encode({"outputs": fields})
    columns = list(fields.values())
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        shown = ", ".join(f"`{name}`" for name in fields)
        raise StepFailed(f"The outputs {shown} of the pipeline have no row for each instance.")
    return _encode({"predictions": [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)]})


def _plain(values: Mapping[str, Value]) -> dict[str, Any]:
    return {name: nested(value) if isinstance(value, Tensor) else value for name, value in values.items()}
