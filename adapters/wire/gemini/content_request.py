"""A request of `generateContent`, and its codec."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters.ignored_fields import CHAT, accepts
from adapters.requests import Codec, Fields, ModelRequest, R
from adapters.tensors import Data
from adapters.types import Feature
from adapters.wire import canonical
from adapters.wire.body import field
from adapters.wire.gemini.native_config import thinking_of
from adapters.wire.gemini.native_to_chat import chat_fields
from adapters.wire.native_chat import ChatTranslation, NativeChat, NativePayload
from adapters.wire.openai.request_codec import LENGTHS, Count

_encode = msgspec.json.Encoder().encode
_config = msgspec.json.Decoder(dict[str, Raw] | None)
_array = msgspec.json.Decoder(list[Raw] | None)
_count = msgspec.json.Decoder(Count | None)
_any = msgspec.json.Decoder()
_NULL = Raw(b"null")
_NAMES = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "candidateCount": "n",
}
"""The fields of `generationConfig`, and their names in a chat, which routes use."""
_OWN = {name: own for own, name in _NAMES.items()}


class ContentPayload(NativePayload, kw_only=True):
    """The body of a request for contents. Its field `model` is that of the path."""

    def _as_chat(self) -> ChatTranslation:
        return ChatTranslation(*chat_fields(self.native, self.added, stream=self.stream))

    @property
    def thinking(self) -> Fields:
        return thinking_of(self.native)

    def with_model(self, model: str) -> ContentPayload:
        """Return the payload with another name of the model."""
        encoded = {"model": Raw(_encode(model))}
        chat = None if self.chat is None else {**self.chat, **encoded}
        return replace(self, native={**self.native, **encoded}, chat=chat)


class ContentRequest(NativeChat, frozen=True, kw_only=True):
    """A request of `generateContent` or `streamGenerateContent`."""

    payload: ContentPayload

    @property
    def native_path(self) -> str:
        verb = "streamGenerateContent?alt=sse" if self.stream else "generateContent"
        return f"/v1beta/models/{self.model}:{verb}"


class _Contents(Codec):
    """The codec of `ContentRequest`."""

    def uses_feature(self, request: ModelRequest, feature: Feature) -> bool:
        assert isinstance(request, ContentRequest)
        native = request.payload.native
        if feature == "tools":
            return b"functionDeclarations" in bytes(native.get("tools", b""))
        if feature == "json_schema":
            config = field(native, "generationConfig", _config) or {}
            return not {"responseSchema", "responseJsonSchema"}.isdisjoint(config)
        contents = native["contents"]
        return b"image/" in bytes(contents) and _has_image(field(native, "contents", _any))

    def rename(self, request: R, model: str) -> R:
        assert isinstance(request, ContentRequest)
        return replace(request, model=model, payload=request.payload.with_model(model))

    def fields(self, request: ModelRequest) -> Fields:
        """The fields under a chat's names where those exist, so that a route's rewrite applies to every API."""
        assert isinstance(request, ContentRequest)
        fields = {**request.payload.native, **request.payload.added}
        config = field(fields, "generationConfig", _config) or {}
        fields |= {_NAMES[name]: raw for name, raw in config.items() if name in _NAMES}
        if rest := {name: raw for name, raw in config.items() if name not in _NAMES}:
            fields["generationConfig"] = Raw(_encode(rest))
        else:
            fields.pop("generationConfig", None)
        return fields

    def rewrite(self, request: R, fields: Fields) -> R:
        assert isinstance(request, ContentRequest)
        fields = dict(fields)
        config = field(fields, "generationConfig", _config) or {}
        for name in LENGTHS:
            if name in fields and (raw := fields.pop(name)) != _NULL:
                config["maxOutputTokens"] = raw
        for name, own in _OWN.items():
            if name in fields:
                raw = fields.pop(name)
                is_text = own == "stopSequences" and bytes(raw)[:1] == b'"'
                config[own] = Raw(b"[" + bytes(raw) + b"]") if is_text else raw
        if config:
            fields["generationConfig"] = Raw(_encode(config))
        old = request.payload
        own_fields = {name: raw for name, raw in fields.items() if name not in CHAT or old.native.get(name) == raw}
        own_fields["model"] = old.native["model"]
        added = {name: raw for name, raw in fields.items() if name not in own_fields}
        payload = ContentPayload(native=own_fields, added=added, stream=old.stream)
        return replace(request, payload=payload, max_tokens=field(config, "maxOutputTokens", _count))

    def accepts(self, request: ModelRequest, name: str) -> bool:
        return accepts(CHAT, name)

    def canonical(self, request: ModelRequest) -> tuple[Data, ...]:
        assert isinstance(request, ContentRequest)
        payload = request.payload
        return canonical.parts_of(("/contents", request.stream), {**payload.native, **payload.added})

    def is_deterministic(self, request: ModelRequest) -> bool:
        return canonical.is_certain(self.fields(request))


CODEC = _Contents()


def tool_count(native: Fields) -> int:
    """Bytes of the tools."""
    return len(memoryview(native["tools"])) if field(native, "tools", _array) else 0


def _has_image(value: Any) -> bool:
    """Whether contents, or parts of them, have an image."""
    if isinstance(value, list):
        return any(map(_has_image, value))
    if not isinstance(value, dict):
        return False
    media = value.get("inlineData") or value.get("fileData")
    if isinstance(media, dict):
        return str(media.get("mimeType", "")).startswith("image/")
    return _has_image(value.get("parts")) or _has_image(value.get("functionResponse"))
