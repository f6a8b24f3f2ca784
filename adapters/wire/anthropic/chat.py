"""Translates a Messages request into a chat.

Parts without an equivalent in a chat are refused. docs/adapters.md lists the parts that are omitted instead, since no
answer depends on them: hints to Anthropic's caches and capacity, and signatures of thoughts that only Anthropic can
verify.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.payloads import Fields
from adapters.wire.anthropic import blocks
from adapters.wire.anthropic.tools import choice_fields, functions
from adapters.wire.body import field
from adapters.wire.openai.ignored_fields import IgnoredFields

SAME = ("max_tokens", "stream", "temperature", "top_k", "top_p")
"""Fields that both wires call alike."""
_LEFT_OUT = ("cache_control", "service_tier", "thinking")
_TRANSLATED = ("messages", "metadata", "model", "output_config", "stop_sequences", "system", "tool_choice", "tools")
_ITS_OWN = (
    "container", "context_management", "diagnostics", "inference_geo", "mcp_servers", "speed", "user_profile_id",
)  # fmt: skip
FIELDS = frozenset((*SAME, *_LEFT_OUT, *_TRANSLATED, *_ITS_OWN))
"""All that the wire has a name for."""
_NEUTRAL = {"speed": b'"standard"', "mcp_servers": b"[]"}

Object = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class _Format(msgspec.Struct, tag_field="type", tag="json_schema", forbid_unknown_fields=True):
    schema: Raw


class _OutputConfig(msgspec.Struct, forbid_unknown_fields=True):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: _Format | None = None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[blocks.Block]


_messages = msgspec.json.Decoder(list[_Message])
_system = msgspec.json.Decoder(str | list[blocks.TextBlock] | None)
_output_config = msgspec.json.Decoder(_OutputConfig | None)
_metadata = msgspec.json.Decoder(dict[str, Any] | None)
_stops = msgspec.json.Decoder(list[str] | None)


def chat_fields(native: Fields, added: Fields, *, stream: bool) -> tuple[Fields, tuple[str, ...]]:
    """The fields of a chat's body, and the fields of the message that have no effect on it. Raises `CallerError`.

    `added` are fields of a chat for which a message has no name.
    """
    ignored = IgnoredFields()
    _check_supported(native)
    messages = [*_system_message(native), *_conversation(native)]
    fields = {name: native[name] for name in SAME if name in native}
    chat: Object = {"messages": messages, **choice_fields(native), **_output(native)}
    if stream:
        chat["stream_options"] = {"include_usage": True}
    if messages[-1]["role"] == "assistant":  # the response continues this message
        chat |= {"add_generation_prompt": False, "continue_final_message": True}
    if stops := ignored.stops(field(native, "stop_sequences", _stops)):
        chat["stop"] = stops
    metadata = field(native, "metadata", _metadata) or {}
    if metadata.get("user_id") is not None:
        chat["user"] = metadata["user_id"]
    if metadata.keys() - {"user_id"}:
        ignored.ignore("metadata")
    if tools := functions(native):
        chat["tools"] = tools
    fields |= {name: Raw(_encode(value)) for name, value in chat.items()}
    return {**fields, **added, "model": native["model"]}, tuple(ignored.ignored)


def _check_supported(native: dict[str, Raw]) -> None:
    for name, raw in native.items():
        value = bytes(raw)
        if name not in FIELDS:
            raise CallerError(f"`{name[:64]}` is not a field of a message.", param=name[:64])
        if name in _ITS_OWN and value != b"null" and value != _NEUTRAL.get(name):
            raise CallerError(f"`{name}` is for Anthropic's own API, and this model is served by another.", param=name)


def _output(native: dict[str, Raw]) -> Object:
    config, chat = field(native, "output_config", _output_config) or _OutputConfig(), dict[str, Any]()
    if config.effort is not None:
        chat["reasoning_effort"] = "xhigh" if config.effort == "max" else config.effort
    if config.format is not None:
        schema = {"name": "answer", "schema": config.format.schema, "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────


def _system_message(native: dict[str, Raw]) -> Iterator[Object]:
    if system := field(native, "system", _system):
        yield {"role": "system", "content": _content(system)}


def _conversation(native: dict[str, Raw]) -> Iterator[Object]:
    messages = field(native, "messages", _messages, required=True)
    for i, message in enumerate(messages or ()):
        try:
            yield from _SIDES[message.role](message.content)
        except blocks.Untranslatable as error:
            raise CallerError(f"`messages[{i}].content` {error}", param="messages") from None


def _content(content: Any) -> str | list[Object]:
    """A text where it is one, since not every server takes a list."""
    if isinstance(content, str):
        return content
    parts = [part for block in content for part in block.parts()]
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _from_system(content: str | list[blocks.Block]) -> Iterator[Object]:
    blocks.only(content, blocks.TextBlock)
    yield {"role": "system", "content": _content(content)}


def _from_user(content: str | list[blocks.Block]) -> Iterator[Object]:
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
    )
    shown, own = list[Object](), list[blocks.Block]()
    for block in content:
        if isinstance(block, blocks.ToolResultBlock):
            text, pictures = block.text_and_files()
            shown += pictures
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": text}
        else:
            own.append(block)
    if shown or own:
        rest = _content(own)
        yield {"role": "user", "content": rest if not shown else [*shown, *blocks.as_parts(rest)]}


def _from_assistant(content: str | list[blocks.Block]) -> Iterator[Object]:
    if isinstance(content, str):
        yield {"role": "assistant", "content": content}
        return
    blocks.only(content, blocks.TextBlock, blocks.ThinkingBlock, blocks.RedactedThinkingBlock, blocks.ToolUseBlock)
    texts = [block for block in content if isinstance(block, blocks.TextBlock)]
    message: Object = {"role": "assistant", "content": _content(texts) if texts else None}
    thoughts = [block.thinking for block in content if isinstance(block, blocks.ThinkingBlock) and not block.signature]
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls := [block.call() for block in content if isinstance(block, blocks.ToolUseBlock)]:
        message["tool_calls"] = calls
    if message["content"] is None and not calls:
        message["content"] = ""
    yield message


_SIDES = {"user": _from_user, "assistant": _from_assistant, "system": _from_system}
