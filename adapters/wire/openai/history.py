"""The messages of a chat in the dialect of one server: without fields that it refuses, and with those that it demands.

A conversation may have turns of several servers, after a fallback or in a split. Each server adds fields of its own to
its turns, and clients send them back to all.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from adapters.wire.decoding import MALFORMED_JSON

Fields = dict[str, Raw]

OWN_FIELDS = frozenset({"extra_content", "reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"})
"""Fields of messages and calls that some servers add and others refuse."""
EXTRA = "extra_content"
UNSIGNED = Raw(b'{"google":{"thought_signature":"skip_thought_signature_validator"}}')
"""Gemini's own value for a call of another model."""
_CALLS = "tool_calls"
_FIELD = re.compile(rb'"(?:' + b"|".join(name.encode() for name in sorted(OWN_FIELDS)) + rb')"\s*:')
_CALLED = re.compile(rb'"tool_calls"\s*:')

_encode = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(list[Fields]).decode
_calls = msgspec.json.Decoder(list[Fields] | None).decode


def in_dialect(messages: Raw, refused: frozenset[str], *, signed: bool) -> Raw:
    """The messages without the `refused` fields; the same bytes if they have none.

    With `signed`, the first call of each turn has a signature. Malformed messages are left to the server."""
    view = memoryview(messages)
    if not ((refused and _FIELD.search(view)) or (signed and _CALLED.search(view))):
        return messages
    try:
        return Raw(_encode([_turn(turn, refused, signed) for turn in _messages(messages)]))
    except MALFORMED_JSON:
        return messages


def complete_thoughts(messages: list[dict[str, Any]]) -> None:
    """Give each message with calls a thought, if any message has one: some servers demand it of all or of none."""
    if any("reasoning_content" in message for message in messages):
        for message in messages:
            if _CALLS in message:
                message.setdefault("reasoning_content", "")


def _turn(turn: Fields, refused: frozenset[str], signed: bool) -> Fields:
    fields = _without(turn, refused)
    if calls := _calls(turn.get(_CALLS, Raw(b"null"))):
        calls = [_without(call, refused) for call in calls]
        if signed:
            calls[0].setdefault(EXTRA, UNSIGNED)
        fields[_CALLS] = Raw(_encode(calls))
    return fields


def _without(fields: Fields, names: Iterable[str]) -> Fields:
    return {name: raw for name, raw in fields.items() if name not in names}
