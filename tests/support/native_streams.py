"""Streams as servers of Messages, of Gemini and of Responses write them."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from adapters.types import ANTHROPIC, GEMINI, OPENAI, Form

Object = dict[str, Any]


class NativeStream(NamedTuple):
    """A protocol: the path of its clients, the form of its answers, and its pool."""

    path: str
    form: Form
    protocol: Any
    fields: Object


MESSAGES = NativeStream("/v1/messages", ANTHROPIC, "anthropic", {"stream": True})
CONTENTS = NativeStream("/v1beta/models/chat:streamGenerateContent?alt=sse", GEMINI, "gemini", {
    "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
})  # fmt: skip
RESPONSES = NativeStream("/v1/responses", OPENAI, {"name": "openai", "responses": True}, {"stream": True})
NATIVE = {"messages": MESSAGES, "contents": CONTENTS, "responses": RESPONSES}


def stream_of(native: NativeStream, part: str, pieces: Sequence[str]) -> list[bytes]:
    """The events of an answer whose `content`, `thoughts` or `arguments` are these pieces."""
    if native is MESSAGES:
        return _messages(part, pieces)
    return _contents(part, pieces) if native is CONTENTS else _responses(part, pieces)


def named(kind: str, **fields: Any) -> bytes:
    """One event with its type, as Messages and Responses write it."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _messages(part: str, pieces: Sequence[str]) -> list[bytes]:
    message: Object = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    kinds: dict[str, tuple[Object, str, str]] = {
        "content": ({"type": "text", "text": ""}, "text_delta", "text"),
        "thoughts": ({"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking"),
        "arguments": ({"type": "tool_use", "id": "t", "name": "f", "input": {}}, "input_json_delta", "partial_json"),
    }
    block, kind, field = kinds[part]
    return [
        named("message_start", message={**message, "stop_reason": None, "usage": usage}),
        named("content_block_start", index=0, content_block=block),
        *(named("content_block_delta", index=0, delta={"type": kind, field: piece}) for piece in pieces),
        named("content_block_stop", index=0),
        named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
        named("message_stop"),
    ]


def _contents(part: str, pieces: Sequence[str]) -> list[bytes]:
    def chunk(written: list[Object], **fields: Any) -> bytes:
        candidate = {"index": 0, "content": {"role": "model", "parts": written}, **fields}
        return b"data: " + json.dumps({"candidates": [candidate], "modelVersion": "x"}).encode() + b"\n\n"

    if part == "arguments":
        parts: list[Object] = [{"functionCall": {"name": "f", "args": json.loads("".join(pieces))}}]
    else:
        parts = [{"text": piece, **({"thought": True} if part == "thoughts" else {})} for piece in pieces]
    return [*(chunk([each]) for each in parts), chunk([{"text": ""}], finishReason="STOP")]


def _responses(part: str, pieces: Sequence[str]) -> list[bytes]:
    text, place = "".join(pieces), {"output_index": 0, "item_id": "i"}
    items: dict[str, tuple[Object, str]] = {
        "content": (
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]},
            "response.output_text.delta",
        ),
        "thoughts": (
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]},
            "response.reasoning_summary_text.delta",
        ),
        "arguments": (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": text},
            "response.function_call_arguments.delta",
        ),
    }
    item, kind = items[part]
    item = {"id": "i", **item}
    numbered: dict[str, Object] = {"content": {"content_index": 0}, "thoughts": {"summary_index": 0}, "arguments": {}}
    part_of = numbered[part]
    response: Object = {"id": "resp_1", "object": "response", "model": "x", "output": []}
    growing = [name for name in ("content", "summary", "arguments") if name in item]
    empty: Object = {**item, **{name: type(item[name])() for name in growing}}
    return [
        named("response.created", response={**response, "status": "in_progress"}),
        named("response.output_item.added", output_index=0, item=empty),
        *(named(kind, **place, **part_of, delta=piece) for piece in pieces),
        named(kind.replace(".delta", ".done"), **place, **part_of, text=text),
        named("response.output_item.done", output_index=0, item=item),
        named("response.completed", response={**response, "status": "completed", "output": [item]}),
    ]
