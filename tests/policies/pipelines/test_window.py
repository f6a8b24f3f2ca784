"""Not one character of a forbidden span leaves, over all ways of cutting a text into chunks."""

from collections.abc import Callable, Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.pipelines.window import (
    MAX_ARGUMENTS,
    CharacterDecoder,
    GuardWindow,
    HeldToolCalls,
    ToolCallOverflowError,
    windows_of,
)

Find = Callable[[str], int]
"""The place of a forbidden span in a window; -1 if there is none."""


def cuts(size: int) -> Iterator[tuple[int, ...]]:
    """Every set of places at which a text of this size may be cut."""
    for count in range(size):
        yield from combinations(range(1, size), count)


def pieces(text: str, at: tuple[int, ...]) -> list[str]:
    return [text[begin:end] for begin, end in zip((0, *at), (*at, len(text)), strict=True)]


def stream(chunks: list[str], window: int, overlap: int, find: Find, *, located: bool) -> tuple[str, bool]:
    """The text that a guard releases, and whether it blocks."""
    guard, released = GuardWindow(window, overlap), ""
    for index in range(len(chunks) + 1):
        if index < len(chunks):
            guard.feed(chunks[index])
        else:
            guard.end()
        while (due := guard.due()) is not None:
            assert len(due) <= window
            place = find(due)
            if place >= 0:
                return released + guard.blocked(place if located else None), True
            released += guard.passed()
        assert guard.held <= window
    released += guard.rest()
    assert guard.held == 0
    return released, False


TEXTS = ["abcxyzdefgh", "xyzabc", "abcxyz", "ab", "", "x\u00e9\U0001f600yzxyzab"]


@pytest.mark.parametrize("located", [True, False])
@pytest.mark.parametrize(("window", "overlap"), [(3, 2), (4, 3), (5, 3), (6, 3), (7, 5), (20, 3)])
@pytest.mark.parametrize("text", TEXTS)
def test_no_cut_releases_a_forbidden_span(text: str, window: int, overlap: int, located: bool) -> None:
    span = "xyz"
    find: Find = lambda due: due.find(span)  # noqa: E731
    place = text.find(span)
    whole = stream([text], window, overlap, find, located=located)
    for at in cuts(len(text)):
        released, is_blocked = stream(pieces(text, at), window, overlap, find, located=located)
        assert (released, is_blocked) == whole
        assert is_blocked is (place >= 0)
        assert text.startswith(released)
        if place < 0 or located:
            assert released == (text if place < 0 else text[:place])
        else:
            assert place - window < len(released) <= place


@given(st.text("abxyz", max_size=60), st.integers(1, 12), st.integers(0, 11), st.lists(st.integers(0, 60), max_size=8))
def test_any_text_is_released_exactly_up_to_its_first_forbidden_span(
    text: str, window: int, overlap: int, at: list[int]
) -> None:
    overlap = min(overlap, window - 1)
    span = "xyz"[: overlap + 1]
    chunks = pieces(text, tuple(sorted({place for place in at if 0 < place < len(text)})))
    released, is_blocked = stream(chunks, window, overlap, lambda due: due.find(span), located=True)
    place = text.find(span)
    assert released == (text if place < 0 else text[:place])
    assert is_blocked is (place >= 0)


@given(st.text(max_size=50), st.integers(1, 12), st.integers(0, 11))
def test_the_windows_of_a_text_cover_every_span_of_the_overlap(text: str, window: int, overlap: int) -> None:
    overlap = min(overlap, window - 1)
    windows = list(windows_of(text, window, overlap))
    for size in range(1, overlap + 1):
        for begin in range(len(text) - size + 1):
            assert any(text[begin : begin + size] in each for each in windows)
    assert len("".join(windows)) >= len(text)


def test_text_leaves_as_soon_as_its_window_has_passed() -> None:
    guard = GuardWindow(4, 1)
    guard.feed("abc")
    assert guard.due() is None
    guard.feed("de")
    assert guard.due() == "abcd"
    assert guard.passed() == "abc"
    assert guard.due() is None
    guard.feed("fg")
    assert (guard.due(), guard.passed()) == ("defg", "def")
    guard.end()
    assert guard.due() is None
    assert guard.rest() == "g"


def test_nothing_leaves_after_a_block() -> None:
    guard = GuardWindow(2, 1)
    guard.feed("ab")
    assert guard.blocked() == ""
    guard.feed("cd")
    guard.end()
    assert (guard.due(), guard.rest(), guard.held) == (None, "", 0)


@pytest.mark.parametrize(("window", "overlap"), [(0, 0), (3, 3), (3, -1), (100_000, 1)])
def test_a_window_is_longer_than_its_overlap(window: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="the overlap is less"):
        GuardWindow(window, overlap)


def test_bytes_of_a_character_are_joined_whatever_the_cut() -> None:
    data = "a\u00e9\u20ac\U0001f600z".encode()
    for at in cuts(len(data)):
        decoder = CharacterDecoder()
        chunks = [data[begin:end] for begin, end in zip((0, *at), (*at, len(data)), strict=True)]
        assert "".join(map(decoder.feed, chunks)) + decoder.end() == data.decode()


def test_halves_of_surrogate_pairs_are_joined_whatever_the_cut() -> None:
    text = "a\ud83d\ude00b\ud83d\ude00"
    for at in cuts(len(text)):
        decoder = CharacterDecoder()
        assert "".join(map(decoder.feed, pieces(text, at))) + decoder.end() == "a\U0001f600b\U0001f600"


@given(st.lists(st.binary(max_size=5) | st.text(st.characters(), max_size=5), max_size=6))
def test_a_decoder_returns_valid_unicode(chunks: list[bytes | str]) -> None:
    for kind in (bytes, str):
        decoder = CharacterDecoder()
        text = "".join(decoder.feed(chunk) for chunk in chunks if isinstance(chunk, kind)) + decoder.end()
        assert text.encode().decode() == text


@given(st.lists(st.sampled_from(["\ud83d", "\ude00", "a", "\ud83d\ude00"]), max_size=6))
def test_single_surrogates_are_replaced(chunks: list[str]) -> None:
    decoder = CharacterDecoder()
    text = "".join(map(decoder.feed, chunks)) + decoder.end()
    whole = CharacterDecoder()
    assert text == whole.feed("".join(chunks)) + whole.end()
    assert text.encode().decode() == text


@given(st.lists(st.tuples(st.integers(0, 2), st.text("ab{}", max_size=3)), max_size=12))
def test_tool_calls_are_held_whole(chunks: list[tuple[int, str]]) -> None:
    calls = HeldToolCalls()
    for index, arguments in chunks:
        calls.feed(index, arguments=arguments)
    calls.feed(0, name="f")
    expected = {0: "", **{i: "" for i, _ in chunks}}
    for index, arguments in chunks:
        expected[index] += arguments
    names = {0: "f"}
    assert [call.text for call in calls.complete().values()] == [
        f"{names.get(i, '')}\n{expected[i]}" for i in sorted(expected)
    ]
    assert calls.complete() == {}


def test_huge_tool_calls_are_an_error() -> None:
    calls = HeldToolCalls()
    calls.feed(0, arguments="a" * (MAX_ARGUMENTS - 10))
    with pytest.raises(ToolCallOverflowError, match="the tool calls"):
        calls.feed(1, arguments="b" * 10)
    with pytest.raises(ToolCallOverflowError, match="the name"):
        HeldToolCalls().feed(0, name="n" * 2000)
