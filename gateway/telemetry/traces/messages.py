"""Requests and answers as the messages of OpenTelemetry's conventions for generative AI.

https://github.com/open-telemetry/semantic-conventions-genai: a message has a role and parts; a part is a text, a
reasoning, a call of a tool, its response, or another kind by its own name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

Message = dict[str, Any]
SHARE = 8
"""A text of content that is too large is cut to this part of the limit."""
_encode = msgspec.json.Encoder().encode


def input_messages(fields: Mapping[str, Any]) -> tuple[list[Message], list[Message]]:
    """The system's instructions as parts, and the messages of a request."""
    written = fields.get("messages", fields.get("input", fields.get("prompt")))
    if isinstance(written, str):
        written = [{"role": "user", "content": written}]
    items = [item if isinstance(item, dict) else {"role": "user", "content": item} for item in _list(written)]
    instructions = parts_of({"content": fields.get("instructions")})
    for item in items:
        if item.get("role") in ("system", "developer"):
            instructions += parts_of(item)
    others = [item for item in items if item.get("role") not in ("system", "developer")]
    return instructions, [{"role": str(item.get("role", "user")), "parts": parts_of(item)} for item in others]


def output_messages(body: Mapping[str, Any]) -> list[Message]:
    """The messages of a whole answer."""
    if isinstance(body.get("content"), list):  # Anthropic's
        finish = str(body.get("stop_reason") or "")
        return [{"role": "assistant", "parts": parts_of(body), "finish_reason": finish}]
    messages: list[Message] = []
    for item in _list(body.get("choices")) or _list(body.get("output")):
        if isinstance(item, dict):
            message = item.get("message")
            if not isinstance(message, dict):
                message = {"content": item.get("text", item.get("content"))}
            finish = str(item.get("finish_reason") or "")
            messages.append({"role": "assistant", "parts": parts_of(message), "finish_reason": finish})
    return messages


def streamed_messages(texts: Mapping[str, str], reasons: Mapping[str, str]) -> list[Message]:
    """The messages of a streamed answer: from its joined texts, whose places begin with the index of the choice, and
    from the reasons of the choices' ends."""
    choices: dict[str, dict[str, Message]] = {}
    for place, text in texts.items():
        path, _, field = place.rpartition(".")
        parts = choices.setdefault(path.partition(".")[0], {})
        if field in ("name", "arguments", "partial_json"):
            call = parts.setdefault(f"{path} call", {"type": "tool_call"})
            call["name" if field == "name" else "arguments"] = text
        else:
            kind = "reasoning" if field in ("reasoning", "reasoning_content", "thinking") else "text"
            parts[place] = {"type": kind, "content": text}
    return [
        {"role": "assistant", "parts": [*parts.values()], "finish_reason": reasons.get(index, "")}
        for index, parts in choices.items()
    ]


def finish_reasons(events: Iterable[Any]) -> dict[str, str]:
    """The reason of the end of each choice of a stream, by its index."""
    reasons: dict[str, str] = {}
    for event in events:
        if not isinstance(event, dict):
            continue
        delta = event.get("delta")
        if isinstance(delta, dict) and isinstance(reason := delta.get("stop_reason"), str):  # Anthropic's
            reasons.setdefault("0", reason)
        for choice in _list(event.get("choices")):
            if isinstance(choice, dict) and isinstance(reason := choice.get("finish_reason"), str):
                reasons[str(choice.get("index", 0))] = reason
    return reasons


def tool_definitions(fields: Mapping[str, Any]) -> list[Message]:
    """The tools of a request."""
    definitions: list[Message] = []
    for tool in _list(fields.get("tools")):
        if isinstance(tool, dict):
            function = tool.get("function")
            about = function if isinstance(function, dict) else tool
            definitions.append({**about, "type": str(tool.get("type", "function"))})
    return definitions


def parts_of(message: Mapping[str, Any]) -> list[Message]:
    """The parts of a message."""
    content = message.get("content")
    if message.get("role") == "tool":
        return [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}]
    parts: list[Message] = []
    if isinstance(reasoning := message.get("reasoning_content"), str):
        parts.append({"type": "reasoning", "content": reasoning})
    if isinstance(content, str):
        parts.append({"type": "text", "content": content})
    parts += [_part(item) for item in _list(content)]
    for call in _list(message.get("tool_calls")):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            name, arguments = function.get("name"), function.get("arguments")
            parts.append({"type": "tool_call", "id": call.get("id"), "name": name, "arguments": arguments})
    return parts


def _list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one: a client may send anything, and the server refuses it."""
    return value if isinstance(value, list) else []


def _part(item: Any) -> Message:
    if not isinstance(item, dict):
        return {"type": "text", "content": item if isinstance(item, str) else str(item)}
    if isinstance(text := item.get("text"), str):
        return {"type": "text", "content": text}
    return {**item, "type": str(item.get("type", "generic"))}


def bounded(items: list[Message], most: int) -> str:
    """The items as JSON of `most` bytes: long texts are cut, then the oldest items are left out."""
    whole = _encode(items)
    if len(whole) > most:
        cut = [_cut(item, most // SHARE) for item in items]
        sizes = [len(_encode(item)) + 1 for item in cut]
        left, first = sum(sizes) + 2, 0
        while left > most and first < len(cut):
            left -= sizes[first]
            first += 1
        whole = _encode(cut[first:])
    return whole.decode()


def _cut(value: Any, most: int) -> Any:
    if isinstance(value, str):
        # A character takes up to six bytes as JSON.
        return value if len(value) * 6 <= most else f"{value[: most // 6]}… [{len(value)} characters]"
    if isinstance(value, dict):
        return {name: _cut(item, most) for name, item in value.items()}
    return [_cut(item, most) for item in value] if isinstance(value, list) else value


def attributes(messages: Iterable[tuple[str, list[Message]]], most: int) -> dict[str, str]:
    """The attributes that have a value."""
    return {name: bounded(items, most) for name, items in messages if items}
