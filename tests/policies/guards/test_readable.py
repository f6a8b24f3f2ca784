"""Texts without lone surrogates."""

from hypothesis import given
from hypothesis import strategies as st

from policies.guards.readable import readable

ANY = st.text(alphabet=st.characters(codec=None))


@given(ANY)
def test_each_character_has_its_place(text: str) -> None:
    shown = readable(text)
    assert len(shown) == len(text)
    assert all(
        new == old or ("\ud800" <= old <= "\udfff" and not "\ud800" <= new <= "\udfff")
        for new, old in zip(shown, text, strict=True)
    )
    shown.encode()


@given(st.text())
def test_a_text_of_unicode_stays_equal(text: str) -> None:
    assert readable(text) == text


@given(st.text(alphabet="aäöüßéñ€’ 1", max_size=30))
def test_bytes_of_windows_are_its_letters(text: str) -> None:
    wrong = "".join(chr(byte if byte < 0x80 else 0xDC00 + byte) for byte in text.encode("cp1252"))
    assert readable(wrong) == text


def test_other_halves_are_replaced() -> None:
    assert readable("a\ud800b\udc00c\udc81") == "a\ufffdb\ufffdc\ufffd"
