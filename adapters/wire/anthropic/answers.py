"""Whole responses: a chat completion as a message, and a message as a chat completion."""

from typing import Any

import msgspec
from msgspec import Raw

from adapters.types import Usage
from adapters.wire import decoding
from adapters.wire.anthropic.turns import arguments
from adapters.wire.anthropic.usage import MessageUsage, message_usage
from adapters.wire.openai.chat_usage import ChatUsage

Object = dict[str, Any]

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
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


class _Function(msgspec.Struct):
    name: str
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _ChatMessage(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking_blocks: list[Raw] | None = None
    tool_calls: list[_Call] | None = None

    @property
    def thoughts(self) -> str:
        return self.reasoning_content or self.reasoning or ""


class _Choice(msgspec.Struct):
    message: _ChatMessage
    finish_reason: str | None = None
    stop_reason: Any = None
    """vLLM's field for the stop string."""
    matched_stop: Any = None
    """SGLang's field for it."""


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    id: str = ""
    model: str = ""
    usage: ChatUsage | None = None


_completion = msgspec.json.Decoder(_Completion)


def message_of(body: bytes, usage: Usage, stops: list[str]) -> bytes:
    """Encode a chat completion as a message. `usage` applies if the completion reports none."""
    with decoding.Checked(IndexError):
        completion = _completion.decode(body)
        choice = completion.choices[0]
    reason, sequence = stop_reason(choice.finish_reason, (choice.stop_reason, choice.matched_stop), stops)
    if choice.message.tool_calls and reason == "end_turn":
        reason = "tool_use"
    cost = completion.usage or ChatUsage(usage.prompt_tokens, usage.completion_tokens)
    return _encode(
        {
            "id": message_id(completion.id),
            "type": "message",
            "role": "assistant",
            "model": completion.model,
            "content": _blocks(choice.message),
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": message_usage(cost),
        }
    )


def _blocks(message: _ChatMessage) -> list[Any]:
    blocks: list[Any] = list(message.thinking_blocks or ())
    if message.thoughts and not blocks:
        blocks.append({"type": "thinking", "thinking": message.thoughts, "signature": ""})
    blocks += [{"type": "text", "text": text} for text in (message.content, message.refusal) if text]
    for i, call in enumerate(message.tool_calls or ()):
        given = arguments(call.function.arguments or "")
        blocks.append({"type": "tool_use", "id": call.id or call_id(i), "name": call.function.name, "input": given})
    return blocks


def message_id(id_: str) -> str:
    """The message id for the id of a chat completion."""
    return id_ if id_.startswith("msg_") else f"msg_{id_.removeprefix('chatcmpl-')}"


def call_id(i: int) -> str:
    """An id for a tool call without one, unique within a response."""
    return f"toolu_{i}"


def stop_reason(finish: str | None, matched: tuple[Any, ...], stops: list[str]) -> tuple[str, str | None]:
    """A message's `stop_reason` and `stop_sequence`. Most servers do not report the stop string."""
    sequence = next((text for text in matched if isinstance(text, str) and text in stops), None)
    if finish == "stop" and sequence is not None:
        return "stop_sequence", sequence
    return STOP_REASONS.get(finish or "stop", "end_turn"), None


# ── a message as a chat completion ──────────────────────────────────────────────────────────────────────


class _Block(msgspec.Struct):
    """A block of any type; fields without an equivalent in a chat are left out."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")


class _Message(msgspec.Struct):
    content: list[Raw]
    type: str = ""
    id: str = ""
    model: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: MessageUsage | None = None


_message = msgspec.json.Decoder(_Message)
_block = msgspec.json.Decoder(_Block)


def read_message(body: bytes) -> _Message:
    """Decode a message. Raises `BackendError`."""
    message = decoding.decode(_message.decode, body)
    if message.type != "message":
        raise decoding.bad_response("The upstream's response is not a message.")
    return message


def completion_of(message: _Message, created: int) -> bytes:
    """Encode a message as a chat completion."""
    with decoding.Checked():
        chat_message = _chat_message([(raw, _block.decode(raw)) for raw in message.content])
    ended = finish(message.stop_reason, message.stop_sequence)
    return _encode(
        {
            "id": message.id,
            "object": "chat.completion",
            "created": created,
            "model": message.model,
            "choices": [{"index": 0, "message": chat_message, "logprobs": None, **ended}],
            "usage": (message.usage or MessageUsage()).fields(),
        }
    )


def _chat_message(blocks: list[tuple[Raw, _Block]]) -> Object:
    texts = [block.text for _, block in blocks if block.type == "text"]
    fields: Object = {"role": "assistant", "content": "".join(texts) if texts else None, "refusal": None}
    thoughts = [block.thinking for _, block in blocks if block.type == "thinking"]
    if thoughts:
        fields["reasoning_content"] = "".join(thoughts)
    if whole := [raw for raw, block in blocks if block.type in ("thinking", "redacted_thinking")]:
        fields["thinking_blocks"] = whole
    if calls := [_call(block) for _, block in blocks if block.type == "tool_use"]:
        fields["tool_calls"] = calls
    return fields


def _call(block: _Block) -> Object:
    given = bytes(msgspec.json.format(bytes(block.input), indent=-1)).decode()
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": given}}


def finish(reason: str | None, sequence: str | None) -> Object:
    """A choice's `finish_reason`, and the client's stop string that ended it, in vLLM's field."""
    fields: Object = {"finish_reason": FINISH_REASONS.get(reason or "", "stop")}
    return fields if sequence is None else fields | {"stop_reason": sequence}
