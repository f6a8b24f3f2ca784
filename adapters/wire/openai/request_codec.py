"""The codec of OpenAI's requests for text, and their payload."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw
from msgspec.structs import replace

from adapters import ignored_fields
from adapters.requests import (
    Codec,
    EmbeddingRequest,
    Fields,
    GenerateRequest,
    ModelRequest,
    R,
    ResponsesRequest,
    TextPayload,
)
from adapters.tensors import Data
from adapters.types import Feature
from adapters.wire import canonical
from adapters.wire.body import field
from adapters.wire.reported_usage import MAX_TOKENS as MAX_TOKENS

# Detects the features that an OpenAI request uses: tools, a JSON schema, images.
#
# Bodies may be large, so the bytes are searched first. Only if a search matches are the relevant parts decoded, because
# a text may hold the same words.

_IMAGE_PARTS = frozenset({"image_url", "image", "input_image", "image_embeds", "image_pil"})

EAGER: Final = 4 * 1024 * 1024
"""Bytes of a prompt from which `vision` is evaluated when the request is decoded. A worker process decodes such bodies
(`adapters.offload`), and the event loop does not scan them later."""
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


def evaluated_features(request: R) -> R:
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


FEATURE_FIELDS: dict[Feature, Callable[[Mapping[str, Raw]], bool]] = {
    "tools": _tools,
    "json_schema": _json_schema,
    "vision": _vision,
}


MAX_CHOICES = 128
LENGTHS = ("max_tokens", "max_completion_tokens", "n_predict", "max_output_tokens", "num_predict", "max_new_tokens")
"""Names of one field, which differ from server to server."""
UNBOUNDED = Raw(b"-1")
"""Local servers' word for no limit."""
Count = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
"""Bounded, because counts are summed and priced."""


_encode = msgspec.json.Encoder().encode
_choices = msgspec.json.Decoder(Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None)
_tokens = msgspec.json.Decoder(Count | None)


class OpenAIPayload(TextPayload, kw_only=True):
    """The fields of a body, as received or rewritten."""

    fields: Fields

    def with_fields(self, fields: Fields) -> "OpenAIPayload":
        return OpenAIPayload(fields=fields, is_translated=self.is_translated)


def max_tokens(fields: Fields) -> int | None:
    """The greatest length that any server may read from the fields; None for no limit. Raises `CallerError`."""
    most = None
    for name in LENGTHS:
        if name not in fields:
            continue
        if fields[name] == UNBOUNDED:
            return None
        if (given := field(fields, name, _tokens)) is not None and (most is None or given > most):
            most = given
    return most


def bounded(fields: Fields) -> Fields:
    """The fields without lengths of -1, which only local servers understand."""
    if all(fields.get(name) != UNBOUNDED for name in LENGTHS):
        return fields
    return {name: raw for name, raw in fields.items() if name not in LENGTHS or raw != UNBOUNDED}


def choices(fields: Fields) -> int:
    """The number of requested answers. Raises `CallerError`."""
    return field(fields, "n", _choices) or 1


class _OpenAI(Codec):
    """The codec of `GenerateRequest`."""

    def uses_feature(self, request: ModelRequest, feature: Feature) -> bool:
        return FEATURE_FIELDS[feature](self.fields(request))

    def rename(self, request: R, model: str) -> R:
        assert isinstance(request, GenerateRequest)
        payload = request.payload
        fields = {**payload.fields, "model": Raw(_encode(model))}
        renamed = OpenAIPayload(fields=fields, features=payload.features, is_translated=payload.is_translated)
        return replace(request, model=model, payload=renamed)

    def fields(self, request: ModelRequest) -> Fields:
        assert isinstance(request, GenerateRequest)
        return request.fields

    def rewrite(self, request: R, fields: Fields) -> R:
        assert isinstance(request, GenerateRequest)
        if isinstance(request, ResponsesRequest):
            fields = _as_responses(fields)
        payload = OpenAIPayload(fields=fields, is_translated=request.payload.is_translated)
        if not request.n:
            return replace(request, payload=payload)
        return replace(request, payload=payload, max_tokens=max_tokens(fields), n=choices(fields))

    def accepts(self, request: ModelRequest, name: str) -> bool:
        assert isinstance(request, GenerateRequest)
        return ignored_fields.accepts(ignored_fields.fields_of(request.path), name)

    def canonical(self, request: ModelRequest) -> tuple[Data, ...]:
        assert isinstance(request, GenerateRequest)
        return canonical.canonical(request)

    def is_deterministic(self, request: ModelRequest) -> bool:
        assert isinstance(request, GenerateRequest)
        return isinstance(request, EmbeddingRequest) or canonical.is_deterministic(request)


CODEC = _OpenAI()


def _as_responses(fields: Fields) -> Fields:
    """Rename a route's length limit to the name that a Response has for it."""
    lengths = [raw for name in LENGTHS if (raw := fields.get(name, _NULL)) != _NULL]
    others = {name: raw for name, raw in fields.items() if name not in LENGTHS}
    return {**others, "max_output_tokens": lengths[0]} if lengths else others
