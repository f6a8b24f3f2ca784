"""Requests of every door for texts, and the same ones as a newer client writes them, with fields that nobody knows."""

from typing import Any

from tests.support.doors import CHATS, MESSAGES, RESPONSES

Object = dict[str, Any]
CONTENTS, CONVERSE, INVOKE = "/v1beta/models/chat:generateContent", "/model/chat/converse", "/model/chat/invoke"
RAW_PREDICT = "/v1/projects/p/locations/global/publishers/anthropic/models/chat:rawPredict"
NEW = [f"new_field_{i}" for i in range(50)]
"""Fields that nobody has invented yet."""
_VALUES: list[Any] = [1, "a", True, [{"b": 1.5}], {"type": "x"}, [], 0.25]
_FREE = frozenset({
    "args", "input", "inputSchema", "input_schema", "metadata", "parameters", "parametersJsonSchema", "response",
    "schema",
})  # fmt: skip
"""Objects of the client's own: each field of theirs means something."""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
_SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
_MESSAGE: Object = {
    "max_tokens": 4096,
    "system": [{"type": "text", "text": "Be kind."}],
    "tools": [{"name": "look", "description": "d", "input_schema": _SCHEMA}],
    "tool_choice": {"type": "auto"},
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "q"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        ]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "a"}, {"type": "tool_use", "id": "call_1", "name": "look", "input": {"x": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "r"}]},
        ]},
    ],
}  # fmt: skip
REQUESTS: dict[str, Object] = {
    CHATS: {
        "model": "chat",
        "tools": [{"type": "function", "function": {"name": "look", "description": "d", "parameters": _SCHEMA}}],
        "tool_choice": "auto",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [
                {"type": "text", "text": "q"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            ]},
            {"role": "assistant", "content": "a", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}},
            ]},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "r"}]},
        ],
    },
    MESSAGES: {"model": "chat", **_MESSAGE},
    INVOKE: {"anthropic_version": "bedrock-2023-05-31", **_MESSAGE},
    RAW_PREDICT: {"anthropic_version": "vertex-2023-10-16", **_MESSAGE},
    RESPONSES: {
        "model": "chat",
        "instructions": "Be kind.",
        "tools": [{"type": "function", "name": "look", "description": "d", "parameters": _SCHEMA, "strict": False}],
        "reasoning": {"summary": "auto"},
        "text": {"format": {"type": "text"}},
        "input": [
            {"role": "user", "content": [
                {"type": "input_text", "text": "q"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
            ]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"x":1}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "r"},
        ],
    },
    CONTENTS: {
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "tools": [{"functionDeclarations": [{"name": "look", "description": "d", "parametersJsonSchema": _SCHEMA}]}],
        "generationConfig": {"temperature": 0.5},
        "contents": [
            {"role": "user", "parts": [{"text": "q"}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}]},
            {"role": "model", "parts": [{"functionCall": {"id": "call_1", "name": "look", "args": {"x": 1}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "call_1", "name": "look", "response": {"output": "r"}}},
            ]},
        ],
    },
    CONVERSE: {
        "system": [{"text": "Be kind."}],
        "inferenceConfig": {"maxTokens": 4096},
        "toolConfig": {"tools": [
            {"toolSpec": {"name": "look", "description": "d", "inputSchema": {"json": _SCHEMA}}},
        ]},
        "messages": [
            {"role": "user", "content": [{"text": "q"}, {"image": {"format": "png", "source": {"bytes": PIXEL}}}]},
            {"role": "assistant", "content": [
                {"text": "a"}, {"toolUse": {"toolUseId": "call_1", "name": "look", "input": {"x": 1}}},
            ]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "call_1", "content": [{"text": "r"}]}}]},
        ],
    },
}  # fmt: skip
"""A request with tools, an image and a call at each door."""


def newer(value: Any, name: str = "") -> Any:
    """The value with all invented fields in each of its objects, but for those of the client's own."""
    if isinstance(value, list):
        return [newer(entry) for entry in value]
    if not isinstance(value, dict) or name in _FREE:
        return value
    added = {new: _VALUES[place % len(_VALUES)] for place, new in enumerate(NEW)}
    return {field: newer(inner, field) for field, inner in value.items()} | added


def places(value: Any, name: str = "") -> int:
    """The number of objects that `newer` extends."""
    if isinstance(value, list):
        return sum(places(entry) for entry in value)
    if not isinstance(value, dict) or name in _FREE:
        return 0
    return 1 + sum(places(inner, field) for field, inner in value.items())
