"""Translates whole answers of Converse into messages."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from adapters.types import Usage
from adapters.wire import decoding, reported_usage
from adapters.wire.anthropic.answers import ReadMessage

Object = dict[str, Any]

STOP_REASONS = {"guardrail_intervened": "refusal", "content_filtered": "refusal"}
"""All other reasons are a message's own."""
_BROKEN = frozenset({"malformed_model_output", "malformed_tool_use"})
_USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_input_tokens",
    "cacheWriteInputTokens": "cache_creation_input_tokens",
}
_CACHED = {"5m": "ephemeral_5m_input_tokens", "1h": "ephemeral_1h_input_tokens"}


class ConverseCall(msgspec.Struct):
    toolUseId: str = ""  # noqa: N815
    name: str = ""
    input: Raw = Raw(b"{}")


class _Reasoning(msgspec.Struct):
    text: str = ""
    signature: str = ""


class ReasoningContent(msgspec.Struct):
    """A block's, and a delta's."""

    reasoningText: _Reasoning | None = None  # noqa: N815
    redactedContent: str = ""  # noqa: N815
    text: str = ""
    signature: str = ""


class _Text(msgspec.Struct):
    text: str = ""


class _Citations(msgspec.Struct):
    content: list[_Text] = []


class _Block(msgspec.Struct):
    """One of the fields is set. A block without any of them has no equivalent in a message."""

    text: str | None = None
    toolUse: ConverseCall | None = None  # noqa: N815
    reasoningContent: ReasoningContent | None = None  # noqa: N815
    citationsContent: _Citations | None = None  # noqa: N815


class _Message(msgspec.Struct):
    content: list[_Block] = []


class _Output(msgspec.Struct):
    message: _Message


class _Answer(msgspec.Struct):
    output: _Output
    stopReason: str = ""  # noqa: N815
    usage: Any = None
    additionalModelResponseFields: Any = None  # noqa: N815


_answer = msgspec.json.Decoder(_Answer).decode
_encode = msgspec.json.Encoder().encode


def message_of(body: bytes, id_: str, model: str, name_of: Callable[[str], str] = str) -> ReadMessage:
    """An answer as a message. `name_of` returns the client's name of a tool. Raises `BackendError`."""
    answer = decoding.decode(_answer, body)
    return ReadMessage(
        content=[Raw(_encode(made)) for block in answer.output.message.content for made in _blocks(block, name_of)],
        type="message",
        id=id_,
        model=model,
        usage=usage_fields(answer.usage),
        **ending(answer.stopReason, answer.additionalModelResponseFields),
    )


def encoded(message: ReadMessage) -> bytes:
    """Encode a message for a client of Messages."""
    fields = {"content": message.content, "stop_reason": message.stop_reason, "stop_sequence": message.stop_sequence}
    return _encode({**head(message.id, message.model), **fields, "usage": message.usage})


def head(id_: str, model: str) -> Object:
    return {"id": id_, "type": "message", "role": "assistant", "model": model, "content": []}


def _blocks(block: _Block, name_of: Callable[[str], str]) -> Iterator[Object]:
    if block.text:
        yield {"type": "text", "text": block.text}
    elif (call := block.toolUse) is not None:
        yield {"type": "tool_use", "id": call.toolUseId, "name": name_of(call.name), "input": call.input}
    elif (reasoning := block.reasoningContent) is not None:
        if (text := reasoning.reasoningText) is not None:
            yield {"type": "thinking", "thinking": text.text, "signature": text.signature}
        elif reasoning.redactedContent:
            yield {"type": "redacted_thinking", "data": reasoning.redactedContent}
    elif block.citationsContent is not None:
        yield {"type": "text", "text": "".join([part.text for part in block.citationsContent.content])}


def ending(reason: str, more: Any) -> Object:
    """A message's `stop_reason` and `stop_sequence`. Raises `BackendError` for an answer that the model broke."""
    if reason in _BROKEN:
        raise decoding.bad_response(f"The upstream's model wrote an answer that cannot be read: {reason}.")
    return {"stop_reason": STOP_REASONS.get(reason, reason or None), "stop_sequence": _stop_sequence(more)}


def _stop_sequence(more: Any) -> str | None:
    for place in (more, more.get("delta") if isinstance(more, dict) else None):
        if isinstance(place, dict) and isinstance(text := place.get("stop_sequence"), str):
            return text
    return None


def usage_fields(usage: Any) -> Object:
    """A message's `usage`. Both wires count tokens of the cache beside those of the input."""
    given = usage if isinstance(usage, dict) else {}
    fields = {own: given[name] for name, own in _USAGE.items() if _is_count(given.get(name))}
    details = given.get("cacheDetails")
    written = dict[str, int]()
    for each in details if isinstance(details, list) else ():
        if isinstance(each, dict) and str(each.get("ttl")) in _CACHED and _is_count(each.get("inputTokens")):
            written[_CACHED[each["ttl"]]] = each["inputTokens"]
    return {**fields, "cache_creation": written} if written else fields


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= reported_usage.MAX_TOKENS


def usage_of(report: Any) -> Usage | None:
    """The usage in the gateway's units; None without a report."""
    counts = reported_usage.read(usage_fields(report), beside=True)
    return None if counts is None else counts.usage
