"""Converts the messages of a conversation to the form of chat templates."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from adapters.errors import CallerError
from adapters.wire import decoding

_ALIASES = {"developer": "system"}
"""OpenAI's newer name of a role, which templates do not support."""


class Part(msgspec.Struct):
    """A part of a message's content. Templates support only texts."""

    type: str
    text: str | None = None


class TemplateMessage(msgspec.Struct, omit_defaults=True):
    """One message of a conversation."""

    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: str | list[Part] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    function_call: Any = None
    reasoning_content: str | None = None


_messages = msgspec.json.Decoder(Annotated[list[TemplateMessage], Meta(min_length=1)]).decode


def for_template(raw: Raw, *, parts: bool = False) -> list[dict[str, Any]]:
    """Decode messages. A list of texts is joined unless the template supports `parts`. Raises `CallerError`."""
    try:
        messages = _messages(raw)
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`messages` is not valid: {error}.", param="messages") from None
    return [_template_fields(message, parts) for message in messages]


def _template_fields(message: TemplateMessage, parts: bool) -> dict[str, Any]:
    if message.tool_calls or message.function_call is not None or message.role in ("tool", "function"):
        raise CallerError(
            "The model's servers do not support tools: no message may contain a call or its result.", param="messages"
        )
    fields: dict[str, Any] = {"role": _ALIASES.get(message.role, message.role), "content": _content(message, parts)}
    if message.name is not None:
        fields["name"] = message.name
    if message.reasoning_content is not None:
        fields["reasoning_content"] = message.reasoning_content
    return fields


def _content(message: TemplateMessage, parts: bool) -> str | list[dict[str, str]]:
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        return message.refusal or ""
    texts = [_text(part) for part in content]
    if parts:
        return [{"type": "text", "text": text} for text in texts]
    return "\n".join(texts)


def _text(part: Part) -> str:
    if part.type not in ("text", "input_text", "refusal") or part.text is None:
        raise CallerError(f"The model's servers accept text only, not `{part.type[:32]}`.", param="messages")
    return part.text
