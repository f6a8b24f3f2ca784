"""The messages of a chat in the dialect of one server: without fields that it refuses, and with those that it demands.

A conversation may have turns of several servers, after a fallback or in a split. Each server adds fields of its own to
its turns, and clients send them back to all.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

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
_OPENING = len('[{"role":')
_CALLED = re.compile(rb'"tool_calls"\s*:')
_ANSWERED = re.compile(rb'"assistant"')

Replay = Literal["", "loop", "all", "each", "chunks"]
"""The thoughts of earlier turns that a server takes.

    (empty)  as they come
    loop     only those after the last turn of the user (DeepSeek before v4)
    all      if one turn has thoughts, each turn with calls has some (Moonshot)
    each     each turn of the model has some, if need be empty (DeepSeek from v4 on)
    chunks   as parts of the content (Mistral)
"""
THOUGHTS = ("reasoning_content", "reasoning")
_THOUGHT = re.compile(rb'"reasoning(?:_content)?"\s*:')
_EMPTY = (Raw(b"null"), Raw(b'""'))
_SYSTEM, _USER = Raw(b'"system"'), Raw(b'"user"')
_IS_SYSTEM = re.compile(rb'"role":"system"')
"""In messages that a translation has encoded: no text has these bytes unescaped."""

_encode = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(list[Fields]).decode
_calls = msgspec.json.Decoder(list[Fields] | None).decode
_parts = msgspec.json.Decoder(list[Raw]).decode


def in_dialect(
    messages: Raw, refused: frozenset[str], *, signed: bool, thoughts: tuple[str, ...] = (), replay: Replay = ""
) -> Raw:
    """The messages without the `refused` fields; the same bytes if they have none.

    With `signed`, the first call of each turn has a signature. The server takes thoughts back in the fields `thoughts`,
    and those that `replay` says. Malformed messages are left to the server."""
    view = memoryview(messages)
    moves = (thoughts or replay) and (_ANSWERED if replay == "each" else _THOUGHT).search(view)
    if not (moves or (refused and _any_of(refused).search(view)) or (signed and _CALLED.search(view))):
        return messages
    try:
        turns = _messages(messages)
        if moves:
            turns = list(_replayed(turns, thoughts or THOUGHTS[:1], replay))
        return Raw(_encode([_turn(turn, refused, signed) for turn in turns]))
    except MALFORMED_JSON:
        return messages


@cache
def _any_of(names: Iterable[str]) -> re.Pattern[bytes]:
    """An expression for a field with one of the names. Each dialect has one set of names."""
    return re.compile(rb'"(?:' + b"|".join(name.encode() for name in sorted(names)) + rb')"\s*:')


def _replayed(turns: list[Fields], names: tuple[str, ...], replay: Replay) -> Iterable[Fields]:
    """The turns, with their thoughts where the server takes them."""
    last = max((at for at, turn in enumerate(turns) if turn.get("role") == Raw(b'"user"')), default=-1)
    thoughts = [_thought(turn) for turn in turns]
    for at, (turn, thought) in enumerate(zip(turns, thoughts, strict=True)):
        if turn.get("role") != Raw(b'"assistant"'):
            yield turn
            continue
        fields = _without(turn, THOUGHTS)
        if replay == "each" or (replay == "all" and any(thoughts) and _CALLS in turn):
            thought = thought or Raw(b'""')
        elif replay == "loop" and at < last:
            thought = None
        if thought is not None and replay == "chunks":
            fields["content"] = _with_chunk(thought, turn.get("content", _EMPTY[0]))
        elif thought is not None:
            fields |= dict.fromkeys(names, thought)
        yield fields


def _thought(turn: Fields) -> Raw | None:
    """The thoughts of a turn; None without any."""
    return next((turn[name] for name in THOUGHTS if turn.get(name, _EMPTY[0]) not in _EMPTY), None)


def _with_chunk(thought: Raw, content: Raw) -> Raw:
    """A content whose first part is a thought, in Mistral's form."""
    parts: list[Any] = [{"type": "thinking", "thinking": [{"type": "text", "text": thought}]}]
    if bytes(memoryview(content)[:1]) == b"[":
        parts += _parts(content)
    elif content not in _EMPTY:
        parts.append({"type": "text", "text": content})
    return Raw(_encode(parts))


def with_early_system(messages: Raw) -> Raw:
    """The messages of a translation, in which each system message after the first one is the user's.

    It becomes one turn with the user's turn beside it: many templates require that the roles alternate."""
    view = memoryview(messages)
    first = _IS_SYSTEM.search(view)
    if first is None or (first.start() < _OPENING and not _IS_SYSTEM.search(view, first.end())):
        return messages
    turns = list[Fields]()
    for turn in _messages(messages):
        if turns and turn.get("role") == _SYSTEM:
            turn = {**turn, "role": _USER}
        if turns and turns[-1].get("role") == turn.get("role") == _USER:
            turns[-1] = {**turn, "content": _together(turns[-1].get("content"), turn.get("content"))}
        else:
            turns.append(turn)
    return Raw(_encode(turns))


def _together(*contents: Raw | None) -> Raw:
    """The contents of several messages as one list of parts."""
    parts = list[Any]()
    for each in contents:
        if each is not None and each not in _EMPTY:
            is_list = bytes(memoryview(each)[:1]) == b"["
            parts += _parts(each) if is_list else [{"type": "text", "text": each}]
    return Raw(_encode(parts))


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
