"""Embeddings of InvokeModel: Titan takes one text for each request, Cohere up to 96."""

from struct import pack
from typing import Any

import msgspec

from adapters.errors import CallerError
from adapters.requests import Fields
from adapters.wire import decoding
from adapters.wire.bedrock.models import Family
from adapters.wire.body import field
from adapters.wire.openai.embeddings import EmbeddingFields, Vector
from adapters.wire.reported_usage import MAX_TOKENS

Object = dict[str, Any]

TEXTS_EACH: dict[Family, int] = {"titan-v1": 1, "titan-v2": 1, "cohere-v3": 96, "cohere-v4": 96}
"""Texts of one request; a family without an entry has no embeddings."""
_SIZED: dict[Family, str] = {"titan-v2": "dimensions", "cohere-v4": "output_dimension"}
"""The name of the vectors' length, for models that let it be chosen."""
_TYPES = {"query": "search_query", "document": "search_document", "passage": "search_document"}
_COHERES = ("search_document", "search_query", "classification", "clustering")

_string = msgspec.json.Decoder(str | None)


class _Vectors(msgspec.Struct):
    """Cohere's vectors by type."""

    float: list[list[float]]


class _Answer(msgspec.Struct):
    """Titan's one vector, or Cohere's several."""

    embedding: list[float] | None = None
    embeddings: list[list[float]] | _Vectors | None = None
    inputTextTokenCount: int | None = None  # noqa: N815


_encode = msgspec.json.Encoder().encode
_answer = msgspec.json.Decoder(_Answer).decode


def bodies_of(request: EmbeddingFields, fields: Fields, family: Family) -> list[bytes]:
    """The bodies of the requests, in the order of the texts. `fields` are the client's. Raises `CallerError`."""
    texts = [text for text in request.inputs if isinstance(text, str)]
    if len(texts) != len(request.inputs):
        raise CallerError("`input` must be text: this model takes no tokens.", param="input")
    options: Object = {}
    if request.dimensions is not None:
        if family not in _SIZED:
            raise CallerError(
                "`dimensions` is not possible with this model: its vectors have one length.",
                param="dimensions",
                code="unsupported_parameter",
            )
        options[_SIZED[family]] = request.dimensions
    if TEXTS_EACH[family] == 1:
        return [_encode({"inputText": text, **options}) for text in texts]
    options |= {"input_type": _type(field(fields, "input_type", _string)), "embedding_types": ["float"]}
    each = TEXTS_EACH[family]
    return [_encode({"texts": texts[at : at + each], **options}) for at in range(0, len(texts), each)]


def _type(given: str | None) -> str:
    """The use of the vectors, which Cohere demands. Without one the texts are documents to search in."""
    named = _TYPES.get(given or "document", given)
    if named not in _COHERES:
        raise CallerError(f"`input_type` is {', '.join([*_COHERES, 'query or document'])}.", param="input_type")
    return named


def vectors_of(body: bytes) -> tuple[list[Vector], int]:
    """The vectors of a response, and the tokens that it reports. Raises `BackendError`."""
    answer = decoding.decode(_answer, body)
    several = answer.embeddings.float if isinstance(answer.embeddings, _Vectors) else answer.embeddings
    rows = several if several is not None else [answer.embedding] if answer.embedding is not None else []
    with decoding.Checked(OverflowError):
        vectors = [Vector(pack(f"<{len(row)}f", *row), row) for row in rows]
    tokens = answer.inputTextTokenCount or 0
    return vectors, tokens if 0 <= tokens <= MAX_TOKENS else 0
