"""Streaming text: any pieces result in the same whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.text.tokenizer import Detokenizer
from tests.support.byte_tokenizer import byte_tokenizer

pytestmark = pytest.mark.plain
TOKENIZER = byte_tokenizer()


@given(st.lists(st.integers(0, 259)))
def test_pushes_and_flush_are_decode_of_all(ids: list[int]) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    pushed = [detokenizer.push(id) for id in ids]
    assert "".join(pushed) + detokenizer.flush() == TOKENIZER.decode(ids)


@given(st.text())
def test_no_half_character_is_ever_seen(text: str) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    seen = ""
    for id in TOKENIZER.encode(text):
        seen += detokenizer.push(id)
        assert text.startswith(seen)
    assert seen == text
    assert detokenizer.flush() == ""


def test_a_character_left_open_is_replaced_at_the_end() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    start, *_ = TOKENIZER.encode("é")
    assert detokenizer.push(start) == ""
    assert detokenizer.flush() == "\ufffd"
