"""Bodies of rerank, score and classify: any is decoded or refused by the name of its field."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.wire.openai import ranking
from adapters.wire.openai.embeddings import MAX_INPUTS

leaves = st.none() | st.booleans() | st.integers(-3, 9) | st.floats(allow_nan=False) | st.text(max_size=9)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["text", "image"]), inner, max_size=2),
    max_leaves=8,
)
FIELDS = sorted({
    "model", "query", "documents", "top_n", "return_documents", "max_tokens_per_doc", "rank_fields", "instruction",
    "truncate_prompt_tokens", "text_1", "text_2", "queries", "data_1", "data_2", "input", "user", "priority", "odd",
})  # fmt: skip
DECODERS = {"rerank": ranking.decode_rerank, "score": ranking.decode_score, "classify": ranking.decode_classify}
texts = st.lists(st.text(max_size=9), min_size=1, max_size=5)


@given(st.sampled_from(sorted(DECODERS)), st.dictionaries(st.sampled_from(FIELDS), values, max_size=6))
def test_any_body_is_decoded_or_refused_by_its_field(kind: str, fields: dict[str, Any]) -> None:
    refusal: CallerError | None = None
    try:
        body = DECODERS[kind](msgspec.json.encode(fields))
    except CallerError as error:
        refusal = error
    if refusal is not None:
        assert refusal.param is not None
        return
    assert body.pairs
    assert len(body.pairs) <= MAX_INPUTS
    assert all(isinstance(first, str) and isinstance(second, str | None) for first, second in body.pairs)


@given(st.binary(max_size=60))
def test_no_bytes_fail_otherwise(body: bytes) -> None:
    for decode in DECODERS.values():
        with pytest.raises(CallerError):
            decode(body)


@given(st.text(max_size=9), texts, st.booleans())
def test_documents_are_pairs_with_the_query(query: str, documents: list[str], as_objects: bool) -> None:
    given_documents = [{"text": text, "id": 1} for text in documents] if as_objects else documents
    body = ranking.decode_rerank(msgspec.json.encode({"query": query, "documents": given_documents}))
    assert list(body.pairs) == [(query, text) for text in documents]
    assert body.documents == given_documents


@given(texts, texts)
def test_sides_are_as_many_or_the_first_is_one(left: list[str], right: list[str]) -> None:
    encoded = msgspec.json.encode({"text_1": left, "text_2": right})
    if len(left) not in (1, len(right)):
        with pytest.raises(CallerError):
            ranking.decode_score(encoded)
        return
    pairs = ranking.decode_score(encoded).pairs
    assert [second for _, second in pairs] == right
    assert [first for first, _ in pairs] == (left * len(right) if len(left) == 1 else left)


@given(st.lists(st.integers(0, 3).map(float), max_size=12), st.none() | st.integers(0, 15))
def test_the_best_come_first_and_equal_ones_in_their_order(scores: list[float], top_n: int | None) -> None:
    results = ranking.ranked(scores, top_n)
    keys = [(-result.score, result.place) for result in results]
    assert keys == sorted(keys)
    assert len(results) == min(top_n or len(scores), len(scores))
    left_out = {*range(len(scores))} - {result.place for result in results}
    assert all(scores[place] <= result.score for place in left_out for result in results)


def test_more_documents_than_a_request_may_have_are_refused() -> None:
    with pytest.raises(CallerError, match="2049 entries"):
        ranking.decode_rerank(msgspec.json.encode({"query": "a", "documents": ["b"] * (MAX_INPUTS + 1)}))
