"""Bodies of `/v1/rerank`, `/score` and `/classify`: Cohere's and Jina's shapes of the first, vLLM's of all three."""

import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Raw

from adapters.errors import CallerError
from adapters.wire.body import field, is_given, open_body
from adapters.wire.openai.embeddings import MAX_INPUTS

_name = msgspec.json.Decoder(str | None)
_query = msgspec.json.Decoder(str | dict[str, Any])
_documents = msgspec.json.Decoder(list[str | dict[str, Any]])
_texts = msgspec.json.Decoder(str | list[str])
_count = msgspec.json.Decoder(Annotated[int, Meta(ge=0, le=2**31 - 1)] | None)
_length = msgspec.json.Decoder(Annotated[int, Meta(ge=1, le=2**31 - 1)] | None)
_truncation = msgspec.json.Decoder(Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None)
_flag = msgspec.json.Decoder(bool | None)
_fields_ranked = msgspec.json.Decoder(list[str] | None)
_encode = msgspec.json.Encoder().encode

HINTS = frozenset({"user", "priority", "request_id", "max_chunks_per_doc", "mm_processor_kwargs"})
"""Fields that steer other servers, and that no answer depends on."""
_SHARED = frozenset({"model", "truncate_prompt_tokens"}) | HINTS
_RERANK = _SHARED | {
    "query", "documents", "top_n", "return_documents", "max_tokens_per_doc", "rank_fields", "instruction",
}  # fmt: skip
_PAIRS = (("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2"))
"""vLLM's names for the two sides, the first ones first."""
_SCORE = _SHARED | {"instruction"} | {name for names in _PAIRS for name in names}
_CLASSIFY = _SHARED | {"input"}

Operation = Literal["rerank", "score", "classify"]


class RankingBody(NamedTuple):
    """Texts, or pairs of a query and a document. `truncate` is vLLM's: longer ones are cut to that many tokens, or by
    -1 to the model's limit."""

    model: str | None
    pairs: Sequence[tuple[str, str | None]]
    """The second is None for a text alone."""
    truncate: int | None = None
    top_n: int | None = None
    documents: Sequence[str | dict[str, Any]] = ()
    """As given, for an answer with documents."""
    returns_documents: bool | None = None
    max_tokens_per_doc: int | None = None
    instruction: str | None = None
    ignored: tuple[str, ...] = ()
    """Names of fields without effect here, and of unknown ones."""


class RankedDocument(NamedTuple):
    """One result: the place of the document in the request, and its score."""

    place: int
    score: float


def ranked(scores: Sequence[float], top_n: int | None) -> list[RankedDocument]:
    """The best `top_n` in their order, all without it; equal ones in the request's order."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    return [RankedDocument(place, scores[place]) for place in order[: top_n or len(order)]]


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


def decode_rerank(body: bytes) -> RankingBody:
    """Raises `CallerError` that names the parameter at fault."""
    fields = open_body(body)
    query = _text(field(fields, "query", _query, required=True), "query")
    documents = field(fields, "documents", _documents, required=True) or []
    _check_count(len(documents), "documents")
    texts = [_text(document, f"documents[{place}]") for place, document in enumerate(documents)]
    if field(fields, "rank_fields", _fields_ranked) not in (None, [], ["text"]):
        message = "`rank_fields` is not supported by this server: write what is to be ranked as `text`."
        raise CallerError(message, param="rank_fields", code="unsupported_parameter")
    return RankingBody(
        field(fields, "model", _name),
        [(query, text) for text in texts],
        field(fields, "truncate_prompt_tokens", _truncation),
        field(fields, "top_n", _count),
        documents,
        field(fields, "return_documents", _flag),
        field(fields, "max_tokens_per_doc", _length),
        field(fields, "instruction", _name),
        _ignored(fields, _RERANK),
    )


def decode_score(body: bytes) -> RankingBody:
    """Each text of one side with that of the other, or one text with all. Raises `CallerError`."""
    fields = open_body(body)
    left, right = next((names for names in _PAIRS if names[0] in fields or names[1] in fields), _PAIRS[0])
    first, second = (_listed(fields, name) for name in (left, right))
    if len(first) == 1:
        first = first * len(second)
    elif len(first) != len(second):
        message = f"`{right}` has {len(second)} texts for {len(first)} of `{left}`: give as many, or one `{left}`."
        raise CallerError(message, param=right)
    return RankingBody(
        field(fields, "model", _name),
        list(zip(first, second, strict=True)),
        field(fields, "truncate_prompt_tokens", _truncation),
        instruction=field(fields, "instruction", _name),
        ignored=_ignored(fields, _SCORE),
    )


def decode_classify(body: bytes) -> RankingBody:
    """Raises `CallerError`."""
    fields = open_body(body)
    return RankingBody(
        field(fields, "model", _name),
        [(text, None) for text in _listed(fields, "input")],
        field(fields, "truncate_prompt_tokens", _truncation),
        ignored=_ignored(fields, _CLASSIFY),
    )


def _ignored(fields: dict[str, Raw], defined: frozenset[str]) -> tuple[str, ...]:
    """The hints and the unknown fields. One that is false may change the scores."""
    return tuple(sorted(name for name in fields if (name in HINTS or name not in defined) and is_given(fields, name)))


def _listed(fields: dict[str, Raw], name: str) -> list[str]:
    given = field(fields, name, _texts, required=True)
    texts = [given] if isinstance(given, str) else given or []
    _check_count(len(texts), name)
    return texts


def _check_count(count: int, name: str) -> None:
    if not count:
        raise CallerError(f"`{name}` is empty.", param=name)
    if count > MAX_INPUTS:
        raise CallerError(f"`{name}` has {count} entries, and {MAX_INPUTS} at most are accepted.", param=name)


def _text(given: str | dict[str, Any] | None, name: str) -> str:
    text = given.get("text") if isinstance(given, dict) else given
    if not isinstance(text, str):
        raise CallerError(f"`{name}` must be a text, or an object with a `text`.", param=name)
    return text


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


def encode_rerank(
    body: RankingBody, results: Sequence[RankedDocument], *, model: str, tokens: int, documents: bool
) -> bytes:
    """Fields of Cohere's answer (`meta`) and of Jina's and vLLM's (`usage`). `documents`: each result has its own."""
    written: list[dict[str, Any]] = []
    for result in results:
        entry: dict[str, Any] = {"index": result.place, "relevance_score": result.score}
        if documents:
            given = body.documents[result.place]
            entry["document"] = {"text": given} if isinstance(given, str) else given
        written.append(entry)
    return _encode({
        **_envelope("rerank", model, tokens),
        "results": written,
        "meta": {"api_version": {"version": "2"}, "tokens": {"input_tokens": tokens}},
    })  # fmt: skip


def encode_scores(scores: Sequence[float], *, model: str, tokens: int) -> bytes:
    """vLLM's."""
    data = [{"index": place, "object": "score", "score": score} for place, score in enumerate(scores)]
    return _encode({**_envelope("score", model, tokens), "data": data})


def encode_classes(shares: Sequence[Sequence[float]], labels: Sequence[str], *, model: str, tokens: int) -> bytes:
    """vLLM's: the likeliest label of each text, and the numbers of all labels in the model's order."""
    data = [
        {"index": place, "label": labels[_likeliest(row)], "probs": row, "num_classes": len(labels)}
        for place, row in enumerate(shares)
    ]
    return _encode({**_envelope("classify", model, tokens), "data": data})


def _likeliest(row: Sequence[float]) -> int:
    return max(range(len(row)), key=row.__getitem__)


def _envelope(operation: Operation, model: str, tokens: int) -> dict[str, Any]:
    return {
        "id": f"{operation}-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
    }
