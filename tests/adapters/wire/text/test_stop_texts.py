"""Stop texts found across pieces, wherever the pieces begin."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.wire.text.generated_text import StopTexts

letters = st.text("ab\n", min_size=1, max_size=4)


@given(pieces=st.lists(st.text("ab\n", max_size=4), max_size=12), stops=st.lists(letters, max_size=3))
def test_pieces_are_cut_like_the_whole_text(pieces: list[str], stops: list[str]) -> None:
    """The text ends at the stop text that is complete first."""
    cutter, text = StopTexts(stops), ""
    for piece in pieces:
        text += cutter.feed(piece)
    text += cutter.rest()
    whole = "".join(pieces)
    cut = [whole.find(stop) for stop in stops if stop in whole]
    assert cutter.matched == bool(cut)
    assert whole.startswith(text)
    assert not any(stop in text for stop in stops)
    if not cut:
        assert text == whole
    else:
        assert any(whole[len(text) :].startswith(stop) for stop in stops)


def test_only_a_possible_beginning_is_withheld() -> None:
    cutter = StopTexts(["</s>", "User:"])
    parts = [cutter.feed(piece) for piece in ("a <", "b </", "s", " U", "ser", "x")]
    assert parts == ["a ", "<b ", "", "</s ", "", "Userx"]
    assert (cutter.rest(), cutter.matched) == ("", False)
    assert [cutter.feed(piece) for piece in ("x </", "s> more", "never")] == ["x ", "", ""]
    assert cutter.matched
