"""The model's name in bodies that are otherwise forwarded unchanged, the operations with them, lists of models."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters import ignored_fields
from adapters.errors import CallerError
from adapters.requests import (
    AppRequest,
    ClassifyingRequest,
    Codec,
    Fields,
    ModelRequest,
    R,
    RankingRequest,
    ScoringRequest,
)
from adapters.types import Usage
from adapters.wire import decoding, form, reported_usage
from adapters.wire.body import field, open_body
from adapters.wire.openai.ranking_size import RankingSize, size_of

_encode = msgspec.json.Encoder().encode
_string = msgspec.json.Decoder(str)
_optional_bool = msgspec.json.Decoder(bool | None)
_optional_string = msgspec.json.Decoder(str | None)


class ModelFieldCodec(Codec):
    """The codec of these requests."""

    def rename(self, request: R, model: str) -> R:
        assert isinstance(request, AppRequest)
        return request if model == request.model else replace(request, model=model, stale=True)

    def fields(self, request: ModelRequest) -> Fields:
        """The fields of a JSON body. A route cannot rewrite a form."""
        assert isinstance(request, AppRequest)
        if form.is_form(request.content_type):
            return {}
        fields = open_body(request.body)
        if request.stale:
            fields["model"] = Raw(_encode(request.model))
        return fields

    def rewrite(self, request: R, fields: Fields) -> R:
        assert isinstance(request, AppRequest)
        if form.is_form(request.content_type):
            return request
        return replace(request, body=_encode(fields), stale=False)

    def accepts(self, request: ModelRequest, name: str) -> bool:
        assert isinstance(request, AppRequest)
        return ignored_fields.accepts(ignored_fields.fields_of(request.path), name)


CODEC = ModelFieldCodec()


def read(content_type: str, body: bytes) -> tuple[str, bool, str | None]:
    """Read the model, whether a stream is requested, and the user. Raises `CallerError`."""
    if not form.is_form(content_type):
        _require_json(content_type)
        fields = open_body(body)
        model = field(fields, "model", _string, required=True) or ""
        stream = field(fields, "stream", _optional_bool) or False
        return model, stream, field(fields, "user", _optional_string)
    if (model_field := form.field_of(content_type, body, "model")) is None:
        raise CallerError("`model` is missing.", param="model")
    streams = form.field_of(content_type, body, "stream")
    return model_field.value, streams is not None and streams.value.strip().lower() in ("true", "1"), None


def ranking_size(content_type: str, body: bytes) -> RankingSize:
    """The rows and an estimate of the tokens of a request to rerank, score or classify. Raises `CallerError`."""
    return RankingSize(0, 0) if form.is_form(content_type) else size_of(open_body(body))


def names_model(content_type: str, body: bytes) -> bool:
    """Whether a body has a `model`, of any value. Raises `CallerError`."""
    if form.is_form(content_type):
        return form.field_of(content_type, body, "model") is not None
    return "model" in open_body(body)


def with_model(content_type: str, body: bytes, model: str) -> bytes:
    """Replace the model's name. The other values of JSON are unchanged, and duplicates are removed."""
    if not form.is_form(content_type):
        _require_json(content_type)
        fields = open_body(body)
        fields.pop("model", None)
        # Last: a case-insensitive server uses the last of `Model` and `model`.
        return _encode({**fields, "model": model})
    model_field = form.field_of(content_type, body, "model")
    if "\r" in model or "\n" in model:
        raise CallerError("`model` is not a name.", param="model")
    if model_field is None:
        return form.with_field(content_type, body, "model", model)
    if model_field.value == model:
        return body
    return b"%b%b%b" % (body[: model_field.start], model.encode(), body[model_field.end :])


def _require_json(content_type: str) -> None:
    if content_type and content_type.partition(";")[0].strip().lower() != "application/json":
        raise CallerError(
            "Send the body as `Content-Type: application/json`, or as `multipart/form-data`.",
            code="unsupported_media_type",
        )


class _Answer(msgspec.Struct):
    usage: Any = None
    meta: Any = None
    """Cohere's, whose `tokens` are another `usage`."""


_answer = msgspec.json.Decoder(_Answer).decode


def usage_of(body: bytes) -> Usage | None:
    """The tokens that a response reports under any name; None without a readable report."""
    try:
        answer = _answer(body)
    except decoding.MALFORMED_JSON:
        return None
    for given in (answer.usage, answer.meta.get("tokens") if isinstance(answer.meta, dict) else None):
        if (reported := reported_usage.read(given)) is not None and reported.usage is not None:
            return reported.usage
    return None


class ListedModel(msgspec.Struct):
    """One entry of the list."""

    id: str = ""
    owned_by: str | None = None
    parent: str | None = None
    """The base model of a LoRA adapter."""


class _List(msgspec.Struct):
    data: list[ListedModel] = []


_decode = msgspec.json.Decoder(_List).decode


def decode_models(body: bytes) -> list[ListedModel]:
    """Decode a list of models. Raises `BackendError`."""
    return decoding.decode(_decode, body, "list of models").data


# OpenAI's operations beside text, and additions of its family: their bodies are forwarded unchanged.

Kind = Literal["rerank", "score", "tokenize", "audio", "images", "moderations", "classify", "ocr"]


class PassthroughOperation(NamedTuple):
    """One operation."""

    kind: Kind
    path: str
    below: Literal["api", "server"] = "api"
    """The root of the path at a server."""


RANKING: Mapping[Kind, type[RankingRequest]] = {
    "rerank": RankingRequest, "score": ScoringRequest, "classify": ClassifyingRequest,
}  # fmt: skip
"""The operations whose rows and tokens are counted, by their requests."""
PASSTHROUGH = {
    "/v1/rerank": PassthroughOperation("rerank", "/rerank"),
    "/rerank": PassthroughOperation("rerank", "/rerank"),
    "/v2/rerank": PassthroughOperation("rerank", "/v2/rerank", "server"),
    "/v1/score": PassthroughOperation("score", "/score"),
    "/score": PassthroughOperation("score", "/score"),
    "/tokenize": PassthroughOperation("tokenize", "/tokenize", "server"),
    "/detokenize": PassthroughOperation("tokenize", "/detokenize", "server"),
    "/v1/audio/transcriptions": PassthroughOperation("audio", "/audio/transcriptions"),
    "/v1/audio/translations": PassthroughOperation("audio", "/audio/translations"),
    "/v1/audio/speech": PassthroughOperation("audio", "/audio/speech"),
    "/v1/images/generations": PassthroughOperation("images", "/images/generations"),
    "/v1/images/edits": PassthroughOperation("images", "/images/edits"),
    "/v1/images/variations": PassthroughOperation("images", "/images/variations"),
    "/v1/moderations": PassthroughOperation("moderations", "/moderations"),
    "/v1/chat/moderations": PassthroughOperation("moderations", "/chat/moderations"),
    "/v1/classify": PassthroughOperation("classify", "/classify"),
    "/classify": PassthroughOperation("classify", "/classify", "server"),
    "/v1/classifications": PassthroughOperation("classify", "/classifications"),
    "/v1/ocr": PassthroughOperation("ocr", "/ocr"),
}
"""The operations by the gateway's path."""


def ranking_request(kind: Kind, body: bytes) -> RankingRequest:
    """A request of RANKING by its body alone. Raises `CallerError`."""
    model, _, user = read("", body)
    size = ranking_size("", body)
    return RANKING[kind](
        model=model,
        path=f"/{kind}",
        body=body,
        size=len(body),
        user=user,
        prompt_tokens=size.tokens,
        rows=size.rows,
        codec=CODEC,
    )
