"""The index against a plain search, for any text."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.engine.ngram_index import RESUMES, SIZE, NgramIndex

pytestmark = pytest.mark.plain

texts = st.lists(st.integers(0, 3), max_size=80)
PASSAGE = [40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51]


def recorder(into: list[tuple[int, bool]]) -> Callable[[int, bool], None]:
    return lambda matched, right: into.append((matched, right))


def ignore(matched: int, right: bool) -> None:
    pass


@given(text=texts, cut=st.integers(0, 80), most=st.integers(1, 9))
def test_a_proposal_continues_an_earlier_occurrence_of_the_last_tokens(text: list[int], cut: int, most: int) -> None:
    growing = text[:cut]
    index = NgramIndex(growing)
    for token in text[cut:]:
        growing.append(token)
        index.catch_up(ignore)
    proposal, matched = index.proposal(most), index.matched
    end = tuple(text[-SIZE:])
    occurred = any(tuple(text[at : at + SIZE]) == end for at in range(len(text) - SIZE))
    if matched >= SIZE:
        assert len(proposal) == most
        continued = [
            text[at + matched :] for at in range(len(text) - matched) if text[at:][:matched] == text[-matched:]
        ]
        assert any(proposal[: len(rest)] == rest[:most] for rest in continued)
    else:
        assert not occurred


@given(text=texts, cut=st.integers(0, 80))
def test_each_predicted_token_is_judged(text: list[int], cut: int) -> None:
    growing, seen = text[:cut], []
    index = NgramIndex(growing)
    for token in text[cut:]:
        expected = index.proposal(1)
        growing.append(token)
        judged: list[tuple[int, bool]] = []
        matched = index.matched
        index.catch_up(recorder(judged))
        assert judged == ([(matched, expected == [token])] if expected else [])
        seen += judged
    whole = text[:cut]
    at_once = NgramIndex(whole)
    together: list[tuple[int, bool]] = []
    whole += text[cut:]
    at_once.catch_up(recorder(together))
    assert (together, at_once.proposal(5)) == (seen, index.proposal(5))


def test_a_passage_is_followed_over_one_token_that_differs() -> None:
    text = [*PASSAGE, 1, *PASSAGE[:10]]
    index = NgramIndex(text)
    text += [99]
    index.catch_up(ignore)
    assert (index.proposal(1), index.matched) == ([], 0)  # it was matched for three tokens only
    text = [*PASSAGE, 1, *PASSAGE[:SIZE]]
    index = NgramIndex(text)
    text += PASSAGE[SIZE:RESUMES]
    text += [99]
    index.catch_up(ignore)
    assert (index.proposal(3), index.matched) == (PASSAGE[RESUMES + 1 :][:3], 0)


def test_a_passage_at_the_end_of_the_text_repeats_itself() -> None:
    index = NgramIndex([7, 1, 2, 3, 1, 2, 3])
    assert index.proposal(8) == [1, 2, 3, 1, 2, 3, 1, 2]


def test_its_memory_is_bounded_whatever_grows() -> None:
    text = [1, 2, 3]
    index = NgramIndex(text)
    size = len(index._places)
    text += range(300_000)
    index.catch_up(ignore)
    assert len(index._places) == size
    assert len(NgramIndex(text)._places) == 1 << 16
    text += [5, 299_000, 299_001, 299_002]
    index.catch_up(ignore)
    assert index.proposal(2) == [299_003, 299_004]


@given(
    text=texts, prediction=st.lists(st.integers(4, 80), min_size=12, max_size=60, unique=True), wrong=st.integers(0, 59)
)  # fmt: skip
def test_a_predicted_text_is_followed_from_its_beginning_and_over_a_wrong_token(
    text: list[int], prediction: list[int], wrong: int
) -> None:
    growing = [*text, *prediction]
    index = NgramIndex(growing, predicted=len(text))
    for place, token in enumerate(prediction):
        assert index.at == len(text) + place
        assert index.proposal(3)[0] == token
        growing.append(99 if place == wrong else token)
        index.catch_up(ignore)
