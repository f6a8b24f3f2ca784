"""Similar texts, against the definition of the edit distance."""

from collections.abc import Sequence
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from config.schema.copies import TextTestConfig
from policies.comparison.text import MOST_SIGNS, MOST_WORDS, accepts, edit_distance, normalized, similarity

TEXTS = st.text("abc ", max_size=24)


def by_definition(first: Sequence[str], second: Sequence[str]) -> int:
    """The recurrence of Levenshtein."""

    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        substituted = distance(i - 1, j - 1) + (first[i - 1] != second[j - 1])
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, substituted)

    return distance(len(first), len(second))


@given(TEXTS, TEXTS)
def test_the_edit_distance_is_that_of_the_definition(first: str, second: str) -> None:
    assert edit_distance(first, second) == by_definition(first, second)


@given(st.lists(st.sampled_from(["one", "two", "three"])), st.lists(st.sampled_from(["one", "two", "three"])))
def test_words_have_the_same_distance(first: list[str], second: list[str]) -> None:
    assert edit_distance(first, second) == by_definition(first, second)


@given(st.text(min_size=60, max_size=100), st.text(min_size=60, max_size=100))
def test_a_long_pattern_exceeds_no_machine_word(first: str, second: str) -> None:
    assert edit_distance(first, second) == by_definition(first, second)


@given(TEXTS, TEXTS)
def test_the_similarity_is_symmetrical_and_between_0_and_1(first: str, second: str) -> None:
    assert similarity(first, second) == similarity(second, first)
    assert 0 <= similarity(first, second) <= 1
    assert (similarity(first, second) == 1) == (first == second)


def test_long_texts_are_compared_by_words() -> None:
    text = "word " * MOST_SIGNS
    assert similarity(text, text + "other") == 1 - 1 / (MOST_SIGNS + 1)
    assert similarity("a " * MOST_WORDS, "a " * (2 * MOST_WORDS)) == 0.5


def test_normalized_texts() -> None:
    assert normalized("  Ｈello\n\tWORLD ") == "hello world"
    assert accepts(TextTestConfig(same="normalized"), "Straße  1", "STRASSE 1")
    assert not accepts(TextTestConfig(same="exact"), "a", "A")
    assert accepts(TextTestConfig.model_validate({"edit": "75%"}), "abcd", "abce")
    assert not accepts(TextTestConfig.model_validate({"edit": "76%"}), "abcd", "abce")
