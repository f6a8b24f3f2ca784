"""Work on large JSON bodies that runs in a worker process: functions of bytes, without the state of a request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from adapters.errors import CallerError, StepFailed
from adapters.types import Usage
from adapters.wire import decoding, sse
from adapters.wire.openai.chat import DONE
from gateway.pipelines.generated import GeneratedText, without_logprobs
from gateway.pipelines.values import MAX_PLAIN, Values

_NOT_TEXT = frozenset(("finish_reason", "role", "id", "type", "index"))
"""Fields of a choice without a text of the model."""
_LOGPROBS = "logprob"
"""A part of the names of fields with log-probabilities, whose tokens may have other texts than the answer."""
_PASSED = frozenset(("id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"))
"""Fields of an answer that leave a guard."""

_object = msgspec.json.Decoder(dict[str, Any]).decode
_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def check_values(raw: bytes | memoryview, name: str) -> None:
    """Raise `CallerError` for a field of a request with more values than steps read."""
    try:
        count = _count(_any(raw))
    except decoding.MALFORMED_JSON:
        return  # its reader reports it
    if count > MAX_PLAIN:
        message = f"`{name}` has {count} values, and {MAX_PLAIN} at most are read by the steps of the model."
        raise CallerError(message, param=name)


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
    return text.values(tokens)


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
