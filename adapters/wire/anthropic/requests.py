"""Anthropic's Messages API (version 2023-06-01): decodes requests one level deep.

Decodes the fields that routing, limits and billing need. A server that speaks this wire too gets the client's own
bytes; for any other the request is made a chat (anthropic_chat.py).
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw
from msgspec.structs import replace

from adapters import ignored_fields
from adapters.errors import CallerError, NotFound
from adapters.requests import ChatRequest, Codec, Fields, ModelRequest, R
from adapters.tensors import Data
from adapters.types import BYTES_PER_TOKEN, Feature
from adapters.wire import canonical
from adapters.wire.anthropic import message_to_chat as anthropic_chat
from adapters.wire.anthropic.message_request import MessagePayload, MessagesRequest, TokenCount
from adapters.wire.anthropic.tools import OwnNames
from adapters.wire.body import field, open_body
from adapters.wire.openai import request_codec
from adapters.wire.openai.bounds import MAX_NAME
from adapters.wire.openai.request_codec import LENGTHS, MAX_TOKENS

VERSION = "2023-06-01"
MAX_BETAS = 1024
IMAGE_TOKENS = 1600
"""Tokens of an image or a file in an estimate: about those of a large picture."""
_BETAS = re.compile(r"[A-Za-z0-9._-]+(?:\s*,\s*[A-Za-z0-9._-]+)*")

_encode = msgspec.json.Encoder().encode
_string = msgspec.json.Decoder(str)
_optional_string = msgspec.json.Decoder(str | None)
_array = msgspec.json.Decoder(list[Raw])
_optional_array = msgspec.json.Decoder(list[Raw] | None)
_system = msgspec.json.Decoder(str | list[Raw] | None)
_optional_bool = msgspec.json.Decoder(bool | None)
_tokens = msgspec.json.Decoder(Annotated[int, Meta(ge=0, le=MAX_TOKENS)])
_stops = msgspec.json.Decoder(list[str] | None)
_any = msgspec.json.Decoder()

_NULL = Raw(b"null")


class _Metadata(msgspec.Struct):
    user_id: str | None = None


class _Thread(msgspec.Struct):
    type: Literal["create", "continue"]


_metadata = msgspec.json.Decoder(_Metadata | None)
_thread = msgspec.json.Decoder(_Thread | None)


def decode_message(body: bytes, betas: str | None = None) -> MessagesRequest:
    """`/v1/messages`. Raises `CallerError` that names the field at fault."""
    fields = open_body(body)
    field(fields, "max_tokens", _tokens, required=True)
    return request_codec.evaluated_features(_request(fields, betas, len(body)))


def decode_count(body: bytes, betas: str | None = None) -> TokenCount:
    """`/v1/messages/count_tokens`. Raises `CallerError` that names the field at fault."""
    return count_of(_request(open_body(body), betas, len(body)))


def decode_cloud_message(body: bytes, betas: str | None = None) -> MessagesRequest:
    """A message in the form of Vertex AI and Bedrock, which have the version and the betas in the body. Raises
    `CallerError`."""
    fields, named = _without_cloud_fields(open_body(body), betas)
    field(fields, "max_tokens", _tokens, required=True)
    return request_codec.evaluated_features(_request(fields, named, len(body)))


def decode_cloud_count(body: bytes, betas: str | None = None) -> TokenCount:
    """A count in the form of Vertex AI and Bedrock. Raises `CallerError`."""
    fields, named = _without_cloud_fields(open_body(body), betas)
    return count_of(_request(fields, named, len(body)))


def _without_cloud_fields(fields: Fields, betas: str | None) -> tuple[Fields, str | None]:
    """Remove the version, which selects nothing here, and add the betas of the body to those of the header."""
    field(fields, "anthropic_version", _optional_string)
    named = field(fields, "anthropic_beta", _stops) or []
    left = {name: raw for name, raw in fields.items() if name not in ("anthropic_version", "anthropic_beta")}
    return left, ",".join([*([betas] if betas else []), *named]) or None


def count_of(request: ChatRequest) -> TokenCount:
    """The request for a token count of a chat."""
    return TokenCount(
        model=request.model,
        prompt_tokens=request.prompt_tokens,
        size=request.size,
        user=request.user,
        prompt=request.prompt,
        chat=replace(request, stream=False),
        ignored=request.ignored,
        codec=_COUNTED,
    )


def _request(fields: Fields, betas: str | None, size: int) -> MessagesRequest:
    if not field(fields, "messages", _array, required=True):
        raise CallerError("`messages` must not be empty.", param="messages")
    model = field(fields, "model", _string, required=True)
    field(fields, "system", _system)
    fields["model"] = fields.pop("model")  # last, as in a chat
    ignored = _without_thread(fields)
    stream = field(fields, "stream", _optional_bool) or False
    prompt = memoryview(fields["messages"])
    if "system" in fields:
        prompt = memoryview(bytes(fields["system"]) + bytes(prompt))
    tools = len(memoryview(fields["tools"])) if "tools" in fields else 0
    return MessagesRequest(
        model=model or "",
        payload=MessagePayload(native=fields, stream=stream, betas=_betas(betas)),
        stream=stream,
        include_usage=True,
        prompt_tokens=(len(prompt) + tools) // BYTES_PER_TOKEN + 1,
        max_tokens=field(fields, "max_tokens", _tokens),
        size=size,
        user=_user(fields),
        prompt=prompt,
        ignored=ignored,
        codec=_CODEC,
    )


def _without_thread(fields: Fields) -> tuple[str, ...]:
    """Remove the reference to a stored conversation, and return the names of ignored fields. Clients send all messages
    if there is no such conversation."""
    thread = field(fields, "thread", _thread)
    fields.pop("thread", None)
    if thread is None:
        return ()
    if thread.type == "continue":
        # No `param`: without the field the messages are only a part of the conversation, so no route may drop it.
        raise NotFound("This gateway holds no thread: send all messages.", code="thread_not_found")
    return ("thread",)


def _betas(given: str | None) -> str:
    """Check the betas: the field becomes a header of another request, so it may contain names only."""
    if not given:
        return ""
    if len(given) > MAX_BETAS or not _BETAS.fullmatch(given):
        raise CallerError("`anthropic-beta` must be names with commas between.", param="anthropic-beta")
    return given


def _user(fields: Fields) -> str | None:
    metadata = field(fields, "metadata", _metadata)
    return None if metadata is None else metadata.user_id


def stops(request: MessagesRequest) -> list[str]:
    """The texts that end its answer."""
    return field(request.payload.native, "stop_sequences", _stops) or []


def names(request: MessagesRequest) -> OwnNames:
    """The client's names of its tools, for the names in a chat."""
    return OwnNames(request.payload.native, MAX_NAME)


def estimated_fields(request: ChatRequest) -> Fields:
    """The fields of its prompt."""
    fields = request.payload.native if isinstance(request, MessagesRequest) else request.fields
    return {name: fields[name] for name in ("system", "messages", "tools") if name in fields}


def estimate(fields: Fields) -> int:
    """Estimate the tokens of a prompt from its length, if no server can count them: one for every four bytes of text,
    for every tokenizer."""
    measured = [_measured(field(fields, name, _any)) for name in ("system", "messages", "tools")]
    size, pictures = map(sum, zip(*measured, strict=True))
    return size // BYTES_PER_TOKEN + pictures * IMAGE_TOKENS + 1


def _measured(value: Any) -> tuple[int, int]:
    """Bytes of text in a value, and how many pictures and files."""
    if isinstance(value, str):
        return len(value.encode()), 0
    if isinstance(value, dict):
        if value.get("type") in ("base64", "url", "file", "image_url"):
            return 0, 1
        value = [inner for name, inner in value.items() if name not in ("type", "role", "cache_control", "signature")]
    if not isinstance(value, list):
        return 0, 0
    parts = [_measured(inner) for inner in value]
    return sum(size for size, _ in parts), sum(pictures for _, pictures in parts)


def model(name: str, created: int) -> dict[str, object]:
    """`/v1/models/{name}`: its creation in Unix seconds."""
    since = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": since, "lifecycle": "active"}


def encode_models(models: list[dict[str, object]]) -> bytes:
    """`/v1/models`: one page has them all."""
    ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]} if models else {"first_id": None, "last_id": None}
    return _encode({"data": models, "has_more": False, **ends})


# ── routing and rewriting ───────────────────────────────────────────────────────────────────────────────


class _Messages(Codec):
    """The codec of `MessagesRequest`."""

    def uses_feature(self, request: ModelRequest, feature: Feature) -> bool:
        assert isinstance(request, MessagesRequest)
        native = request.payload.native
        if feature == "tools":
            return bool(field(native, "tools", _optional_array))
        if feature == "json_schema":
            config = field(native, "output_config", _any)
            return isinstance(config, dict) and config.get("format") is not None
        return request_codec.may_hold_image(native["messages"]) and _has_image(field(native, "messages", _any))

    def rename(self, request: R, model: str) -> R:
        assert isinstance(request, MessagesRequest)
        return replace(request, model=model, payload=request.payload.with_model({"model": Raw(_encode(model))}))

    def fields(self, request: ModelRequest) -> Fields:
        """The fields under OpenAI's names where those exist, so that a route's rewrite applies to every API."""
        assert isinstance(request, MessagesRequest)
        fields = {**request.payload.native, **request.payload.added}
        if "stop_sequences" in fields:
            fields["stop"] = fields.pop("stop_sequences")
        if (user := _user(fields)) is not None:
            del fields["metadata"]
            fields["user"] = Raw(_encode(user))
        return fields

    def rewrite(self, request: R, fields: Fields) -> R:
        assert isinstance(request, MessagesRequest)
        fields = dict(fields)
        if "stop" in fields:
            stop = fields.pop("stop")
            fields["stop_sequences"] = Raw(b"[" + bytes(stop) + b"]") if bytes(stop)[:1] == b'"' else stop
        if "user" in fields:
            fields["metadata"] = Raw(b'{"user_id":' + bytes(fields.pop("user")) + b"}")
        for name in LENGTHS:
            if name in fields and fields[name] != _NULL:
                fields["max_tokens"] = fields.pop(name)
        old = request.payload
        payload = MessagePayload(
            native={name: raw for name, raw in fields.items() if _is_native(name, raw, old.native)},
            added={name: raw for name, raw in fields.items() if not _is_native(name, raw, old.native)},
            stream=old.stream,
            betas=old.betas,
        )
        return replace(request, payload=payload, max_tokens=field(fields, "max_tokens", _tokens))

    def canonical(self, request: ModelRequest) -> tuple[Data, ...]:
        assert isinstance(request, MessagesRequest)
        payload = request.payload
        kind = ("/messages", request.stream, payload.betas)
        return canonical.parts_of(kind, {**payload.native, **payload.added})

    def is_deterministic(self, request: ModelRequest) -> bool:
        assert isinstance(request, MessagesRequest)
        return canonical.is_certain({**request.payload.native, **request.payload.added})


class _Counted(Codec):
    """The codec of a token count: delegates to the chat's own codec."""

    def uses_feature(self, request: ModelRequest, feature: Feature) -> bool:
        assert isinstance(request, TokenCount)
        return request.chat.uses_feature(feature)

    def rename(self, request: R, model: str) -> R:
        assert isinstance(request, TokenCount)
        return replace(request, model=model, chat=request.chat.codec.rename(request.chat, model))

    def fields(self, request: ModelRequest) -> Fields:
        assert isinstance(request, TokenCount)
        return request.chat.codec.fields(request.chat)

    def rewrite(self, request: R, fields: Fields) -> R:
        assert isinstance(request, TokenCount)
        return replace(request, chat=request.chat.codec.rewrite(request.chat, fields))

    def accepts(self, request: ModelRequest, name: str) -> bool:
        return ignored_fields.accepts(ignored_fields.COUNT, name)


_CODEC = _Messages()
_COUNTED = _Counted()


def _is_native(name: str, raw: Raw, native: Fields) -> bool:
    """Whether a rewritten field is the wire's own, or a client's unknown one that the route did not set."""
    return name in anthropic_chat.FIELDS or native.get(name) == raw


def _has_image(value: Any) -> bool:
    """Whether a list of messages or of blocks has an image, including blocks of a tool's result."""
    if not isinstance(value, list):
        return False
    return any(
        isinstance(inner, dict) and (inner.get("type") == "image" or _has_image(inner.get("content")))
        for inner in value
    )
