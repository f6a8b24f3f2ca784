"""Detects the features that an OpenAI request uses: tools, a JSON schema, images.

Bodies may be large, so the bytes are searched first. Only if a search matches are the relevant parts decoded, because a
text may hold the same words.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from adapters.requests import ModelRequest
from adapters.types import Feature

_IMAGE_PARTS = frozenset({"image_url", "image", "input_image", "image_embeds", "image_pil"})

EAGER: Final = 4 * 1024 * 1024
"""Bytes of a prompt from which `vision` is evaluated when the request is decoded. A worker process decodes such bodies
(`adapters.offload`), and the event loop does not scan them later."""
R = TypeVar("R", bound=ModelRequest)
_IMAGE, _ESCAPED = re.compile(rb"image"), re.compile(rb"\\u006")
"""Expressions search in place, and their time does not depend on the text: `bytes.find` can take ten times as long."""
_NULL = Raw(b"null")


class _Typed(msgspec.Struct):
    type: Any = None


class _Text(msgspec.Struct):
    format: Raw = _NULL


class _Message(msgspec.Struct):
    content: Raw = _NULL


class _Part(msgspec.Struct):
    type: Any = None
    image_url: Raw = _NULL
    """Some servers accept a part with this field and without a type."""

    @property
    def is_image(self) -> bool:
        return self.image_url != _NULL or (isinstance(self.type, str) and self.type in _IMAGE_PARTS)


_list = msgspec.json.Decoder(list[Raw])
_typed = msgspec.json.Decoder(_Typed)
_text = msgspec.json.Decoder(_Text)
_messages = msgspec.json.Decoder(list[_Message])
_parts = msgspec.json.Decoder(list[_Part])


def _tools(fields: Mapping[str, Raw]) -> bool:
    """Whether there are `tools`, or `functions`, their former name."""
    return any(_has_entries(fields[name]) for name in ("tools", "functions") if name in fields)


def _has_entries(raw: Raw) -> bool:
    try:
        return bool(_list.decode(raw))
    except msgspec.DecodeError:
        return False


def _json_schema(fields: Mapping[str, Raw]) -> bool:
    raw = fields.get("response_format")
    try:
        if raw is None:  # the field of Responses
            raw = _text.decode(fields["text"]).format if "text" in fields else _NULL
        return raw != _NULL and bool(_typed.decode(raw).type == "json_schema")
    except msgspec.DecodeError:
        return False


def _vision(fields: Mapping[str, Raw]) -> bool:
    raw = fields.get("messages") or fields.get("input")
    if raw is None:
        return False
    if not may_hold_image(raw):
        return False
    try:
        return any(_has_image(message.content) for message in _messages.decode(raw))
    except (msgspec.DecodeError, RecursionError):
        return False  # not a list of messages: the upstream refuses it


def evaluated(request: R) -> R:
    """The request, with `vision` evaluated and cached if its prompt is large."""
    if len(request.prompt) >= EAGER:
        request.uses_feature("vision")
    return request


def may_hold_image(messages: Raw) -> bool:
    """Whether the word `image` may be in them. JSON may encode its letters as escapes."""
    view = memoryview(messages)
    return _IMAGE.search(view) is not None or _ESCAPED.search(view) is not None


def _has_image(content: Raw) -> bool:
    if memoryview(content)[0] != ord("["):  # a text
        return False
    try:
        return any(part.is_image for part in _parts.decode(content))
    except (msgspec.DecodeError, RecursionError):
        return False


READ: dict[Feature, Callable[[Mapping[str, Raw]], bool]] = {
    "tools": _tools,
    "json_schema": _json_schema,
    "vision": _vision,
}
