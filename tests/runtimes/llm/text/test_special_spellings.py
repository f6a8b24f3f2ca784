"""Spellings of control tokens in texts: all of them are cut, in time that the number of tokens does not multiply."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.text.tokenizer import SpecialSpellings
from tests.support.pace import slowness

pytestmark = pytest.mark.plain
spellings = st.lists(st.text("<|ab>", max_size=5), max_size=6)
texts = st.text("<|ab> \n", max_size=30)


@given(tokens=spellings, text=texts)
def test_no_part_spells_a_token_and_the_parts_are_the_text(tokens: list[str], text: str) -> None:
    parts = SpecialSpellings(tokens).cut(text)
    assert "".join(parts) == text
    assert not any(token in part for token in tokens if len(token) > 1 for part in parts)


@given(tokens=spellings, text=texts)
def test_the_cuts_are_after_the_first_character_of_each_spelling(tokens: list[str], text: str) -> None:
    nonempty = [token for token in tokens if token]
    whole = {at + 1 for at in range(len(text)) if text.startswith(tuple(nonempty), at)}
    stripped = text.rstrip()
    begun = {
        at + 1
        for at in range(len(stripped))
        if any(token.startswith(stripped[at:]) and token != stripped[at:] for token in nonempty)
    }
    for open_end, expected in ((False, whole), (True, whole | begun)):
        places, at = set(), 0
        for part in SpecialSpellings(tokens).cut(text, open_end=open_end)[:-1]:
            at += len(part)
            places.add(at)
        assert places == expected


@pytest.mark.parametrize("text", ["<", "<|", "<|reserved_special_token_", "< ", " "])
def test_hundreds_of_tokens_do_not_multiply_the_time_of_a_text(text: str) -> None:
    few = SpecialSpellings(["<|eot_id|>"])
    many = SpecialSpellings([f"<|reserved_special_token_{i}|>" for i in range(256)])
    written = text * (200_000 // len(text))
    assert min(_seconds(many, written) for _ in range(3)) < 0.05 * slowness() + 20 * _seconds(few, written)


def _seconds(spellings: SpecialSpellings, text: str) -> float:
    began = time.thread_time()
    spellings.cut(text, open_end=True)
    return time.thread_time() - began
