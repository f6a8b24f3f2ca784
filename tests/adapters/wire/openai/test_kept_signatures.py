"""What a server demands back survives a client of another protocol."""

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.wire.openai import kept_signatures
from adapters.wire.openai.kept_signatures import MAX_EXTRA, PREFIX, CallExtra

objects = st.dictionaries(
    st.text(max_size=5), st.text(max_size=20) | st.dictionaries(st.text(max_size=3), st.text()), min_size=1
)


@given(st.text(max_size=40), objects)
def test_an_object_comes_back_unchanged(call_id: str, extra: dict[str, object]) -> None:
    raw = Raw(json.dumps(extra).encode())
    text = kept_signatures.encode(call_id, raw)
    assert text is not None
    assert kept_signatures.is_own(text)
    assert text.isascii()
    assert kept_signatures.decode(text) == CallExtra(call_id, raw)
    assert kept_signatures.block(call_id, raw) == {"type": "redacted_thinking", "data": text}


@given(st.text(max_size=30) | st.text(alphabet="AQgw_-=", max_size=30).map(lambda end: PREFIX + end))
def test_any_other_text_has_no_object(text: str) -> None:
    assert kept_signatures.decode(text) is None


def test_nothing_and_too_much_are_not_encoded() -> None:
    for raw in (b"null", b"{}", b"[]", b'"x"', b"{x}", b'{"a":"%b"}' % (b"x" * MAX_EXTRA)):
        assert kept_signatures.encode("c", Raw(raw)) is None
