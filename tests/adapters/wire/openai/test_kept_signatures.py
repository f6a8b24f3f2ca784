"""What a server demands back survives a client of another protocol."""

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.wire.openai import kept_signatures
from adapters.wire.openai.kept_signatures import MAX_KEPT, PREFIX, Kept

objects = st.dictionaries(
    st.text(max_size=5), st.text(max_size=20) | st.dictionaries(st.text(max_size=3), st.text()), min_size=1
)


@given(st.text(max_size=40), objects)
def test_a_kept_object_comes_back_unchanged(call_id: str, extra: dict[str, object]) -> None:
    raw = Raw(json.dumps(extra).encode())
    text = kept_signatures.encode(call_id, raw)
    assert text is not None
    assert kept_signatures.is_kept(text)
    assert text.isascii()
    assert kept_signatures.decode(text) == Kept(call_id, raw)
    assert kept_signatures.block(call_id, raw) == {"type": "redacted_thinking", "data": text}


@given(st.text(max_size=30) | st.text(alphabet="AQgw_-=", max_size=30).map(lambda end: PREFIX + end))
def test_any_other_text_keeps_nothing(text: str) -> None:
    assert kept_signatures.decode(text) is None


def test_nothing_and_too_much_are_not_kept() -> None:
    for raw in (b"null", b"{}", b"[]", b'"x"', b"{x}", b'{"a":"%b"}' % (b"x" * MAX_KEPT)):
        assert kept_signatures.encode("c", Raw(raw)) is None
