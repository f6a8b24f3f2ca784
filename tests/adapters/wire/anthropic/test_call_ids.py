"""Ids of tool calls in Anthropic's alphabet."""

import re

from hypothesis import given
from hypothesis import strategies as st

from adapters.wire.anthropic.call_ids import MAX_ID, PREFIX, UNIQUE, to_chat, to_message

ids = st.text(min_size=1, max_size=60) | st.sampled_from(
    ["functions.weather:0", "call_1", f"{PREFIX}x", PREFIX, "x" * (MAX_ID + 1), to_message("functions.weather:0")]
)


@given(ids, ids)
def test_ids_keep_their_alphabet_their_difference_and_their_way_back(one: str, other: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]+", to_message(one))
    assert (to_message(one) == to_message(other)) == (one == other)
    if len(one) <= MAX_ID:
        assert to_chat(to_message(one)) == to_chat(to_message(one, "0123456789")) == one
    assert (to_message(one, "0123456789") == to_message(one, "9876543210")) == (
        to_message(one) == one and len(one) >= UNIQUE
    )


@given(st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True))
def test_an_id_of_anthropics_own_is_unchanged(id_: str) -> None:
    if not id_.startswith(PREFIX):
        assert to_message(id_) == to_chat(id_) == id_
