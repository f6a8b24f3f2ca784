"""Translates a Messages request into a chat.

Parts without an equivalent in a chat are left out and reported, as `ignored_fields` decides. The work of Anthropic's
own servers in earlier turns (searches, code, encrypted thoughts) is left out too: no other model can read it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import Fields
from adapters.wire.anthropic import blocks, cache_marks
from adapters.wire.anthropic.tools import choice_fields, functions
from adapters.wire.body import field
from adapters.wire.native_chat import ChatTranslation
from adapters.wire.openai import bounds, kept_signatures
from adapters.wire.openai.history import complete_thoughts
from adapters.wire.openai.known_fields import DefinedFields, LeftOut
from adapters.wire.prompt_cache import ChatMark

SAME = ("max_tokens", "stream", "temperature", "top_k", "top_p")
"""Fields that both wires call alike."""
_TRANSLATED = (
    "messages", "metadata", "model", "output_config", "stop_sequences", "system", "thinking", "tool_choice", "tools",
)  # fmt: skip
_TRANSLATABLE = frozenset((*SAME, *_TRANSLATED))
FIELDS = _TRANSLATABLE | {
    "cache_control", "container", "context_management", "diagnostics", "inference_geo", "mcp_servers", "service_tier",
    "speed", "user_profile_id",
}  # fmt: skip
"""All that the wire has a name for."""
_EFFORTS = {"low": "low", "medium": "medium", "high": None, "xhigh": "high", "max": "high"}
"""`high` is Anthropic's default, and many models without a choice of effort refuse the field. OpenAI's servers have no
common word above `high`."""
_MARK = re.compile(rb'"(cache_control|citations)"\s*:(?!\s*(?:null|\[\]|\{\s*"enabled"\s*:\s*false))')
"""Hints inside of blocks and tools. In a text the quotes would be escaped."""

Object = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class _Format(msgspec.Struct, tag_field="type", tag="json_schema", forbid_unknown_fields=True):
    schema: Raw


class _OutputConfig(msgspec.Struct, forbid_unknown_fields=True):
    effort: str | None = None
    format: _Format | None = None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[blocks.Block]


_messages = DefinedFields[list[_Message]](list[_Message])
_system = DefinedFields[str | list[blocks.TextBlock] | None](str | list[blocks.TextBlock] | None)
_output_config = DefinedFields[_OutputConfig | None](_OutputConfig | None)
_metadata = msgspec.json.Decoder(dict[str, Any] | None)
_stops = msgspec.json.Decoder(list[str] | None)


def chat_fields(native: Fields, added: Fields, *, stream: bool) -> ChatTranslation:
    """The chat of a message. Raises `CallerError`.

    `added` are fields of a chat for which a message has no name.
    """
    ignored = IgnoredFields()
    ignored.sift(native, _TRANSLATABLE)
    for name in ("system", "messages", "tools"):
        for hint in set(_MARK.findall(memoryview(native.get(name, b"")))):
            ignored.ignore(hint.decode())
    marks = list[ChatMark]() if "cache_control" in ignored.ignored else None
    messages = list(_system_message(native, ignored))
    _converse(messages, native, ignored, marks)
    if marks is not None:
        marks += cache_marks.of_fields(native, len(messages))
    if not messages:
        raise CallerError("`messages` has nothing that a chat can have.", param="messages")
    fields = {name: native[name] for name in SAME if name in native}
    chat: Object = {"messages": messages, **_output(native, ignored)}
    if stream:
        chat["stream_options"] = {"include_usage": True}
    if messages[-1]["role"] == "assistant":  # the response continues this message
        chat |= {"add_generation_prompt": False, "continue_final_message": True}
    if stops := ignored.stops(field(native, "stop_sequences", _stops)):
        chat["stop"] = stops
    metadata = field(native, "metadata", _metadata) or {}
    if isinstance(user := metadata.get("user_id"), str):
        chat["user"] = bounds.user(user)
    if metadata.keys() - {"user_id"}:
        ignored.ignore("metadata")
    if tools := functions(native, ignored):
        chat |= {"tools": tools, **choice_fields(native, tools, ignored)}
    fields |= {name: Raw(_encode(value)) for name, value in chat.items()}
    return ChatTranslation({**fields, **added, "model": native["model"]}, tuple(ignored.ignored), tuple(marks or ()))


def _output(native: dict[str, Raw], ignored: IgnoredFields) -> Object:
    config = field(native, "output_config", _output_config.reporting(ignored)) or _OutputConfig()
    chat = dict[str, Any]()
    if config.effort is not None and config.effort not in _EFFORTS:
        ignored.ignore("reasoning_effort")
    elif config.effort is not None and (effort := _EFFORTS[config.effort]):
        chat["reasoning_effort"] = effort
    if config.format is not None:
        schema = {"name": "answer", "schema": config.format.schema, "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────


def _system_message(native: dict[str, Raw], ignored: IgnoredFields) -> Iterator[Object]:
    if system := field(native, "system", _system.reporting(ignored)):
        yield {"role": "system", "content": _content(system)}


def _converse(
    messages: list[Object], native: dict[str, Raw], ignored: IgnoredFields, marks: list[ChatMark] | None
) -> None:
    """Append all messages. If a turn of the assistant has nothing left, the user's turns beside it become one: many
    templates require that the roles alternate. The marks of caches are added to `marks`, if it is given."""
    first, joins = len(messages), False
    for i, message in enumerate(field(native, "messages", _messages.reporting(ignored), required=True) or ()):
        try:
            turns = list(_SIDES[message.role](message.content, ignored))
        except blocks.Untranslatable as error:
            raise CallerError(f"`messages[{i}].content` {error}", param="messages") from None
        if joins and len(messages) > first and turns and messages[-1]["role"] == turns[0]["role"] == "user":
            joined = blocks.as_parts(messages[-1]["content"], turns[0]["content"])
            messages[-1], turns = {"role": "user", "content": joined}, turns[1:]
        messages += turns
        if marks is not None and not isinstance(message.content, str):
            marks += cache_marks.of_blocks(message.content, messages, len(turns))
        joins = message.role == "assistant" and not turns
    complete_thoughts(messages)


def _content(content: Any) -> str | list[Object]:
    """A text where it is one, since not every server takes a list. Empty texts are left out."""
    if isinstance(content, str):
        return content
    parts = [part for part in blocks.parts_of(content) if part.get("text") != ""] or blocks.as_parts("")
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _from_system(content: str | list[blocks.Block], ignored: IgnoredFields) -> Iterator[Object]:
    blocks.only(content, blocks.TextBlock)
    yield {"role": "system", "content": _content(content)}


def _from_user(content: str | list[blocks.Block], ignored: IgnoredFields) -> Iterator[Object]:
    """Results of tools come first, each in a message of its own, as in a chat.

    Such a message is text: images of a tool follow in the user's message.
    """
    if isinstance(content, str):
        yield {"role": "user", "content": content}
        return
    blocks.only(
        content,
        blocks.TextBlock,
        blocks.ImageBlock,
        blocks.DocumentBlock,
        blocks.SearchResultBlock,
        blocks.ToolResultBlock,
        LeftOut,
    )
    shown, own = list[Object](), list[blocks.Block]()
    for block in content:
        if isinstance(block, blocks.ToolResultBlock):
            text, pictures = block.text_and_files()
            shown += pictures
            yield {"role": "tool", "tool_call_id": blocks.chat_id(block.tool_use_id), "content": text}
        else:
            own.append(block)
    if shown or own:
        rest = _content(own)
        yield {"role": "user", "content": rest if not shown else [*shown, *blocks.as_parts(rest)]}


def _from_assistant(content: str | list[blocks.Block], ignored: IgnoredFields) -> Iterator[Object]:
    """The turn, or none if it has neither a text nor a call: several servers refuse an empty one."""
    if isinstance(content, str):
        if content:
            yield {"role": "assistant", "content": content}
        return
    blocks.only(
        content,
        blocks.TextBlock,
        blocks.ThinkingBlock,
        blocks.RedactedThinkingBlock,
        blocks.ToolUseBlock,
        LeftOut,
    )
    texts = [block for block in content if isinstance(block, blocks.TextBlock) and block.text]
    message: Object = {"role": "assistant", "content": _content(texts) if texts else None}
    if thoughts := "".join([block.thinking for block in content if isinstance(block, blocks.ThinkingBlock)]):
        message["reasoning_content"] = thoughts
    extras = dict(_call_extras(content, ignored))
    if (own := extras.pop("", None)) is not None:
        message["extra_content"] = own
    calls = [block.call() for block in content if isinstance(block, blocks.ToolUseBlock)]
    for call in calls:
        if (extra := extras.get(call["id"])) is not None:
            kept_signatures.restore(message, call, extra)
    if calls:
        message["tool_calls"] = calls
    if texts or calls:
        yield message


def _call_extras(content: Iterable[blocks.Block], ignored: IgnoredFields) -> Iterator[tuple[str, Raw]]:
    """The fields of calls that the gateway has put into thoughts that nobody can read, and those of the message itself
    without an id. Those of Anthropic's are left out."""
    for block in content:
        if isinstance(block, blocks.RedactedThinkingBlock):
            if (extra := kept_signatures.decode(block.data)) is not None:
                yield blocks.chat_id(extra.call_id), extra.extra
            elif not kept_signatures.is_own(block.data):
                ignored.ignore("redacted_thinking")


_SIDES = {"user": _from_user, "assistant": _from_assistant, "system": _from_system}
