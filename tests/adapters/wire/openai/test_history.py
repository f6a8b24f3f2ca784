"""The messages of a chat in the dialect of one server."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import encode

from adapters.wire.openai.history import OWN_FIELDS, UNSIGNED, in_dialect, with_early_system

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


contents = st.text(max_size=9) | st.just('"role":"system"')
spoken = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["system", "user", "assistant"]),
    contents | st.lists(st.builds(lambda text: {"type": "text", "text": text}, contents), min_size=1),
)


def _texts(messages: Any) -> list[str]:
    parts = [each["content"] for each in messages]
    return [
        text
        for content in parts
        for text in ([content] if isinstance(content, str) else [part["text"] for part in content])
        if text
    ]


@given(st.lists(spoken, max_size=6))
def test_a_system_message_is_the_first_one_or_the_users(messages: Any) -> None:
    given_ = Raw(encode(messages))
    made = with_early_system(given_)
    decoded = json.loads(bytes(made))
    roles = [each["role"] for each in decoded]
    assert "system" not in roles[1:]
    assert _texts(decoded) == _texts(messages)
    if "system" not in [each["role"] for each in messages[1:]]:
        assert made is given_
    else:
        assert ("user", "user") not in pairwise(roles)


@given(st.sampled_from(["reasoning", "reasoning_content"]))
def test_thoughts_return_in_each_field_that_a_server_reads(name: str) -> None:
    turn = {"role": "assistant", "content": "so", name: "hm"}
    made = in_dialect(Raw(encode([turn])), frozenset(), signed=False, thoughts=("reasoning_content", "reasoning"))
    assert json.loads(bytes(made)) == [turn | {"reasoning_content": "hm", "reasoning": "hm"}]
