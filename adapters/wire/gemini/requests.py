"""Gemini's API: decodes the requests of clients, and encodes the lists of models and the small answers."""

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from adapters.errors import CallerError
from adapters.requests import EmbeddingRequest, Fields
from adapters.types import BYTES_PER_TOKEN
from adapters.wire.anthropic.message_request import TokenCount
from adapters.wire.anthropic.requests import count_of
from adapters.wire.body import field, mended, open_body
from adapters.wire.gemini import native_parts
from adapters.wire.gemini.content_request import CODEC, ContentPayload, ContentRequest, tool_count
from adapters.wire.gemini.embeddings import MOST as MAX_EMBEDDINGS
from adapters.wire.gemini.embeddings import MOST_AT_VERTEX
from adapters.wire.openai import chat as openai
from adapters.wire.openai import request_codec

Object = dict[str, Any]

_SNAKE = re.compile(rb'"[a-z]+_[a-z_]+"\s*:')
_LETTER = re.compile(r"_([a-z])")
_OPAQUE = frozenset({
    "args", "response", "parameters", "parametersJsonSchema", "responseJsonSchema", "responseSchema", "labels",
})  # fmt: skip
"""Fields whose names within are the client's own."""

_encode = msgspec.json.Encoder().encode
_any = msgspec.json.Decoder(Object).decode
_config = msgspec.json.Decoder(dict[str, Raw] | None)
_tokens = msgspec.json.Decoder(request_codec.Count | None)
_object = msgspec.json.Decoder(Fields | None)
_embeddings = msgspec.json.Decoder(Annotated[list[Fields], Meta(min_length=1, max_length=MAX_EMBEDDINGS)])
_instances = msgspec.json.Decoder(Annotated[list[Fields], Meta(min_length=1, max_length=MOST_AT_VERTEX)])
_content = msgspec.json.Decoder(native_parts.NativeContent)
_string = msgspec.json.Decoder(str | None)
_positive = msgspec.json.Decoder(Annotated[int, Meta(ge=1)] | None)


def decode_content(body: bytes, model: str, *, stream: bool) -> ContentRequest:
    """`:generateContent` and `:streamGenerateContent`. Raises `CallerError` that names the field at fault."""
    return request_codec.evaluated_features(_request(_opened(body), model, len(body), stream=stream))


def decode_count(body: bytes, model: str) -> TokenCount:
    """`:countTokens`, of `contents` or of a whole request. Raises `CallerError` that names the field at fault."""
    fields = _opened(body)
    inner = field(fields, "generateContentRequest", _object)
    return count_of(_request(fields if inner is None else inner, model, len(body), stream=False))


def decode_embeddings(body: bytes, model: str, *, several: bool) -> EmbeddingRequest:
    """`:embedContent` and `:batchEmbedContents`. Raises `CallerError` that names the field at fault."""
    fields = _opened(body)
    each = (field(fields, "requests", _embeddings, required=True) or []) if several else [fields]
    configurations = [field(one, "embedContentConfig", _object) for one in each]  # Vertex AI's place
    each = [{**one, **(given or {})} for one, given in zip(each, configurations, strict=True)]
    first, texts = each[0], list[str]()
    for one in each:
        content = field(one, "content", _content, required=True)
        assert content is not None
        if any(part.text is None for part in content.parts):
            raise CallerError("`content` must have texts only.", param="content")
        texts.append("".join([part.text or "" for part in content.parts]))
        if any(one.get(name) != first.get(name) for name in ("taskType", "outputDimensionality")):
            raise CallerError("`requests` must have one `taskType` and one `outputDimensionality`.", param="requests")
    return _embedding(model, texts, first, first, len(body))


def decode_prediction(body: bytes, model: str) -> EmbeddingRequest:
    """`:predict`, Vertex AI's call for embeddings. Raises `CallerError` that names the field at fault."""
    fields = _opened(body)
    each = field(fields, "instances", _instances, required=True) or []
    given = [field(one, "content", _string, required=True) for one in each]
    texts = [text or "" for text in given]
    if any(one.get("taskType") != each[0].get("taskType") for one in each):
        raise CallerError("`instances` must have one `task_type`.", param="instances")
    parameters = field(fields, "parameters", _object) or {}
    return _embedding(model, texts, each[0], parameters, len(body))


def _embedding(model: str, texts: list[str], about: Fields, sizes: Fields, size: int) -> EmbeddingRequest:
    """The request in OpenAI's form. `about` names the task, and `sizes` the dimensions."""
    chat: Object = {"model": model, "input": texts, "encoding_format": "float"}
    if (dimensions := field(sizes, "outputDimensionality", _positive)) is not None:
        chat["dimensions"] = dimensions
    if task := field(about, "taskType", _string):
        chat["input_type"] = task
    return openai.embedding_request({name: Raw(_encode(value)) for name, value in chat.items()}, size)


def _opened(body: bytes) -> Fields:
    """The fields under their names in camel case: Google's API takes both cases."""
    fields = open_body(body)
    if _SNAKE.search(body) is None:
        return fields
    return {name: Raw(_encode(value)) for name, value in _camel(mended(_any, body)).items()}


def _camel(value: Any) -> Any:
    if isinstance(value, list):
        return [_camel(each) for each in value]
    if not isinstance(value, dict):
        return value
    renamed = {_LETTER.sub(lambda match: match[1].upper(), name): inner for name, inner in value.items()}
    return {name: inner if name in _OPAQUE else _camel(inner) for name, inner in renamed.items()}


def _request(fields: Fields, model: str, size: int, *, stream: bool) -> ContentRequest:
    if "contents" not in fields or bytes(fields["contents"]) in (b"[]", b"null", b'""'):
        raise CallerError("`contents` is missing or empty.", param="contents")
    fields["model"] = Raw(_encode(model))
    if bytes(memoryview(fields["contents"])[:1]) == b'"':
        fields["contents"] = Raw(_encode([{"role": "user", "parts": [{"text": fields["contents"]}]}]))
    prompt = memoryview(fields["contents"])
    if "systemInstruction" in fields:
        prompt = memoryview(bytes(fields["systemInstruction"]) + bytes(prompt))
    config = field(fields, "generationConfig", _config) or {}
    return ContentRequest(
        model=model,
        payload=ContentPayload(native=fields, stream=stream),
        stream=stream,
        include_usage=True,
        prompt_tokens=(len(prompt) + tool_count(fields)) // BYTES_PER_TOKEN + 1,
        max_tokens=field(config, "maxOutputTokens", _tokens),
        size=size,
        prompt=prompt,
        codec=CODEC,
    )


# ── small answers ─────────────────────────────────────────────────────────────────────────────────────


def model(name: str, *, embeds: bool = False) -> Object:
    """`/v1beta/models/{name}`."""
    verbs = ["embedContent", "batchEmbedContents"] if embeds else ["generateContent", "countTokens"]
    about = {"name": f"models/{name}", "baseModelId": name, "version": "1", "displayName": name}
    return {**about, "supportedGenerationMethods": verbs}


def encode_models(models: list[Object]) -> bytes:
    """`/v1beta/models`: one page has them all."""
    return _encode({"models": models})


def encode_count(tokens: int) -> bytes:
    """The answer of `:countTokens`."""
    return _encode({"totalTokens": tokens})


class _Entry(msgspec.Struct):
    embedding: Raw


class _Counts(msgspec.Struct):
    prompt_tokens: int = 0


class _Embeddings(msgspec.Struct):
    data: list[_Entry]
    usage: _Counts | None = None


_vectors = msgspec.json.Decoder(_Embeddings).decode


def encode_embeddings(body: bytes, *, several: bool) -> bytes:
    """The vectors of an answer in OpenAI's form. Raises msgspec's errors."""
    vectors = [{"values": entry.embedding} for entry in _vectors(body).data]
    return _encode({"embeddings": vectors} if several else {"embedding": vectors[0]})


def encode_prediction(body: bytes) -> bytes:
    """The vectors in Vertex AI's form. An answer counts the tokens of all texts together: the first one has them.

    Raises msgspec's errors."""
    answer = _vectors(body)
    counts = [(answer.usage or _Counts()).prompt_tokens, *(0 for _ in answer.data[1:])]
    predictions = [
        {"embeddings": {"values": entry.embedding, "statistics": {"token_count": count, "truncated": False}}}
        for entry, count in zip(answer.data, counts, strict=True)
    ]
    return _encode({"predictions": predictions})
