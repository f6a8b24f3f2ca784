"""Streaming text: whatever the pieces, the whole is the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.detokenizer import Detokenizer, StopStrings
from tests.runtimes.llm.server_fixtures import byte_tokenizer

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
    watch = StopStrings(stops)
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
    watch = StopStrings(stops)
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
def test_what_may_begin_a_stop_string_waits(pushes: list[str], seen: list[str]) -> None:
    watch = StopStrings(["<|end|>"])
    assert [watch.push(piece) for piece in pushes] == seen
