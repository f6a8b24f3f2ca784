"""Marks the parts of a prompt that a provider keeps in its cache: `cache_control`, in a chat and in a message alike.

A cache holds a prompt from its beginning to a mark: tools, then the system prompt, then the turns. The codecs of
providers with another form translate the marks.
"""

from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

from adapters.requests import Fields
from adapters.types import BYTES_PER_TOKEN
from adapters.wire.decoding import MALFORMED_JSON

MOST = 4
"""The most marks of a request."""
TTLS = {"5m": 300, "1h": 3600}
"""Seconds of the lives of marks."""
BEFORE = -1
"""The number of the message of a mark in the tools or the system prompt, which are before all messages."""
_MARK = b'"cache_control"'
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(list[Fields]).decode
_role = msgspec.json.Decoder(str).decode
_blocks = msgspec.json.Decoder(list[Fields]).decode
_text = msgspec.json.Decoder(str).decode
_EMPTY = Raw(b"[]")


class Breakpoints(NamedTuple):
    """Where a prompt is marked."""

    system: bool
    tools: bool
    turns: int
    """The number of the last turns of the user, results of tools included."""
    ttl: Literal["5m", "1h"]
    min_tokens: int
    """A shorter beginning is not marked: providers do not keep it."""

    @property
    def mark(self) -> Raw:
        """The value of a mark."""
        return Raw(_encode({"type": "ephemeral"} | ({"ttl": "1h"} if self.ttl == "1h" else {})))


class ChatMark(NamedTuple):
    """A mark of another protocol's request, in the chat that it becomes: after so many parts of a message."""

    message: int
    """Its number, or `BEFORE`."""
    parts: int | None
    """None for all parts."""
    ttl: int
    """Seconds."""


def ttl_of(mark: Any) -> int | None:
    """The seconds of a mark's value; None for a value that is no mark."""
    return TTLS["1h" if mark.get("ttl") == "1h" else "5m"] if isinstance(mark, dict) else None


def marked_chat(fields: Fields, points: Breakpoints) -> Fields:
    """The fields of a chat with marks; unchanged if the client has set its own, and if a field is malformed."""
    try:
        return _marked(fields, points, is_chat=True)
    except MALFORMED_JSON:
        return fields


def marked_message(native: Fields, points: Breakpoints) -> Fields:
    """The same for the fields of a message of Anthropic's."""
    try:
        return _marked(native, points, is_chat=False)
    except MALFORMED_JSON:
        return native


def _marked(fields: Fields, points: Breakpoints, *, is_chat: bool) -> Fields:
    if "cache_control" in fields or any(_MARK in memoryview(raw).tobytes() for raw in _prompt(fields)):
        return fields
    tools, messages = _fields(_given(fields, "tools")), _fields(_given(fields, "messages"))
    beginning = 0
    """Bytes of the prompt up to a place."""
    changed: Fields = {}
    left, in_messages = MOST, False
    beginning += len(memoryview(_given(fields, "tools")))
    if points.tools and tools and _is_long(beginning, points):
        tools[-1]["cache_control"] = points.mark
        changed["tools"] = Raw(_encode(tools))
        left -= 1
    first = _end_of_system(messages) if is_chat else 0
    system = sum(map(_size, messages[:first])) if is_chat else len(memoryview(_given(fields, "system")))
    beginning += system
    if points.system and system > 2 and _is_long(beginning, points):
        if is_chat:
            marks = in_messages = _mark(messages[first - 1], points.mark)
        else:
            section: Fields = {"content": fields["system"]}
            marks = _mark_block(section, points.mark)
            changed |= {"system": section["content"]} if marks else {}
        left -= marks
    if _mark_turns(messages, first, beginning, points, min(left, points.turns), is_chat=is_chat) or in_messages:
        changed["messages"] = Raw(_encode(messages))
    return {**fields, **changed} if changed else fields


def _mark_turns(
    messages: list[Fields], first: int, beginning: int, points: Breakpoints, most: int, *, is_chat: bool
) -> int:
    """Mark the last turns of the user. Returns the number of marks."""
    ends, size = list[int](), beginning
    for message in messages:
        size += _size(message)
        ends.append(size)
    marks = 0
    for number in range(len(messages) - 1, first - 1, -1):
        if marks == most or not _is_long(ends[number], points):
            break
        if _role(messages[number].get("role", Raw(b'""'))) in ("user", "tool"):
            mark = _mark if is_chat else _mark_block
            marks += mark(messages[number], points.mark)
    return marks


def _prompt(fields: Fields) -> list[Raw]:
    return [fields[name] for name in ("tools", "system", "messages") if name in fields]


def _given(fields: Fields, name: str) -> Raw:
    raw = fields.get(name, _EMPTY)
    return _EMPTY if bytes(memoryview(raw)[:4]) == b"null" else raw


def _size(message: Fields) -> int:
    return sum(len(memoryview(raw)) for raw in message.values())


def _is_long(size: int, points: Breakpoints) -> bool:
    return size >= points.min_tokens * BYTES_PER_TOKEN


def _end_of_system(messages: list[Fields]) -> int:
    """The number of the system's messages at the beginning of a chat."""
    for number, message in enumerate(messages):
        if _role(message.get("role", Raw(b'""'))) not in ("system", "developer"):
            return number
    return len(messages)


def _mark(message: Fields, mark: Raw) -> bool:
    """Mark a message of a chat, which means its last part."""
    if bytes(memoryview(message.get("content", _EMPTY))[:4]) in (b'""', b"[]", b"null"):
        return False
    message["cache_control"] = mark
    return True


def _mark_block(message: Fields, mark: Raw) -> bool:
    """Mark the last block of a message's content. An empty text cannot be marked."""
    content: Any = message.get("content", _EMPTY)
    if bytes(memoryview(content)[:1]) == b'"':
        text = _text(content)
        blocks: list[Fields] = [{"type": Raw(b'"text"'), "text": content}] if text.strip() else []
    else:
        blocks = _blocks(content)
    if not blocks or bytes(memoryview(blocks[-1].get("text", Raw(b"-")))[:2]) == b'""':
        return False
    blocks[-1]["cache_control"] = mark
    message["content"] = Raw(_encode(blocks))
    return True
