"""Stop texts found across pieces, wherever the pieces begin."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.wire.text.stop_texts import StopTexts

letters = st.text("ab\n", min_size=1, max_size=4)


@given(pieces=st.lists(st.text("ab\n", max_size=4), max_size=12), stops=st.lists(letters, max_size=3))
def test_pieces_tell_what_the_whole_would(pieces: list[str], stops: list[str]) -> None:
    """Up to the stop text that is complete first."""
    cutter, told = StopTexts(stops), ""
    for piece in pieces:
        told += cutter.feed(piece)
    told += cutter.rest()
    whole = "".join(pieces)
    cut = [whole.find(stop) for stop in stops if stop in whole]
    assert cutter.matched == bool(cut)
    assert whole.startswith(told)
    assert not any(stop in told for stop in stops)
    if not cut:
        assert told == whole
    else:
        assert any(whole[len(told) :].startswith(stop) for stop in stops)


def test_only_what_may_be_a_beginning_is_held_back() -> None:
    cutter = StopTexts(["</s>", "User:"])
    told = [cutter.feed(piece) for piece in ("a <", "b </", "s", " U", "ser", "x")]
    assert told == ["a ", "<b ", "", "</s ", "", "Userx"]
    assert (cutter.rest(), cutter.matched) == ("", False)
    assert [cutter.feed(piece) for piece in ("x </", "s> more", "never")] == ["x ", "", ""]
    assert cutter.matched
