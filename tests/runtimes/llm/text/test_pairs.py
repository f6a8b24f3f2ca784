"""Pairs of texts beside the library's own encoding, and its own way to cut them."""

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.text.pairs import PairEncoder
from runtimes.llm.text.tokenizer import TooManyTokens
from runtimes.llm.text.tokenizer_loader import load_tokenizer

words = st.lists(st.sampled_from(["water", "turbines", "x", "é", "[SEP]", "\n"]), max_size=20).map(" ".join)


@pytest.fixture(scope="module")
def pairs(minilm: Path) -> PairEncoder:
    return PairEncoder(load_tokenizer(minilm), typed=True)


@pytest.fixture(scope="module")
def library(minilm: Path) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer.from_file(str(minilm / "tokenizer.json"))
    made.no_padding()
    return made


@given(query=words, documents=st.lists(words, min_size=1, max_size=3), longest=st.integers(3, 50))
@settings(max_examples=200, deadline=None)
def test_pairs_are_those_of_the_library(
    pairs: PairEncoder, library: tokenizers.Tokenizer, query: str, documents: list[str], longest: int
) -> None:
    library.enable_truncation(longest, strategy="longest_first")
    encoded = pairs.query(query)
    for document in documents:  # the same query again: cutting one pair leaves it whole
        expected = library.encode(query, document)
        row = pairs.row(encoded, document, longest, cut=True)
        assert row.token_ids == expected.ids
        first = len(expected.ids) if row.second_part is None else row.second_part
        assert expected.type_ids == [0] * first + [1] * (len(expected.ids) - first)


def test_a_pair_that_is_too_long_is_cut_only_on_demand(pairs: PairEncoder) -> None:
    query = pairs.query("water water")
    assert len(pairs.row(query, "water water", 7, cut=False).token_ids) == 7
    with pytest.raises(TooManyTokens):
        pairs.row(query, "water water", 6, cut=False)


def test_a_tokenizer_without_types_names_no_second_part(minilm: Path) -> None:
    untyped = PairEncoder(load_tokenizer(minilm))
    assert untyped.row(untyped.query("a"), "b", 10, cut=True).second_part is None
