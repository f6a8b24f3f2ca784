"""The rows and tokens of forwarded requests to rerank, score and classify."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.wire.body import open_body
from adapters.wire.openai.model_field import RANKING, ranking_request
from adapters.wire.openai.ranking_size import MAX_ROWS, RankingSize, size_of

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


def size(body: dict[str, Any], indent: int = 0) -> RankingSize:
    encoded = msgspec.json.encode(body)
    return size_of(open_body(msgspec.json.format(encoded, indent=indent) if indent else encoded))


@given(st.lists(values, max_size=8), st.sampled_from([0, 2]))
def test_every_entry_is_a_row(documents: list[Any], indent: int) -> None:
    assert size({"query": "a", "documents": documents}, indent).rows == len(documents)
    assert size({"input": documents}, indent).rows == len(documents)


@given(values)
def test_any_value_has_a_size(value: Any) -> None:
    rows = len(value) if isinstance(value, list) else 1
    for names in (("text_1", "text_2"), ("queries", "documents"), ("query", "texts"), ("data_1", "data_2")):
        assert size({names[0]: "a", names[1]: value}).rows == rows


def test_a_query_is_read_with_each_document() -> None:
    alone = size({"query": "q" * 400, "documents": ["d" * 40]}).tokens
    assert size({"query": "q" * 400, "documents": ["d" * 40] * 10}).tokens == pytest.approx(10 * alone, abs=30)
    assert size({"text_1": ["q" * 400] * 3, "text_2": ["d"] * 3}).tokens < 2 * size({"text_1": "q" * 1200}).tokens + 400


def test_a_body_without_these_fields_has_no_size() -> None:
    assert size({"model": "m"}) == size({"query": "a"}) == RankingSize(0, 0)


@pytest.mark.parametrize("documents", [["a"] * (MAX_ROWS + 1), [0] * (MAX_ROWS + 1), [[[1] * 700_000]]])
def test_too_many_entries_are_refused(documents: list[Any]) -> None:
    with pytest.raises(CallerError) as refused:
        size({"query": "a", "documents": documents})
    assert refused.value.param == "documents"
    assert size({"query": "a", "documents": ["a"] * MAX_ROWS}).rows == MAX_ROWS


@pytest.mark.parametrize("kind", RANKING)
def test_a_request_by_its_body_has_its_operation(kind: Any) -> None:
    request = ranking_request(kind, b'{"model": "m", "query": "a", "documents": ["b", "c"], "user": "u"}')
    assert (request.operation, request.model, request.rows, request.user) == (kind, "m", 2, "u")
