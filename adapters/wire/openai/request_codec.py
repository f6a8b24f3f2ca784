"""The codec of OpenAI's requests for text, and their payload."""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw
from msgspec.structs import replace

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
from adapters.wire.openai import features, operation_fields
from adapters.wire.reported_usage import MAX_TOKENS as MAX_TOKENS

MAX_CHOICES = 128
LENGTHS = ("max_tokens", "max_completion_tokens", "n_predict", "max_output_tokens")
"""Names of one field, which differ from server to server."""
Count = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
"""Bounded, because counts are summed and priced."""

_NULL = Raw(b"null")

_encode = msgspec.json.Encoder().encode
_choices = msgspec.json.Decoder(Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None)
_tokens = msgspec.json.Decoder(Count | None)


class OpenAIPayload(TextPayload, kw_only=True):
    """The fields of a body, as received or rewritten."""

    fields: Fields

    def with_fields(self, fields: Fields) -> "OpenAIPayload":
        return OpenAIPayload(fields=fields)


def max_tokens(fields: Fields) -> int | None:
    """The greatest length that any server may read from the fields. Raises `CallerError`."""
    most = None
    for name in LENGTHS:
        if name in fields and (given := field(fields, name, _tokens)) is not None and (most is None or given > most):
            most = given
    return most


def choices(fields: Fields) -> int:
    """The number of requested answers. Raises `CallerError`."""
    return field(fields, "n", _choices) or 1


class _OpenAI(Codec):
    """The codec of `GenerateRequest`."""

    def uses_feature(self, request: ModelRequest, feature: Feature) -> bool:
        return features.READ[feature](self.fields(request))

    def rename(self, request: R, model: str) -> R:
        assert isinstance(request, GenerateRequest)
        payload = request.payload
        fields = {**payload.fields, "model": Raw(_encode(model))}
        return replace(request, model=model, payload=OpenAIPayload(fields=fields, features=payload.features))

    def fields(self, request: ModelRequest) -> Fields:
        assert isinstance(request, GenerateRequest)
        return request.fields

    def rewrite(self, request: R, fields: Fields) -> R:
        assert isinstance(request, GenerateRequest)
        if isinstance(request, ResponsesRequest):
            fields = _as_responses(fields)
        payload = OpenAIPayload(fields=fields)
        if not request.n:
            return replace(request, payload=payload)
        return replace(request, payload=payload, max_tokens=max_tokens(fields), n=choices(fields))

    def accepts(self, request: ModelRequest, name: str) -> bool:
        assert isinstance(request, GenerateRequest)
        return operation_fields.accepts(operation_fields.fields_of(request.path), name)

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
