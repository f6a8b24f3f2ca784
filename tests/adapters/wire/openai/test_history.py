"""The messages of a chat in the dialect of one server."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.wire.openai.history import OWN_FIELDS, UNSIGNED, in_dialect

own = st.dictionaries(st.sampled_from(sorted(OWN_FIELDS)), st.just("x"), max_size=2)
CALL = {"id": "c", "function": {"name": "f", "arguments": '{"extra_content":1}'}}
calls = st.builds(lambda fields: CALL | fields, own)
turns = st.builds(
    lambda fields, made: {"role": "assistant", "content": "the word reasoning_content", "new": 1} | fields | made,
    own,
    st.builds(lambda made: {"tool_calls": made}, st.lists(calls, max_size=2) | st.none()) | st.just({}),
)


@given(st.lists(turns, max_size=3), st.sets(st.sampled_from(sorted(OWN_FIELDS))), st.booleans())
def test_refused_fields_are_removed_and_first_calls_are_signed(messages: Any, refused: set[str], signed: bool) -> None:
    given_ = Raw(json.dumps(messages).encode())
    made = in_dialect(given_, frozenset(refused), signed=signed)
    expected = json.loads(bytes(given_))
    for turn in expected:
        for fields in (turn, *(turn.get("tool_calls") or ())):
            for name in refused & fields.keys():
                del fields[name]
        if signed and turn.get("tool_calls"):
            turn["tool_calls"][0].setdefault("extra_content", json.loads(bytes(UNSIGNED)))
    assert json.loads(bytes(made)) == expected
    if not refused and not signed:
        assert made is given_


def test_malformed_messages_are_left_to_the_server() -> None:
    for raw in (b'[{"tool_calls":5}]', b'[{"reasoning_content":""},7]', b'{"tool_calls":[]}'):
        assert in_dialect(Raw(raw), OWN_FIELDS, signed=True) == Raw(raw)
