"""A text ends at the first of its stop strings, for any pieces and any number of stop strings."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.text.stop_strings import StopStrings, StopTable

pytestmark = pytest.mark.plain


def cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The rule, one character after the other."""
    for end in range(len(text) + 1):
        if ended := [stop for stop in stops if text[:end].endswith(stop)]:
            longest = max(ended, key=len)
            return text[: end - len(longest)], longest
    return text, None


few_letters = st.text("ab", max_size=12)


@given(
    pieces=st.lists(st.text("ab", max_size=4), max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=5), max_size=4, unique=True),
)
def test_stop_strings_do_not_depend_on_the_pieces(pieces: list[str], stops: list[str]) -> None:
    watch = StopStrings(StopTable(stops))
    seen = ""
    for piece in pieces:
        seen += watch.push(piece)
        if watch.matched is not None:
            break
    else:
        seen += watch.flush()
    assert (seen, watch.matched) == cut("".join(pieces), stops)


@given(
    pieces=st.lists(st.text("ab", max_size=4), max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4),
)
def test_no_more_is_held_back_than_a_stop_string_could_begin(pieces: list[str], stops: list[str]) -> None:
    watch = StopStrings(StopTable(stops))
    seen = text = ""
    for piece in pieces:
        text += piece
        seen += watch.push(piece)
        if watch.matched is not None:
            return
        held = text[len(seen) :]
        assert held == "" or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize(
    ("pushes", "seen"),
    [(["the en", "d<"], ["the en", "d"]), (["a<", "b"], ["a", "<b"]), (["<", "|", "x"], ["", "", "<|x"])],
)
def test_a_possible_beginning_of_a_stop_string_waits(pushes: list[str], seen: list[str]) -> None:
    watch = StopStrings(StopTable(["<|end|>"]))
    assert [watch.push(piece) for piece in pushes] == seen


def seconds(stops: list[str], text: str) -> float:
    table = StopTable(stops)
    began = time.process_time()
    for _ in range(3):
        watch = StopStrings(table)
        for character in text:
            watch.push(character)
        assert watch.matched is None
    return time.process_time() - began


def test_the_time_of_a_text_does_not_grow_with_the_number_of_stop_strings() -> None:
    chance = random.Random(1)
    many = ["".join(chance.choices("abcd", k=15)) + "!" for _ in range(1024)]
    text = "".join(chance.choices("abcd", k=4000))
    assert min(seconds(many, text) for _ in range(3)) < 20 * min(seconds(many[:1], text) for _ in range(3))
