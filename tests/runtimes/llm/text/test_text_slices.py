"""Slices of a text: together they are the text, and their ids are the ids of the text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.text import tokenizer as module
from runtimes.llm.text.tokenizer import Tokenizer, TooManyTokens, cuts_exactly, slices
from tests.support.byte_tokenizer import byte_tokenizer

words = st.lists(
    st.sampled_from(["word", "12", " ", "\n", "  ", "中文", "é", "'s", "<", "_", "\t", "٣", "x="]), max_size=99
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 16)
    monkeypatch.setattr(module, "LONGEST", 10_000)


@pytest.mark.usefixtures("small")
def test_ids_of_slices_are_ids_of_the_text(tokenizer: Tokenizer) -> None:
    @given(words.map("".join))
    @settings(deadline=None)
    def the_same(text: str) -> None:
        whole = tokenizer._backend.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, allow_special=True) == whole

    the_same()


@given(text=st.text(max_size=200), cut=st.booleans())
def test_slices_are_the_text(text: str, cut: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLICE", 8)
        patch.setattr(module, "LONGEST", 20)
        parts = list(slices(text, cut=cut))
    assert "".join(parts) == text
    assert all(len(part) <= 20 for part in parts)


def test_a_tokenizer_that_looks_across_the_cut_is_not_cut(tokenizer: Tokenizer) -> None:
    def prefixed(text: str) -> list[int]:
        return list(f"▁{text}".encode())

    assert cuts_exactly(tokenizer._encode)
    assert not cuts_exactly(prefixed)


def test_a_text_is_encoded_no_further_than_the_limit() -> None:
    tokenizer = byte_tokenizer()
    text = "word " * 100_000
    encoded: list[str] = []
    encode = tokenizer._encode
    tokenizer._encode = lambda text: encoded.append(text) or encode(text)  # type: ignore[method-assign, func-returns-value]
    with pytest.raises(TooManyTokens):
        tokenizer.encode(text, limit=1000)
    assert sum(map(len, encoded)) < 2 * module.SLICE
    assert len(tokenizer.encode(text[:1000], limit=1000)) == 1000
