"""Answers: a chat completion as a message, whole or streamed, and a whole message as a chat completion."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Raw

from adapters.types import Usage
from adapters.wire import decoding, reported_usage, sse
from adapters.wire.anthropic.open_blocks import OpenBlocks, event, new_message
from adapters.wire.openai.chat import DONE
from adapters.wire.openai.chat_reader import ChatReader
from adapters.wire.reported_usage import UsageReport, chat_fields

Object = dict[str, Any]

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "model_length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
FINISH_REASONS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""Every other reason is a chat's `stop`."""

_encode = msgspec.json.Encoder().encode


# ── a chat completion as a message ──────────────────────────────────────────────────────────────────────


def message_of(
    body: bytes, usage: Usage, stops: list[str], model: str = "", name_of: Callable[[str], str] = str
) -> bytes:
    """Encode a chat completion as a message. `usage` applies if the completion reports none, and `model` if it names
    none. `name_of` returns the client's name of a tool. Raises `BackendError`."""
    reader, message = ChatReader(), new_message()
    blocks = OpenBlocks(message["id"].removeprefix("msg_"), name_of)
    for part in reader.read_whole(body):
        blocks.add(part)
    reported = reader.reported
    return _encode(
        {
            **message,
            "model": reader.model or model,
            "content": blocks.whole(),
            **stop_of(reader, stops),
            "usage": message_usage((reported and reported.usage) or usage),
        }
    )


def stop_of(reader: ChatReader, stops: list[str]) -> Object:
    """A message's `stop_reason` and `stop_sequence`. Most servers do not report the stop text."""
    sequence = next((text for text in reader.matched if isinstance(text, str) and text in stops), None)
    if reader.finish == "stop" and sequence is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": sequence}
    reason = STOP_REASONS.get(reader.finish or "stop", "end_turn")
    if reader.has_calls and reason == "end_turn":
        reason = "tool_use"
    return {"stop_reason": reason, "stop_sequence": None}


# ── a message as a chat completion ──────────────────────────────────────────────────────────────────────


class _Block(msgspec.Struct):
    """A block of any type; fields without an equivalent in a chat are left out."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")


class ReadMessage(msgspec.Struct, dict=True):
    """A message. `dict` has room for the cached property."""

    content: list[Raw]
    type: str = ""
    id: str = ""
    model: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Any = None

    @cached_property
    def reported(self) -> Usage | None:
        """The tokens that the server reports."""
        report = reported_by(self.usage)
        return None if report is None else report.usage

    def usage_of(self, prompt_tokens: int, size: int) -> Usage:
        """The tokens, estimated if the server reports none, and the bytes of the answer."""
        usage = self.reported or Usage()
        usage.bytes = size
        if not usage.exact:
            usage.estimate(prompt_tokens)
        return usage


_message = msgspec.json.Decoder(ReadMessage)
_block = msgspec.json.Decoder(_Block)


def read_message(body: bytes) -> ReadMessage:
    """Decode a message. Raises `BackendError`."""
    message = decoding.decode(_message.decode, body)
    if message.type != "message":
        raise decoding.bad_response("The upstream's response is not a message.")
    return message


def completion_of(message: ReadMessage, created: int, name_of: Callable[[str], str] = str) -> bytes:
    """Encode a message as a chat completion. `name_of` returns the client's name of a tool."""
    with decoding.Checked():
        chat_message = _chat_message([(raw, _block.decode(raw)) for raw in message.content], name_of)
    ended = finish(message.stop_reason, message.stop_sequence)
    return _encode(
        {
            "id": message.id,
            "object": "chat.completion",
            "created": created,
            "model": message.model,
            "choices": [{"index": 0, "message": chat_message, "logprobs": None, **ended}],
            "usage": chat_fields(message.reported or Usage()),
        }
    )


def _chat_message(blocks: list[tuple[Raw, _Block]], name_of: Callable[[str], str]) -> Object:
    texts = [block.text for _, block in blocks if block.type == "text"]
    fields: Object = {"role": "assistant", "content": "".join(texts) if texts else None, "refusal": None}
    thoughts = [block.thinking for _, block in blocks if block.type == "thinking"]
    if thoughts:
        fields["reasoning_content"] = "".join(thoughts)
    if whole := [raw for raw, block in blocks if block.type in ("thinking", "redacted_thinking")]:
        fields["thinking_blocks"] = whole
    if calls := [_call(block, name_of) for _, block in blocks if block.type == "tool_use"]:
        fields["tool_calls"] = calls
    return fields


def _call(block: _Block, name_of: Callable[[str], str]) -> Object:
    given = bytes(msgspec.json.format(bytes(block.input), indent=-1)).decode()
    return {"id": block.id, "type": "function", "function": {"name": name_of(block.name), "arguments": given}}


def finish(reason: str | None, sequence: str | None) -> Object:
    """A choice's `finish_reason`, and the client's stop string that ended it, in vLLM's field."""
    fields: Object = {"finish_reason": FINISH_REASONS.get(reason or "", "stop")}
    return fields if sequence is None else fields | {"stop_reason": sequence}


# Translates a chat stream into a message stream: OpenAI's chunks in, Anthropic's events out.

PING = event("ping", {})


class MessageEvents:
    """One stream. `stops` are the texts that the client had it end at. `model` applies if the server names none, and
    `name_of` returns the client's name of a tool."""

    __slots__ = ("_blocks", "_ended", "_message", "_model", "_reader", "_started", "_stops")

    def __init__(self, stops: list[str], model: str = "", name_of: Callable[[str], str] = str) -> None:
        self._stops = stops
        self._model = model
        self._reader = ChatReader()
        self._message = new_message()
        self._blocks = OpenBlocks(self._message["id"].removeprefix("msg_"), name_of)
        self._started = self._ended = False

    def take(self, piece: bytes, usage: Usage) -> bytes:
        """The events of a message that whole events of the chat become; may be nothing. `usage` counts where the stream
        itself does not. Raises `BackendError` for an event that cannot be decoded."""
        return b"".join([self._event(each, usage) for each in piece.split(b"\n\n") if each])

    def _event(self, written: bytes, usage: Usage) -> bytes:
        data = sse.data_of(written)
        if data == DONE:
            return self.end(usage)
        if not data:
            return PING if self._started else b""
        for part in self._reader.read_chunk(data):
            self._blocks.add(part)
        # The first chunk of some servers has neither a choice nor the model's name.
        return self._start() + self._blocks.flush() if self._reader.has_choice else b""

    def _start(self) -> bytes:
        """The start event, once. It has the prompt's tokens if the first chunk reports them."""
        if self._started:
            return b""
        self._started = True
        reported = self._reader.reported
        usage = message_usage((reported and reported.usage) or Usage())
        message: dict[str, Any] = {**self._message, "model": self._reader.model or self._model, "usage": usage}
        return event("message_start", {"message": message})

    def end(self, usage: Usage) -> bytes:
        """The last events, once. Raises `BackendError` for a tool call without a name."""
        if self._ended:
            return b""
        for part in self._reader.end():
            self._blocks.add(part)
        self._ended = True
        reported = self._reader.reported
        counted = message_usage((reported and reported.usage) or usage)
        last = event("message_delta", {"delta": stop_of(self._reader, self._stops), "usage": counted})
        return b"".join([self._start(), self._blocks.flush(is_last=True), last, event("message_stop", {})])


def message_usage(usage: Usage) -> dict[str, Any]:
    """The `usage` of a message. Tokens that were read from a cache, or written to it, are not part of its input."""
    fields: dict[str, Any] = {
        "input_tokens": max(usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens, 0),
        "output_tokens": usage.completion_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    }
    if usage.reasoning_tokens:
        fields["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return fields


def reported_by(usage: Any) -> UsageReport | None:
    """The counts of a message's decoded `usage`. A stream reports one half in its first event and the other last."""
    return reported_usage.read(usage, beside=True)
